"""python -m torch_npu bench training: a training step against PyTorch on the CPU."""

import json
import re
import sys
from pathlib import Path

import torch

from torch_npu import fallback
from torch_npu.bench.measure import CLOCKS, Plan, compare
from torch_npu.bench.networks import MODELS
from torch_npu.cli.table import table


def run(options) -> int:
    rows = []
    for name, make in MODELS.items():
        if not re.search(options.model, name):
            continue
        cpu, npu = make("cpu", options.quick), make(options.device, options.quick)
        plan = Plan(0.0, 3 if options.quick else options.rounds, 0.008, CLOCKS[options.clock])
        times = compare(cpu, npu, torch.npu.synchronize, plan)
        rows.append({"model": name} | times.json())
    if not rows:
        print(f"expected part of {', '.join(MODELS)}, got {options.model}", file=sys.stderr)
        return 2
    shown = [(r["model"], f"{r['cpu_us'] / 1e3:.1f}", f"{r['npu_us'] / 1e3:.1f}", f"{r['ratio']:.2f}x") for r in rows]
    print(table(("training step", "cpu ms", "npu ms", "cpu / npu"), shown))
    if fallback.report():
        print(f"computed on the CPU: {', '.join(fallback.report())}")
    if options.json:
        Path(options.json).write_text(json.dumps({"threads": options.threads, "rows": rows}, indent=1) + "\n")
    slow = [r for r in rows if r["ratio"] < 1.0]
    for row in slow if options.check else []:
        print(f"expected at least 1.0x for {row['model']}, got {row['ratio']:.2f}x", file=sys.stderr)
    return int(bool(slow) and options.check)
