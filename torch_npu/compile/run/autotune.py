"""mode="max-autotune": of the ways to run a command that the driver announces, the fastest, measured once.

A kernel that is to be tuned calls `tune` before its first call, with the arguments of that call: so indices are valid,
strides are those in use, and sizes that are not fixed are those that the graph was compiled for. Results are remembered
in a file per driver in Inductor's cache folder."""

import contextlib
import functools
import hashlib
import json
import logging
import os
import pathlib
import re
import sys
import tempfile
import time

import torch
from torch._inductor import config
from torch._inductor.runtime.cache_dir_utils import cache_dir

from torch_npu import _C

log = logging.getLogger(__name__)

GAIN = 0.97  # a choice has to be so much faster than the driver's own, or it may be noise
BATCH_MS, MAX_RUNS = 0.5, 64  # of one measurement
# Measurements of every choice left; how much slower than the best of them a choice may be to stay, and how many stay.
ROUNDS = ((1, 1.25, 8), (3, 1.08, 4), (6, 1.0, 1))
BUDGET_S = 10.0  # of one command; then the best so far is taken


def wanted(kind: str) -> bool:
    """Whether Inductor's settings ask for kernels of this kind to be tuned."""
    return config.max_autotune or (
        config.max_autotune_gemm if kind in ("matmul", "conv") else config.max_autotune_pointwise
    )


def tune(kernel, *args) -> bool:
    """Settles the kernel's choice. False: not now, ask again."""
    if torch.npu.is_current_stream_capturing():
        return False  # nothing can be measured, and nothing waited for
    progress.done += 1
    choices = dict(kernel.choices(*args))
    if not choices:
        return True
    memory = _memory(_device_of(args), cache_dir())
    signature = kernel.signature(*args)
    known = memory.best.get(signature)
    numbers = {"": 0} | {text: number for number, text in choices.items()}
    if known is not None and known["choice"] in numbers:
        kernel.choice = numbers[known["choice"]]
        return True
    with progress.shown(kernel.name):
        try:
            times = measure(kernel, args, choices)
        except torch.OutOfMemoryError as error:
            log.warning("%s is not tuned: no memory for a second copy of its results (%s)", kernel.name, error)
            return True
    best = min(times, key=times.get, default=0)
    if times and times[best] > GAIN * times[0]:
        best = 0
    kernel.choice = best
    if not times:  # what the command does wrong, its call will say
        return True
    text = choices.get(best, "")
    log.info(
        "%s: %s, %.1f us; the driver's own decision %.1f us; %d choices",
        *(kernel.name, text or "the driver's own decision", times[best] * 1e3, times[0] * 1e3, len(choices)),
    )
    memory.keep(signature, {"choice": text, "us": round(times[best] * 1e3, 2), "own_us": round(times[0] * 1e3, 2)})
    return True


def measure(kernel, args, choices: dict[int, str]) -> dict[int, float]:
    """Milliseconds of each choice, and of 0, that was not given up on the way. Nothing is written to `args`."""
    args, restore = _apart(kernel, args)
    left: dict[int, float] = {0: float("inf")} | dict.fromkeys(choices, float("inf"))
    runs: dict[int, int] = {}

    def time_once(number: int, count: int) -> float:
        restore()
        kernel.choice = number
        return elapsed_ms(lambda: kernel(*args), count)

    began = time.monotonic()
    try:
        for measurements, near, most in ROUNDS:
            for _ in range(measurements):
                for number in list(left):
                    if time.monotonic() - began > BUDGET_S and left[number] < float("inf"):
                        continue
                    try:
                        if number not in runs:
                            runs[number] = runs_of(time_once(number, 1))
                        left[number] = min(left[number], time_once(number, runs[number]))
                    except (RuntimeError, IndexError) as error:
                        if number == 0:
                            return {}
                        log.warning("%s: choice %s of the driver fails: %s", kernel.name, choices[number], error)
                        del left[number]
            order = sorted(left, key=left.get)
            near_best = [n for n in order[:most] if left[n] <= near * left[order[0]]]
            left = {n: left[n] for n in {0, *near_best}}
    finally:
        kernel.choice = 0
    return left


def _apart(kernel, args):
    """The arguments, with copies of what the command writes, and a function that gives these their first contents."""
    written = {args[k].untyped_storage()._cdata for k in kernel.written}
    pairs = {}
    out = list(args)
    for k, x in enumerate(args):
        if not isinstance(x, torch.Tensor) or x.untyped_storage()._cdata not in written:
            continue
        storage = x.untyped_storage()
        if storage._cdata not in pairs:
            flat = torch.empty(0, dtype=torch.uint8, device=x.device).set_(storage)
            pairs[storage._cdata] = (flat.clone(), flat)
        mine = pairs[storage._cdata][0].untyped_storage()
        out[k] = torch.empty(0, dtype=x.dtype, device=x.device).set_(mine, x.storage_offset(), x.size(), x.stride())

    def restore():  # what is computed in place would grow, or shrink to numbers that are slow to compute with
        for mine, given in pairs.values():
            mine.copy_(given)

    return out, restore


def _device_of(args) -> int:
    return next(x.device.index for x in args if isinstance(x, torch.Tensor) and x.device.type == "npu")


class Memory:
    """What was best for one driver: {signature: {"choice": text, ...}}. "": the driver's own decision."""

    def __init__(self, driver: dict, folder: str):
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", driver["driver"])
        digest = hashlib.sha256(json.dumps(driver, sort_keys=True).encode()).hexdigest()[:16]
        self.driver, self.writable = driver, not config.force_disable_caches
        self.path = pathlib.Path(folder) / "npu_autotune" / f"{name}-{digest}.json"
        self.complained = False
        self.best: dict[str, dict] = self._read() if self.writable else {}

    def keep(self, signature: str, result: dict) -> None:
        self.best[signature] = result
        if not self.writable:
            return
        self.best = self._read() | self.best  # another process may have written meanwhile
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self.path.parent, suffix=".part", delete=False) as file:
                json.dump({"driver": self.driver, "best": self.best}, file, indent=1)
            os.replace(file.name, self.path)
        except OSError as error:
            self.writable = False
            log.warning("what autotuning finds is not remembered beyond this process: %s", error)

    def _read(self) -> dict[str, dict]:
        try:
            best = json.loads(self.path.read_text())["best"]
            if not all(isinstance(r["choice"], str) for r in best.values()):
                raise ValueError("a result without a choice")
            return best
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if not self.complained:
                self.complained = True
                log.warning("remembered results of autotuning are ignored: expected %s as this package writes it, "
                            "got %s: %s", self.path, type(error).__name__, error)  # fmt: skip
            return {}


@functools.cache
def _memory(device: int, folder: str) -> Memory:
    facts = _C.properties(device)
    driver = next(d for d in _C.drivers() if f"npu:{device}" in d["devices"])
    known = {k: facts[k] for k in ("name", "vendor", "multi_processor_count", "clock_mhz", "major", "minor")}
    return Memory({"driver": driver["driver_name"], "version": driver["version"], **known}, folder)


class Progress:
    """How far tuning is, where it takes long: a line on stderr if that is a terminal, else in the log."""

    PATIENCE_S = 2.0

    def __init__(self):
        self.expected = self.done = 0  # kernels
        self.began = self.ended = 0.0

    @contextlib.contextmanager
    def shown(self, name: str):
        now = time.monotonic()
        if now - self.ended > self.PATIENCE_S:  # another graph's
            self.began = now
        terminal, late = sys.stderr.isatty(), now - self.began > self.PATIENCE_S
        if late:
            line = f"autotuning kernel {self.done} of {self.expected}, {now - self.began:.0f} s: {name}"
            if terminal:
                bar = "#" * (20 * self.done // self.expected)
                print(f"\r[{bar:20}] {line:.90}\x1b[K", end="", file=sys.stderr, flush=True)
            else:
                log.info(line)
        try:
            yield
        finally:
            self.ended = time.monotonic()
            if late and terminal and self.done >= self.expected:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)


progress = Progress()


def expect():
    """A kernel was made that will be tuned: returns what it calls first."""
    progress.expected += 1
    return tune


def register_benchmarker() -> None:
    """For Inductor's own measurements: milliseconds of a function's work on the device, the least of several."""
    from torch._inductor.runtime import benchmarking

    if hasattr(benchmarking, "register_benchmarker"):  # 2.13
        benchmarking.register_benchmarker("npu", lambda _, call, **options: time_ms(call), override=True)


def time_ms(call, measurements: int = 5) -> float:
    count = runs_of(elapsed_ms(call, 1))
    return min(elapsed_ms(call, count) for _ in range(measurements))


def elapsed_ms(call, count: int) -> float:
    """Of one call, over `count` of them."""
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    start.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / count


def runs_of(milliseconds: float) -> int:
    """How many calls that take so long make a measurement."""
    return max(1, min(MAX_RUNS, int(BATCH_MS / max(milliseconds, 1e-6))))
