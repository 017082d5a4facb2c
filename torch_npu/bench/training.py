"""python -m torch_npu bench training: a training step against PyTorch on the CPU."""

import re
import sys

import torch

from torch_npu import fallback
from torch_npu.bench.measure import CLOCKS, Plan, compare
from torch_npu.bench.networks import MODELS
from torch_npu.console.command import Outcome, UsageError
from torch_npu.console.progress import Progress
from torch_npu.console.table import some, table


def run(options) -> Outcome:
    chosen = {name: make for name, make in MODELS.items() if re.search(options.model, name)}
    if not chosen:
        raise UsageError(f"expected part of {', '.join(MODELS)}, got {options.model}")
    rows = []
    with Progress(len(chosen), options.quiet) as progress:
        for name, make in chosen.items():
            progress.step(name)
            cpu, npu = make("cpu", options.quick), make(options.device, options.quick)
            plan = Plan(0.0, options.rounds or (3 if options.quick else 7), 0.008, CLOCKS[options.clock])
            times = compare(cpu, npu, torch.npu.synchronize, plan)
            rows.append({"model": name} | times.json())
    shown = [(r["model"], f"{r['cpu_us'] / 1e3:.1f}", f"{r['npu_us'] / 1e3:.1f}", f"{r['ratio']:.2f}x") for r in rows]
    text = table(("training step", "cpu ms", "npu ms", "cpu / npu"), shown)
    if fallback.report():
        text += f"\ncomputed on the CPU: {some(fallback.report())}"
    slow = [r for r in rows if r["ratio"] < 1.0]
    for row in slow if options.check else []:
        print(f"expected at least 1.0x for {row['model']}, got {row['ratio']:.2f}x", file=sys.stderr)
    return Outcome({"threads": options.threads, "rows": rows}, text, int(bool(slow) and options.check))
