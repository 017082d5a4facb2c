"""Qwen2 for `python -m torch_npu bench models`: a prompt, one more token, and a LoRA step, with random weights."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

TINY = {
    "vocab_size": 1024,
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
# As published.
QWEN2_05B = {
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}
SIZES: dict[str, dict] = {"tiny": TINY, "0.5b": QWEN2_05B}
TITLES = {"tiny": "Qwen2, 2 layers of 64", "0.5b": "Qwen2-0.5B"}
LORA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass
class Work:
    """`run` is what is measured; `held` are the tensors that are there before and after it."""

    run: Callable
    held: Callable[[], list[torch.Tensor]]


def make(size: str, dtype: torch.dtype, quick: bool) -> torch.nn.Module:
    """On the CPU, so that both devices get the same weights. `quick` keeps two layers and a small vocabulary."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    less = {"num_hidden_layers": 2, "vocab_size": 1024} if quick else {}
    config = Qwen2Config(**(SIZES[size] | less), max_position_embeddings=32768, tie_word_embeddings=True)
    return Qwen2ForCausalLM(config).to(dtype).eval()


def tokens_of(model: Any, batch: int, length: int, device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(model.config.vocab_size, (batch, length), generator=generator).to(device)


def prefill(model: torch.nn.Module, device: str) -> Work:
    """A prompt of 128 tokens, as `generate` begins: a cache for all, logits for the last."""
    prompt = tokens_of(model, 1, 128, device)

    @torch.no_grad()
    def run():
        return model(prompt, use_cache=True, logits_to_keep=1).logits

    return Work(run, lambda: list(model.parameters()))


def decode(model: torch.nn.Module, device: str) -> Work:
    """One more token behind 128: greedy, with the choice on the host as a program would have it."""
    prompt = tokens_of(model, 1, 128, device)
    with torch.no_grad():
        start = model(prompt, use_cache=True, logits_to_keep=1)
    cache, token = start.past_key_values, start.logits[:, -1:].argmax(-1)

    @torch.no_grad()
    def run():
        logits = model(token, past_key_values=cache, use_cache=True).logits
        cache.crop(-1)
        return logits.argmax(-1).item()

    def held():
        return [*model.parameters(), *(part for layer in cache.layers for part in (layer.keys, layer.values))]

    return Work(run, held)


def lora_step(model: torch.nn.Module, device: str, sequences: int = 2, length: int = 64) -> Work:
    """Two sequences of 64 tokens, rank 16 at every projection, clipping and AdamW."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(2)
    # The adapters in the type of the model: float32 ones would make every product of a bfloat16 model a float32 one.
    config = LoraConfig(r=16, lora_alpha=32, target_modules=LORA)
    model = get_peft_model(model, config, autocast_adapter_dtype=False).to(device).train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    batch = tokens_of(model, sequences, length, device)

    def run():
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    def held():
        state = [value for of_one in optimizer.state.values() for value in of_one.values()]
        return [*model.parameters(), *(value for value in state if isinstance(value, torch.Tensor))]

    return Work(run, held)


PHASES = {"prefill, 128 tokens": prefill, "decode, 1 token": decode, "LoRA step, 2 x 64 tokens": lora_step}
