"""python -m torch_npu bench ops: every op family against PyTorch on the CPU."""

import re
import sys

import torch

from torch_npu import fallback
from torch_npu.bench import plot
from torch_npu.bench.cases import CASES, Case
from torch_npu.bench.make import SIZES, Make
from torch_npu.bench.measure import Plan, compare, geometric_mean
from torch_npu.console.command import Outcome, UsageError
from torch_npu.console.progress import Progress
from torch_npu.console.table import some, table


def run(options) -> Outcome:
    sizes = options.sizes.split(",")
    dtypes = options.dtype.split(",")
    for what, given, known in (("sizes", sizes, SIZES), ("types", dtypes, ("float32", "bfloat16"))):
        if not set(given) <= set(known):
            raise UsageError(f"expected {what} out of {', '.join(known)}, got {','.join(given)}")
    if options.plot:
        try:
            plot.check(options.plot)
        except ValueError as error:
            raise UsageError(str(error)) from None
    chosen = re.compile(options.op)
    cells = []
    for case in CASES:
        if not chosen.search(case.name) and not chosen.search(case.family):
            continue
        wanted = [t for t in dtypes if t in case.dtypes] or ([case.always] if case.always else [])
        cells += [(case, t, s, layout) for t in wanted for s in sizes for layout in case.layouts]
    if not cells:
        raise UsageError(f"expected part of the name of an op or family, got {options.op}")
    plan = Plan.of(options.quick, options.threads, options.clock)
    rows = []
    with Progress(len(cells), options.quiet) as progress, torch.no_grad(), fallback.mode("quiet"):
        for cell in cells:
            progress.step(f"{cell[0].name}, {cell[2]}")
            rows.append(_measure(*cell, options.device, plan))
    return _report(rows, sizes, options)


def _measure(case: Case, dtype: str, size: str, layout: str, device: str, plan: Plan) -> dict:
    calls = []
    for target in ("cpu", device):
        calls.append(case.make(Make(target, getattr(torch, dtype), size, layout)))
    fallback.reset()
    times = compare(*calls, torch.npu.synchronize, plan)
    place = {"family": case.family, "op": case.name, "dtype": dtype, "size": size, "layout": layout}
    return place | times.json() | {"fallback": list(fallback.report())}


def families_of(rows: list[dict], sizes: list[str]) -> dict[str, dict[str, float]]:
    """The geometric mean of the ratios of each family, by size."""
    names = dict.fromkeys(row["family"] for row in rows)
    means = {}
    for name in names:
        for size in sizes:
            ratios = [row["ratio"] for row in rows if row["family"] == name and row["size"] == size]
            if ratios:
                means.setdefault(name, {})[size] = geometric_mean(ratios)
    return means


def _report(rows: list[dict], sizes: list[str], options) -> Outcome:
    families = families_of(rows, sizes)
    over_all = {}
    for size in sizes:
        ratios = [by_size[size] for by_size in families.values() if size in by_size]
        if ratios:
            over_all[size] = geometric_mean(ratios)
    total = geometric_mean(list(over_all.values()))
    text = _tables(rows, sizes, families, over_all, total)
    title = f"cpu time / npu time, {options.threads} thread{'s' if options.threads > 1 else ''} (larger is better)"
    if options.plot:
        plot.write(options.plot, families, title, text)
    shown = f"{title}\n\n{text}"
    on_cpu = sorted({name for row in rows for name in row["fallback"]})
    if on_cpu:
        shown += f"\n\ncomputed on the CPU: {some(on_cpu)}"
    facts = {"threads": options.threads, "torch": torch.__version__, "driver": torch.npu.get_device_name()}
    facts |= {"rows": rows, "families": families, "geometric_mean": over_all | {"all": total}}
    missed = []
    if options.check and "large" in over_all:
        slow = {name: by_size["large"] for name, by_size in families.items() if by_size.get("large", 1) < 0.8}
        missed = [f"expected at least 0.8x for large {name}, got {ratio:.2f}x" for name, ratio in slow.items()]
        if over_all["large"] < 1.2:
            missed.append(f"expected a geometric mean of at least 1.2x, got {over_all['large']:.2f}x")
    for line in missed:
        print(line, file=sys.stderr)
    return Outcome(facts, shown, int(bool(missed)))


def _tables(rows, sizes, families, over_all, total) -> str:
    cells = {}
    for row in rows:
        key = (row["family"], row["op"], row["dtype"], row["layout"])
        cells.setdefault(key, {})[row["size"]] = row["ratio"]

    def show(by_size: dict) -> tuple:
        return tuple(f"{by_size[s]:.2f}" if s in by_size else "" for s in sizes)

    ops = table(("family", "op", "type", "layout", *sizes), [(*key, *show(by)) for key, by in cells.items()])
    lines = [(name, *show(by)) for name, by in families.items()]
    lines.append(("geometric mean", *show(over_all)))
    return f"{ops}\n\n{table(('family', *sizes), lines)}\n\ngeometric mean of all sizes: {total:.2f}x"
