"""Fine-tunes a Qwen2 model with LoRA on text: AdamW on the device, gradient accumulation and clipping, a learning rate
that warms up and decays, checkpoints, the adapter saved and merged at the end.

    python examples/lora_qwen.py                              a tiny model, a few seconds
    python examples/lora_qwen.py --size 0.5b --dtype bfloat16 Qwen2-0.5B
    python examples/lora_qwen.py --trainer                    the same by transformers' Trainer
    python examples/lora_qwen.py --resume                     go on from the last checkpoint in --out

Weights are random and the text is this project's documentation: nothing is downloaded. A run that was killed and
resumed writes the same losses, to the last bit, as one that was not.
"""

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

import qwen
import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from tqdm import tqdm
from transformers import Trainer, TrainerCallback, TrainingArguments, get_cosine_schedule_with_warmup

MERGE_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.02}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="npu:0", help="device to train on (default: npu:0)")
    parser.add_argument("--size", choices=qwen.SIZES, default="tiny", help="of the model (default: tiny)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help="of the weights")
    parser.add_argument("--steps", type=int, default=60, help="optimizer steps (default: 60)")
    parser.add_argument("--batch", type=int, default=4, help="sequences at a time (default: 4)")
    parser.add_argument("--length", type=int, default=64, help="tokens of a sequence (default: 64)")
    parser.add_argument("--accumulate", type=int, default=2, help="batches per optimizer step (default: 2)")
    parser.add_argument("--lr", type=float, help="highest learning rate (default: 0.003 for tiny, 0.001 for 0.5b)")
    parser.add_argument("--rank", type=int, default=16, help="of the adapter (default: 16)")
    parser.add_argument("--dropout", type=float, default=0.05, help="of the adapter (default: 0.05)")
    parser.add_argument("--checkpoint-every", type=int, default=20, metavar="STEPS", help="(default: 20)")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
    parser.add_argument("--trainer", action="store_true", help="by transformers.Trainer instead of a loop")
    parser.add_argument(
        "--out", type=Path, default=Path("build/lora"), help="checkpoints, losses, adapter, merged model"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if min(options.steps, options.batch, options.length, options.accumulate, options.rank) < 1:
        parser.error("expected --steps, --batch, --length, --accumulate and --rank of at least 1")
    if options.length < 2:
        parser.error("expected --length of at least 2, so that there is a token to predict")
    options.lr = options.lr or {"tiny": 3e-3, "0.5b": 1e-3}[options.size]
    return options


class Excerpts(torch.utils.data.Dataset):
    """Pieces of a text. Number i is always the same one, so a resumed run has nothing to remember about its data."""

    def __init__(self, tokens: list[int], count: int, length: int, seed: int):
        self.tokens, self.length = torch.tensor(tokens), length
        draw = torch.Generator().manual_seed(seed)
        self.starts = torch.randint(len(tokens) - length, (count,), generator=draw).tolist()

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        piece = self.tokens[self.starts[i] : self.starts[i] + self.length]
        return {"input_ids": piece, "labels": piece}


def with_adapter(options: argparse.Namespace) -> PeftModel:
    torch.manual_seed(options.seed)
    base = qwen.model(options.size, getattr(torch, options.dtype))
    config = LoraConfig(
        r=options.rank,
        lora_alpha=2 * options.rank,
        lora_dropout=options.dropout,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    return get_peft_model(base, config)


# --- a plain loop ---------------------------------------------------------------------------------------------------


def save_checkpoint(folder: Path, step: int, model, optimizer, schedule, device: torch.device) -> None:
    state = {
        "step": step,
        "adapter": get_peft_model_state_dict(model),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "rng": torch.get_rng_state(),
        "device_rng": torch.npu.get_rng_state(device) if device.type == "npu" else None,
    }
    unfinished = folder / "checkpoint.part"
    torch.save(state, unfinished)
    unfinished.replace(folder / "checkpoint.pt")  # in one step: a kill leaves the old one or the new one


def load_checkpoint(folder: Path, model, optimizer, schedule, device: torch.device) -> int:
    state = torch.load(folder / "checkpoint.pt", map_location="cpu", weights_only=True)
    set_peft_model_state_dict(model, state["adapter"])
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    torch.set_rng_state(state["rng"])
    if device.type == "npu":
        torch.npu.set_rng_state(state["device_rng"], device)
    return state["step"]


def train(model: PeftModel, data: Excerpts, options: argparse.Namespace) -> list[float]:
    device = torch.device(options.device)
    model.to(device).train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=options.lr, weight_decay=0.01, fused=True)
    schedule = get_cosine_schedule_with_warmup(optimizer, options.steps // 10, options.steps)
    log = options.out / "losses.jsonl"
    losses = []
    if options.resume:
        done = load_checkpoint(options.out, model, optimizer, schedule, device)
        losses = [json.loads(line)["loss"] for line in log.read_text().splitlines()[:done]]
    log.write_text("".join(json.dumps({"loss": loss}) + "\n" for loss in losses))

    mixed = torch.autocast(device.type, torch.bfloat16, enabled=options.dtype == "bfloat16")
    rest = torch.utils.data.Subset(data, range(len(losses) * options.accumulate * options.batch, len(data)))
    batches = iter(torch.utils.data.DataLoader(rest, options.batch, pin_memory=device.type == "npu"))
    bar = tqdm(total=options.steps, initial=len(losses), unit="step", desc=options.device, disable=None)
    start, tokens = time.perf_counter(), 0
    while len(losses) < options.steps:
        step_loss = 0.0
        for _ in range(options.accumulate):
            batch = {name: value.to(device, non_blocking=True) for name, value in next(batches).items()}
            with mixed:
                loss = model(**batch).loss / options.accumulate
            loss.backward()
            step_loss = step_loss + loss.detach()
            tokens += batch["input_ids"].numel()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(step_loss.item())
        with log.open("a") as file:
            file.write(json.dumps({"loss": losses[-1]}) + "\n")
        if len(losses) % options.checkpoint_every == 0:
            save_checkpoint(options.out, len(losses), model, optimizer, schedule, device)
            if bar.disable:  # no terminal
                print(f"step {len(losses)}: loss {losses[-1]:.4f}, checkpoint", flush=True)
        bar.set_postfix_str(f"loss {losses[-1]:.4f}, {tokens / (time.perf_counter() - start):,.0f} tokens/s")
        bar.update()
    bar.close()
    print(f"{options.device}: {len(losses)} steps, {tokens / (time.perf_counter() - start):,.0f} tokens/s")
    return losses


# --- the same by transformers' Trainer ------------------------------------------------------------------------------


class Losses(TrainerCallback):
    def __init__(self):
        self.losses = {}

    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            self.losses[state.global_step] = float(logs["loss"])


def train_by_trainer(model: PeftModel, data: Excerpts, options: argparse.Namespace) -> list[float]:
    if options.device.startswith("npu"):
        torch.npu.set_device(options.device)  # Trainer takes the current device
    arguments = TrainingArguments(
        output_dir=str(options.out),
        use_cpu=options.device == "cpu",
        max_steps=options.steps,
        per_device_train_batch_size=options.batch,
        gradient_accumulation_steps=options.accumulate,
        learning_rate=options.lr,
        weight_decay=0.01,
        max_grad_norm=1.0,
        warmup_steps=options.steps // 10,
        lr_scheduler_type="cosine",
        optim="adamw_torch_fused",
        bf16=options.dtype == "bfloat16",
        train_sampling_strategy="sequential",
        logging_steps=1,
        save_steps=options.checkpoint_every,
        seed=options.seed,
        report_to=[],
        disable_tqdm=not sys.stderr.isatty(),
    )
    seen = Losses()
    Trainer(model, arguments, train_dataset=data, callbacks=[seen]).train(resume_from_checkpoint=options.resume)
    return list(seen.losses.values())


# --- what comes of it -----------------------------------------------------------------------------------------------


@torch.no_grad()
def save_and_merge(model: PeftModel, batch: torch.Tensor, options: argparse.Namespace) -> float:
    """Saves the adapter and the merged model; returns how far the merged model is from base plus adapter."""
    model.eval()
    apart = model(batch).logits.float()
    model.save_pretrained(options.out / "adapter")
    merged = model.merge_and_unload()
    merged.save_pretrained(options.out / "merged")
    return ((merged(batch).logits.float() - apart).abs().max() / apart.abs().max()).item()


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.resume and not any(options.out.glob("checkpoint*")):
        print(f"expected a checkpoint in {options.out}, got none: run without --resume first", file=sys.stderr)
        return 2
    if not options.resume:
        shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True, exist_ok=True)
    words = qwen.text()
    tokenizer = qwen.tokenizer(words)
    count = options.steps * options.accumulate * options.batch
    data = Excerpts(tokenizer(words)["input_ids"], count, options.length, options.seed)
    model = with_adapter(options)
    trained, all_parameters = model.get_nb_trainable_parameters()
    print(f"Qwen2 {options.size}, {options.dtype}: {trained:,} of {all_parameters:,} parameters are trained")
    losses = (train_by_trainer if options.trainer else train)(model, data, options)

    tokenizer.save_pretrained(options.out / "merged")
    batch = data[0]["input_ids"].unsqueeze(0).to(next(model.parameters()).device)
    off = save_and_merge(model, batch, options)
    limit = MERGE_TOLERANCE[getattr(torch, options.dtype)]
    first, last = sum(losses[:5]) / len(losses[:5]), sum(losses[-5:]) / len(losses[-5:])
    print(f"loss {first:.3f} -> {last:.3f}; merged model within {off:.1e} of base and adapter (limit {limit:.0e})")
    print(f"adapter in {options.out / 'adapter'}, merged model in {options.out / 'merged'}")
    learned = last < first or len(losses) < 20  # the means of so few steps say nothing
    return 0 if learned and off <= limit else 1


if __name__ == "__main__":
    sys.exit(main())
