"""Fused ops against the ops they replace: the same arithmetic unfused on the device, and unfused on the CPU.

Sizes are those of a Qwen2-0.5B layer over --tokens tokens. Larger ratios are better; blocks of calls alternate and the
shortest block of each side counts.

python benchmarks/fused_bench.py [--threads N] [--tokens N] [--dtypes float32,bfloat16] [--wall] [part of a name ...]
"""

import argparse
import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
import torch.nn.functional as F

import torch_npu
from torch_npu.bench.measure import Plan, compare
from torch_npu.console.table import table

HIDDEN, INNER, HEADS, KEY_HEADS, FEATURES = 896, 4864, 14, 2, 64


def turned(x):
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def rms_norm(x, gamma):  # as transformers' models write it
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return gamma * wide.to(x.dtype)


def add_rms_norm(x, y, gamma):
    total = x + y
    return rms_norm(total, gamma), total


def swiglu(x):
    gate, line = x.chunk(2, -1)
    return F.silu(gate) * line


def geglu(x):
    line, gate = x.chunk(2, -1)
    return line * F.gelu(gate, approximate="tanh")


def window(q, k, v):  # 128 tokens back; the ops it replaces need a mask of all pairs
    return torch_npu.npu_fusion_attention(
        q, k, v, HEADS, "BNSD", scale=FEATURES**-0.5, pre_tockens=127, next_tockens=0
    )[0]


def masked(q, k, v):
    d = torch.arange(q.shape[2], device=q.device)
    d = d - d.unsqueeze(1)
    return F.scaled_dot_product_attention(q, k, v, (d <= 0) & (d > -128), enable_gqa=True)


def lora(x, weight, a, b):  # as peft's layers write it
    return F.linear(x, weight) + F.linear(F.linear(x, a), b) * 2.0


def int8(dynamic):
    """The layer's own weight, quantised once; the float layer keeps the float weight."""
    kept = {}

    def call(x, weight):
        if id(weight) not in kept:
            kept[id(weight)] = (weight, torch_npu.npu_dynamic_quant(weight.detach()))
        return torch.ops.npu.npu_int8_linear(x, *kept[id(weight)][1], None, dynamic)

    return call


# Name: the fused op, what it replaces, its tensors by size.
CASES = {
    "npu_rms_norm": (lambda *t: torch_npu.npu_rms_norm(*t)[0], rms_norm, lambda n: ((n, HIDDEN), (HIDDEN,))),
    "npu_add_rms_norm": (
        lambda *t: torch_npu.npu_add_rms_norm(*t)[::2],
        add_rms_norm,
        lambda n: ((n, HIDDEN), (n, HIDDEN), (HIDDEN,)),
    ),
    "npu_rotary_mul": (
        torch_npu.npu_rotary_mul,
        lambda x, c, s: x * c + turned(x) * s,
        lambda n: ((1, HEADS, n, FEATURES), (n, FEATURES), (n, FEATURES)),
    ),
    "npu_swiglu": (torch_npu.npu_swiglu, swiglu, lambda n: ((n, 2 * INNER),)),
    "npu_geglu": (lambda x: torch_npu.npu_geglu(x)[0], geglu, lambda n: ((n, 2 * INNER),)),
    "npu_fusion_attention window": (
        window,
        masked,
        lambda n: ((1, HEADS, n, FEATURES), (1, KEY_HEADS, n, FEATURES), (1, KEY_HEADS, n, FEATURES)),
    ),
    "npu_lora_linear": (
        lambda x, w, a, b: torch.ops.npu.npu_lora_linear(x, w, None, a, b, 2.0)[0],
        lora,
        lambda n: ((n, HIDDEN), (HIDDEN, HIDDEN), (8, HIDDEN), (HIDDEN, 8)),
    ),
    "npu_int8_linear": (int8(False), F.linear, lambda n: ((n, HIDDEN), (INNER, HIDDEN))),
    "npu_int8_linear dynamic": (int8(True), F.linear, lambda n: ((n, HIDDEN), (INNER, HIDDEN))),
}
# Tensors that are not trained: angles, and all but the adapter of a LoRA layer.
FROZEN = {"npu_rotary_mul": (1, 2), "npu_lora_linear": (1,), "npu_int8_linear": (1,), "npu_int8_linear dynamic": (1,)}


def call_of(function, shapes, device, dtype, backward, frozen):
    torch.manual_seed(0)
    tensors = [torch.randn(s).to(device, dtype) for s in shapes]
    if not backward:
        return torch.no_grad()(lambda: function(*tensors))
    leaves = [t for i, t in enumerate(tensors) if i not in frozen]
    for leaf in leaves:
        leaf.requires_grad_()
    out = function(*tensors)
    grads = [torch.ones_like(o) for o in (out if isinstance(out, tuple) else (out,))]
    return lambda: torch.autograd.grad(function(*tensors), leaves, grads)


def waited(call):
    def both():
        call()
        torch.npu.synchronize()

    return both


def nothing() -> None:
    pass


def commands_of(call) -> int:
    with torch_npu.native.counting():
        call()
    return sum(torch_npu.native_report().values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--wall", action="store_true", help="wall time instead of processor time")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    plan = Plan.of(False, options.threads, "wall" if options.wall else "cpu")
    rows = []
    for name, (fused, plain, shapes_of) in CASES.items():
        if options.names and not any(part in name for part in options.names):
            continue
        for dtype in (getattr(torch, t) for t in options.dtypes.split(",")):
            for backward in (False, True):
                make = (shapes_of(options.tokens),)
                rest = (dtype, backward, FROZEN.get(name, ()))
                one = call_of(fused, *make, "npu", *rest)
                many = call_of(plain, *make, "npu", *rest)
                cpu = call_of(plain, *make, "cpu", *rest)
                on_device = compare(waited(many), waited(one), nothing, plan)
                on_cpu = compare(cpu, waited(one), nothing, plan)
                rows.append(
                    (
                        name,
                        str(dtype).removeprefix("torch."),
                        "with gradient" if backward else "forward",
                        f"{min(on_device.npu) * 1e6:.0f}",
                        f"{commands_of(one)} / {commands_of(many)}",
                        f"{on_device.ratio:.2f}",
                        f"{on_cpu.ratio:.2f}",
                    )
                )
    print(table(("op", "type", "", "us", "commands", "unfused / fused", "CPU / fused"), rows))


if __name__ == "__main__":
    main()
