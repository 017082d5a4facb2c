"""Generates text with a Qwen2 model on the device and says how fast it is.

    python examples/generate_qwen.py                       a tiny model
    python examples/generate_qwen.py --size 0.5b --check   Qwen2-0.5B; logits and tokens compared with the CPU's
    python examples/generate_qwen.py --model build/lora/merged --prompt "A driver"

Without --model the weights are random, so the text means nothing; the work is that of the real model.
"""

import argparse
import copy
import sys
import time
from pathlib import Path

import qwen
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer

import torch_npu

LOGITS_TOLERANCE = 1e-3  # of the largest logit, in float32


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="npu:0", help="device to run on (default: npu:0)")
    parser.add_argument("--size", choices=qwen.SIZES, default="tiny", help="of a model with random weights")
    parser.add_argument("--model", metavar="FOLDER", help="a saved model and its tokenizer instead")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help="of the weights")
    parser.add_argument("--prompt", default="A chip brings eight commands; torch_npu brings PyTorch.")
    parser.add_argument("--tokens", type=int, default=64, help="to generate (default: 64)")
    parser.add_argument("--sample", action="store_true", help="draw tokens instead of taking the likeliest")
    parser.add_argument("--check", action="store_true", help="the same on the CPU; exit status 1 if it differs")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.tokens < 1 or not options.prompt:
        parser.error("expected --tokens of at least 1 and a --prompt that is not empty")
    if options.model and not Path(options.model).is_dir():
        parser.error(f"expected --model to be a folder with a saved model, got {options.model}; lora_qwen.py makes one")
    if options.check and (options.sample or options.dtype != "float32"):
        parser.error("expected --check with float32 and without --sample, where both devices must agree")
    return options


def load(options: argparse.Namespace):
    dtype = getattr(torch, options.dtype)
    if options.model:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype, device_map=options.device)
        return model, AutoTokenizer.from_pretrained(options.model)
    torch.manual_seed(options.seed)
    return qwen.model(options.size, dtype).to(options.device).eval(), qwen.tokenizer(qwen.text())


@torch.no_grad()
def differs_from_cpu(model, prompt: torch.Tensor, tokens: torch.Tensor) -> bool:
    on_cpu = copy.deepcopy(model).to("cpu")
    want, got = on_cpu(prompt.cpu()).logits, model(prompt).logits.cpu()
    off = ((want - got).abs().max() / want.abs().max()).item()
    count = tokens.shape[1] - prompt.shape[1]
    expected = on_cpu.generate(prompt.cpu(), max_new_tokens=count, min_new_tokens=count, do_sample=False)
    same = torch.equal(expected, tokens.cpu())
    print(f"logits within {off:.1e} of the CPU's (limit {LOGITS_TOLERANCE:.0e}); {count} tokens", end=" ")
    print("identical" if same else "DIFFERENT")
    return off > LOGITS_TOLERANCE or not same


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    model, tokenizer = load(options)
    prompt = tokenizer(options.prompt, return_tensors="pt")["input_ids"].to(options.device)
    torch.manual_seed(options.seed)
    torch_npu.fallback.reset()
    start = time.perf_counter()
    with torch.no_grad():
        model(prompt).logits[0, -1].argmax().item()
    prefill = time.perf_counter() - start
    start = time.perf_counter()
    tokens = model.generate(
        prompt,
        max_new_tokens=options.tokens,
        min_new_tokens=options.tokens,
        do_sample=options.sample,
        streamer=TextStreamer(tokenizer),
    )
    seconds = time.perf_counter() - start
    print(
        f"{options.device}, {options.dtype}: prompt of {prompt.shape[1]} tokens in {prefill * 1e3:.1f} ms, then",
        end=" ",
    )
    print(f"{options.tokens / seconds:.1f} tokens/s; on the CPU instead: {torch_npu.fallback.report() or 'nothing'}")
    return int(options.check and differs_from_cpu(model, prompt, tokens))


if __name__ == "__main__":
    sys.exit(main())
