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
from torch_npu.cli.table import table

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
}


def call_of(function, shapes, device, dtype, backward, learned):
    torch.manual_seed(0)
    tensors = [torch.randn(s).to(device, dtype) for s in shapes]
    if not backward:
        return torch.no_grad()(lambda: function(*tensors))
    leaves = tensors[:1] if not learned else tensors
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
                rest = (dtype, backward, "rotary" not in name)
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
