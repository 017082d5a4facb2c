"""python -m torch_npu bench models: Qwen2's prefill, decode and LoRA step against PyTorch on the CPU."""

import copy
import gc
import os
import re
import sys

import torch

from torch_npu import fallback
from torch_npu.bench.measure import CLOCKS, Plan, compare
from torch_npu.bench.qwen2 import PHASES, SIZES, TITLES, Work, make
from torch_npu.console.command import Outcome, UsageError
from torch_npu.console.progress import Progress
from torch_npu.console.table import some, table

DTYPES = ("float32", "bfloat16")
MEMORY_LIMIT = 1.1  # of a LoRA step, times what the CPU needs


def target(size: str, dtype: str) -> float:
    if size == "tiny":
        return 0.9
    # A processor with products of bfloat16 does them for both sides; PyTorch is slow on one without.
    return 1.0 if dtype == "float32" or torch.cpu._is_avx512_bf16_supported() else 3.0


def run(options) -> Outcome:
    dtypes = options.dtype.split(",")
    if not set(dtypes) <= set(DTYPES):
        raise UsageError(f"expected types out of {', '.join(DTYPES)}, got {options.dtype}")
    cells = []
    for size in SIZES if options.size == "all" else [options.size]:
        phases = [p for p in PHASES if re.search(options.phase, p) and (size != "tiny" or p.startswith("decode"))]
        cells += [(size, dtype, phase) for dtype in dtypes for phase in phases]
    if not cells:
        raise UsageError(f"expected part of {'; '.join(PHASES)} (tiny: decode only), got {options.phase}")
    plan = Plan(0.1, options.rounds or (3 if options.quick else 5), 0.008, CLOCKS[options.clock])
    rows, made, last = [], None, None
    fallback.reset()
    with Progress(len(cells), options.quiet) as progress, fallback.mode("quiet"):
        for size, dtype, phase in cells:
            progress.step(f"{TITLES[size]}, {phase}, {dtype}")
            if last != (size, dtype):
                made = None  # before the next one, not after it: two models of this size are a lot of memory
                made, last = make(size, getattr(torch, dtype), options.quick), (size, dtype)
            rows.append({"size": size, "dtype": dtype, "phase": phase} | _measure(made, phase, options.device, plan))
    return _report(rows, options)


def _measure(model: torch.nn.Module, phase: str, device: str, plan: Plan) -> dict:
    gc.collect()
    torch.npu.empty_cache()
    before = torch.npu.memory_allocated(device)
    npu = PHASES[phase](copy.deepcopy(model).to(device), device)
    cpu = PHASES[phase](copy.deepcopy(model), "cpu")
    times = compare(cpu.run, npu.run, torch.npu.synchronize, plan)
    torch.npu.synchronize()
    torch.npu.reset_peak_memory_stats(device)
    npu.run()
    torch.npu.synchronize()
    peak = torch.npu.max_memory_allocated(device) - before
    need = _cpu_peak(cpu)
    return times.json() | {"cpu_peak_bytes": need, "npu_peak_bytes": peak, "memory_ratio": peak / need}


def _cpu_peak(work: Work) -> int:
    """Bytes of the tensors that are there anyway, and the highest sum of what one run has allocated on top."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its start and stop are no news
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        work.run()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = highest = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        if event.device_type() == torch.autograd.DeviceType.CPU:
            live += event.nbytes()
            highest = max(highest, live)
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in work.held()}
    return sum(storages.values()) + highest


def _report(rows: list[dict], options) -> Outcome:
    shown, missed = [], []
    for row in rows:
        name = f"{TITLES[row['size']]}, {row['phase']}, {row['dtype']}"
        row["target"] = target(row["size"], row["dtype"])
        if row["ratio"] < row["target"]:
            missed.append(f"expected at least {row['target']}x for {name}, got {row['ratio']:.2f}x")
        if row["phase"].startswith("LoRA") and row["memory_ratio"] > MEMORY_LIMIT:
            missed.append(
                f"expected at most {MEMORY_LIMIT}x the CPU's memory for {name}, got {row['memory_ratio']:.2f}x"
            )
        memory = f"{row['cpu_peak_bytes'] / 2**20:,.0f}", f"{row['npu_peak_bytes'] / 2**20:,.0f}"
        times = f"{row['cpu_us'] / 1e3:.1f}", f"{row['npu_us'] / 1e3:.1f}", f"{row['ratio']:.2f}x"
        shown.append((name, *times, f"{row['target']:.1f}x", *memory))
    heads = ("model", "cpu ms", "npu ms", "cpu / npu", "target", "cpu MiB", "npu MiB")
    threads = f"{options.threads} thread{'s' if options.threads > 1 else ''}"
    text = f"{threads}; memory is the peak of one run, weights included\n{table(heads, shown)}"
    on_cpu = fallback.report()
    if on_cpu:
        text += f"\ncomputed on the CPU: {some(on_cpu)}"
    facts = {"threads": options.threads, "torch": torch.__version__, "driver": torch.npu.get_device_name()}
    facts |= {"quick": options.quick, "fallback": on_cpu, "rows": rows}
    for line in missed if options.check else []:
        print(line, file=sys.stderr)
    return Outcome(facts, text, int(bool(missed) and options.check))
