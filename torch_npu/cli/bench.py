"""python -m torch_npu bench: the device against PyTorch's own CPU kernels, in the same run.

Ratios are time on npu / time on CPU for `dispatch` (smaller is better) and CPU / npu for the others (larger is better).
CPU and npu blocks alternate, and medians are compared, so that a busy machine disturbs both alike.
"""

import argparse
import os
import re
import statistics
import time
from collections.abc import Callable

from torch_npu.console.command import STATUSES, Outcome, add_command
from torch_npu.console.progress import Progress
from torch_npu.console.table import table

# What `bench dispatch` has to reach (benchmarks/README.md).
LIMITS = {"a + b, 4 elements": 1.2, "empty(1024)": 1.2, "view": 1.1}


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"expected a regular expression, got {text!r}: {error}") from None
    return text


def _device(text: str) -> str:
    if not re.fullmatch(r"npu(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"expected npu or npu:N, got {text}")
    return text


def add(commands) -> None:
    parser = commands.add_parser(
        "bench", help="host cost per op, and large ops against the CPU", epilog=f"Every kind has --help. {STATUSES}"
    )
    kinds = parser.add_subparsers(dest="kind", metavar="kind", required=True)

    def add_kind(name: str, function: Callable, text: str, example: str = ""):
        kind = add_command(kinds, name, function, help=text, example=example or f"bench {name} --quick")
        kind.add_argument("--device", type=_device, default="npu:0", help="npu:N (npu:0)")
        kind.add_argument("--quick", action="store_true", help="fewer repetitions; of models, small ones")
        kind.add_argument("--check", action="store_true", help="exit status 1 if a target is missed")
        kind.add_argument("--quiet", action="store_true", help="no progress bar")
        return kind

    add_kind("dispatch", dispatch, "host cost of small ops, 1 thread, ratio to the CPU")
    add_kind("basic", basic, "large ops, speed relative to the CPU")
    ops = add_kind("ops", _ops, "every op family, speed relative to the CPU", "bench ops --op '^mm$' --plot mm.svg")
    ops.add_argument("--op", default="", type=_pattern, metavar="REGEX", help="only ops or families that this finds")
    ops.add_argument("--dtype", default="float32", metavar="TYPES", help="float32, bfloat16 or both, with a comma")
    ops.add_argument("--sizes", default="small,medium,large", help="some of small,medium,large")
    ops.add_argument("--plot", metavar="FILE", help="a picture of the ratios: .svg, .html, or .png with matplotlib")
    training = add_kind("training", _training, "a training step of ResNet-18 and of a transformer")
    training.add_argument("--model", default="", type=_pattern, metavar="REGEX", help="only models that this finds")
    training.add_argument("--rounds", type=int, help="of measurements (7; 3 with --quick)")
    models = add_kind("models", _models, "Qwen2: prefill, decode and LoRA step, with peak memory")
    models.add_argument("--size", choices=("all", "tiny", "0.5b"), default="all")
    models.add_argument(
        "--phase", default="", type=_pattern, metavar="REGEX", help="only what this finds: prefill, decode, LoRA"
    )
    models.add_argument("--dtype", default="float32,bfloat16", metavar="TYPES", help="float32, bfloat16 or both")
    models.add_argument("--rounds", type=int, help="of measurements (5; 3 with --quick)")
    compiled = add_kind("compile", _compiled, "torch.compile: against Inductor on the CPU, and against eager mode")
    compiled.add_argument(
        "--model", default="", type=_pattern, metavar="REGEX", help="only models that this finds; graph: the replay"
    )
    compiled.add_argument(
        "--phase", default="", type=_pattern, metavar="REGEX", help="only what this finds: forward, training"
    )
    compiled.add_argument("--rounds", type=int, help="of measurements (7; 3 with --quick)")
    for kind in (ops, training, models, compiled):
        kind.add_argument("--threads", type=int, help="of both sides; else as many as PyTorch uses")
        kind.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: for one thread, busy machines")


def _same_threads(options) -> None:
    """PyTorch's threads and the C model's, which asks the environment when it is loaded, at the first use."""
    import torch

    options.threads = options.threads or torch.get_num_threads()
    torch.set_num_threads(options.threads)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)


def _ops(options) -> Outcome:
    _same_threads(options)
    from torch_npu.bench import ops

    return ops.run(options)


def _training(options) -> Outcome:
    _same_threads(options)
    from torch_npu.bench import training

    return training.run(options)


def _models(options) -> Outcome:
    _same_threads(options)
    from torch_npu.bench import models

    return models.run(options)


def _compiled(options) -> Outcome:
    _same_threads(options)
    from torch_npu.bench import compiled

    return compiled.run(options)


def _block(function: Callable, count: int) -> float:
    """Seconds per call over one block of calls."""
    calls = range(count)
    start = time.perf_counter()
    for _ in calls:
        function()
    return (time.perf_counter() - start) / count


def _compare(on_cpu: Callable, on_npu: Callable, settle: Callable, seconds: float, blocks: int) -> tuple[float, float]:
    """Median seconds per call of the two, blocks alternating; `settle` drains the device outside the clock."""
    counts = []
    for function in (on_cpu, on_npu):
        _block(function, 3)
        settle()
        once = max(_block(function, 5), 1e-8)
        counts.append(max(1, min(100_000, int(seconds / once))))
    times = ([], [])
    for _ in range(blocks):
        for which, function in enumerate((on_cpu, on_npu)):
            times[which].append(_block(function, counts[which]))
            settle()
    return statistics.median(times[0]), statistics.median(times[1])


def small_ops(torch, device: str) -> dict[str, Callable]:
    a, b = torch.rand(4).to(device), torch.rand(4).to(device)
    m, n = torch.rand(8, 8).to(device), torch.rand(8, 8).to(device)
    one = torch.ones(()).to(device)
    target = torch.device(device)
    return {
        "a + b, 4 elements": lambda: a + b,
        "empty(1024)": lambda: torch.empty(1024, device=target),
        "view": lambda: m.view(64),
        "relu, 4 elements": lambda: torch.relu(a),
        "mul by a number": lambda: a * 2.0,
        "mm, 8 x 8": lambda: torch.mm(m, n),
        "item": lambda: one.item(),
    }


def dispatch(options) -> Outcome:
    import torch

    torch.set_num_threads(1)
    rows = []
    cpu, npu = small_ops(torch, "cpu"), small_ops(torch, options.device)
    with torch.no_grad(), Progress(len(cpu), options.quiet) as progress:
        for name in cpu:
            progress.step(name)
            settle = torch.npu.synchronize
            c, n = _compare(cpu[name], npu[name], settle, 0.005 if options.quick else 0.02, 9 if options.quick else 31)
            rows.append({"op": name, "cpu_us": c * 1e6, "npu_us": n * 1e6, "ratio": n / c, "limit": LIMITS.get(name)})
    return _show(rows, options, better="smaller", unit="us")


def large_ops(torch, device: str) -> dict[str, Callable]:
    torch.manual_seed(0)
    a, b = torch.rand(1024, 1024).to(device), torch.rand(1024, 1024).to(device)
    x, y = torch.rand(10_000_000).to(device), torch.rand(10_000_000).to(device)
    wait = torch.npu.synchronize if device != "cpu" else (lambda: None)

    def timed(function: Callable) -> Callable:
        def call():
            function()
            wait()

        return call

    return {
        "mm, 1024 float32": timed(lambda: torch.mm(a, b)),
        "add, 10 M float32": timed(lambda: x + y),
        "relu, 10 M float32": timed(lambda: torch.relu(x)),
        "sum, 10 M float32": timed(lambda: x.sum()),
        "clone, 10 M float32": timed(lambda: x.clone()),
        "transposed copy, 1024": timed(lambda: a.t().contiguous()),
    }


def basic(options) -> Outcome:
    import torch

    limits = {"mm, 1024 float32": 0.9, "add, 10 M float32": 0.9}
    rows = []
    cpu, npu = large_ops(torch, "cpu"), large_ops(torch, options.device)
    with torch.no_grad(), Progress(len(cpu) + 2, options.quiet) as progress:
        for name in cpu:
            progress.step(name)
            settle = torch.npu.synchronize
            c, n = _compare(cpu[name], npu[name], settle, 0.05 if options.quick else 0.2, 5 if options.quick else 11)
            rows.append({"op": name, "cpu_us": c * 1e6, "npu_us": n * 1e6, "ratio": c / n, "limit": limits.get(name)})
        host = torch.rand(10_000_000)
        on_device = torch.empty(10_000_000, device=options.device)
        pairs = {
            "copy to device, 40 MB": lambda: (on_device.copy_(host), torch.npu.synchronize()),
            "copy to host, 40 MB": lambda: host.copy_(on_device),
        }
        other = host.clone()
        for name, function in pairs.items():
            progress.step(name)
            c, n = _compare(lambda: other.copy_(host), function, torch.npu.synchronize, 0.05, 5)
            rows.append({"op": name, "cpu_us": c * 1e6, "npu_us": n * 1e6, "ratio": c / n, "limit": None})
    return _show(rows, options, better="larger", unit="ms")


def _show(rows: list[dict], options, better: str, unit: str) -> Outcome:
    scale = 1.0 if unit == "us" else 1e-3
    missed = False
    lines = []
    for row in rows:
        if row["limit"] is not None:
            row["met"] = row["ratio"] <= row["limit"] if better == "smaller" else row["ratio"] >= row["limit"]
            missed |= not row["met"]
        verdict = "" if row["limit"] is None else f"{row['limit']:.1f} {'met' if row['met'] else 'MISSED'}"
        lines.append(
            (row["op"], f"{row['cpu_us'] * scale:.2f}", f"{row['npu_us'] * scale:.2f}", f"{row['ratio']:.2f}x")
        )
        lines[-1] += (verdict,)
    title = f"npu / cpu ({better} is better)" if better == "smaller" else f"cpu / npu ({better} is better)"
    text = table(("op", f"cpu {unit}", f"npu {unit}", title, "target"), lines)
    return Outcome({"rows": rows}, text, int(missed and options.check))
