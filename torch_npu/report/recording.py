"""One run under the profiler and the memory history, as plain lists: ops, commands, fallbacks, allocations."""

from __future__ import annotations

import functools
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

import torch_npu
from torch_npu import fallback
from torch_npu.report import inner_profiler

RANGE = "fallback "  # csrc/core/observe/debug.h names the ranges of fallbacks so


@dataclass(slots=True)
class Op:
    """An op or a range on a thread of the host. Times are microseconds since the beginning of the run."""

    number: int
    name: str
    start: float
    end: float
    thread: int
    sequence: int = -1
    forward_thread: int = 0
    is_range: bool = False
    parent: Op | None = None
    line: tuple[str, int, str] | None = None  # file, line, function
    flops: int = 0


@dataclass(slots=True)
class Command:
    """A command or a copy on a stream of the device, and the driver's call on the host that gave it."""

    op: str
    kind: str  # MATMUL, ..., or HtoD, DtoH, DtoD
    start: float
    end: float
    device: int
    stream: int
    bytes: int
    flops: int
    shape: str
    cycles: int
    is_copy: bool
    owner: Op | None
    thread: int = 0
    call_start: float = 0.0
    call_end: float = 0.0
    fallback: Op | None = None


@dataclass
class Recording:
    device: torch.device
    begin: float = 0.0  # of what is measured, microseconds
    end: float = 0.0
    ops: list[Op] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    fallbacks: list[Op] = field(default_factory=list)  # the outermost ranges
    history: list[dict] = field(default_factory=list)  # memory events with `time`, in order
    allocated: int = 0  # bytes at the beginning
    reserved: int = 0
    fallback_counts: dict[str, int] = field(default_factory=dict)
    simulated: bool = False
    notes: list[str] = field(default_factory=list)  # what the reader of the report has to know about the run

    @property
    def wall(self) -> float:
        return self.end - self.begin

    def keep_device_work(self) -> int:
        """Forgets what came before the first and after the last work of the device: imports and loading, mostly."""
        touched = [(c.call_start or c.start, max(c.end, c.call_end)) for c in self.commands]
        touched += [(op.start, op.end) for op in self.fallbacks]
        if touched:
            self._cut(min(start for start, _ in touched), max(end for _, end in touched))
        return 1

    def keep_range(self, name: str) -> int:
        """Keeps what lies between the first beginning and the last end of a range; returns how often it was there."""
        ranges = [(op.start, op.end) for op in self.ops if op.is_range and op.name == name]
        if not ranges:
            known = sorted({op.name for op in self.ops if op.is_range and not is_fallback(op)})
            raise ValueError(f"expected a range of the script ({', '.join(known[:8]) or 'it has none'}), got {name!r}")
        self._cut(min(start for start, _ in ranges), max(end for _, end in ranges))
        return len(ranges)

    def _cut(self, begin: float, end: float) -> None:
        for event in self.history:  # what was there at the new beginning
            if event["time"] >= begin:
                break
            size = event["size"]
            self.allocated += size * ((event["action"] == "alloc") - (event["action"] == "free_requested"))
            self.reserved += size * (event["action"] in ("segment_alloc", "segment_map"))
            self.reserved -= size * (event["action"] in ("segment_free", "segment_unmap"))
        self.history = [{**e, "time": e["time"] - begin} for e in self.history if begin <= e["time"] <= end]
        self.ops = [op for op in self.ops if op.end >= begin and op.start <= end]
        self.commands = [c for c in self.commands if c.end >= begin and c.start <= end]
        self.fallbacks = [op for op in self.fallbacks if op.start >= begin and op.end <= end]
        kept = set(map(id, self.fallbacks))
        for item in (*self.ops, *self.commands):
            item.start, item.end = item.start - begin, item.end - begin
        for command in self.commands:
            command.call_start, command.call_end = command.call_start - begin, command.call_end - begin
            if command.fallback is not None and id(command.fallback) not in kept:
                command.fallback = None
        self.begin, self.end = 0.0, end - begin


def is_simulated(device: torch.device) -> bool:
    """Whether the device's clock stands still while nothing runs: lengths are then those of a chip that is computed."""
    start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    with torch.npu.device(device):
        start.record()
        start.synchronize()
        time.sleep(0.02)
        end.record()
        end.synchronize()
    return start.elapsed_time(end) < 10


@contextmanager
def record(device: str | torch.device = "npu") -> Iterator[Recording]:
    """Fills the Recording that it yields when the with block ends."""
    from torch.profiler import ProfilerActivity, profile

    if "PrivateUse1" not in ProfilerActivity.__members__ or tuple(map(int, torch.__version__.split(".")[:2])) < (2, 12):
        raise RuntimeError(f"expected torch 2.12 or later, whose profiler shows devices, got {torch.__version__}")
    if torch.autograd._profiler_enabled():
        raise RuntimeError(
            "expected no torch.profiler to be on, got one: the report needs PyTorch's only one; end it first"
        )
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its start and stop are no news
    device = torch.device(device)
    index = device.index if device.index is not None else torch.npu.current_device()
    recording = Recording(torch.device("npu", index), simulated=is_simulated(torch.device("npu", index)))
    before = fallback.report()
    recording.allocated, recording.reserved = torch.npu.memory_allocated(index), torch.npu.memory_reserved(index)
    session = profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], record_shapes=True, with_flops=True
    )
    with _memory_history(recording.notes) as traces:
        with fallback.mode("quiet" if fallback.get_mode() == "warn" else fallback.get_mode()):
            session.start()
            begin = time.time_ns()
            try:
                with inner_profiler.kept_off(recording.notes):
                    yield recording
                torch.npu.synchronize(index)
            finally:
                end = time.time_ns()
                session.stop()
        now = fallback.report()
        recording.fallback_counts = {op: n - before.get(op, 0) for op, n in now.items() if n > before.get(op, 0)}
    trace = [e for e in traces[index] if e["time_us"] >= begin // 1000] if index < len(traces) else []
    read(recording, session, trace, begin, end)


@contextmanager
def _memory_history(notes: list[str]) -> Iterator[list[list[dict]]]:
    """Fills the list that it yields with the events of each device. A history that was on stays on, with its events."""
    memory = torch.npu.memory
    earlier, traces = memory._history_options, []
    memory._record_memory_history(context="alloc", clear_history=earlier is None)
    own = memory._history_options
    try:
        yield traces
        traces += torch_npu._C.memory_traces()
        if memory._history_options is not own:
            notes.append(
                "The program called torch.npu.memory._record_memory_history itself: memory over time and lines of the "
                "program are missing where it stopped the history or kept less of it."
            )
    finally:
        if memory._history_options is own:
            memory._record_memory_history(**(earlier or {"enabled": None}))


def read(recording: Recording, session, trace: list[dict], begin: int, end: int) -> None:
    """Takes what the profiler has written apart."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        session.export_chrome_trace(str(path))
        written = json.loads(path.read_text())
    base = written.get("baseTimeNanoseconds", 0)

    def since(ts: float) -> float:  # begin as zero
        return ts + (base - begin) / 1e3

    recording.begin, recording.end = 0.0, (end - begin) / 1e3
    flops = {e.correlation_id(): e.flops() for e in session.profiler.kineto_results.events() if e.flops()}
    by_number: dict[int, Op] = {}
    calls: dict[int, dict] = {}
    work = []
    for event in written["traceEvents"]:
        category = event.get("cat")
        if event.get("ph") != "X":
            continue
        arguments = event.get("args", {})
        if category in ("cpu_op", "user_annotation"):
            start = since(event["ts"])
            op = Op(arguments.get("External id", 0), event["name"], start, start + event["dur"], event["tid"])
            op.is_range = category == "user_annotation"
            op.sequence = arguments.get("Sequence number", -1)
            op.forward_thread = arguments.get("Fwd thread id", 0)
            op.flops = flops.get(op.number, 0)
            by_number[op.number] = op
            recording.ops.append(op)
        elif category == "privateuse1_runtime":
            calls[arguments["correlation"]] = event
        elif category in ("kernel", "gpu_memcpy"):
            work.append(event)
    _nest(recording.ops)
    recording.fallbacks = [op for op in recording.ops if is_fallback(op) and not _within(op.parent)]
    for event in sorted(work, key=lambda e: e["ts"]):
        arguments, start = event["args"], since(event["ts"])
        name, _, kind = event["name"].rpartition(" ")
        command = Command(
            op=name,
            kind=kind,
            start=start,
            end=start + event["dur"],
            device=arguments["device"],
            stream=arguments["stream"],
            bytes=arguments.get("bytes", 0),
            flops=arguments.get("flops", 0),
            shape=arguments.get("shape", ""),
            cycles=arguments.get("cycles", 0),
            is_copy=event["cat"] == "gpu_memcpy",
            owner=by_number.get(arguments.get("External id", -1)),
        )
        call = calls.get(arguments["correlation"])
        if call is not None:
            command.thread, command.call_start = call["tid"], since(call["ts"])
            command.call_end = command.call_start + call["dur"]
        command.fallback = _within(command.owner)
        recording.commands.append(command)
    _find_fallbacks(recording)
    recording.history = [{**e, "time": e["time_us"] - begin / 1e3} for e in trace]
    _find_lines(recording)


def is_fallback(op: Op) -> bool:
    return op.is_range and op.name.startswith(RANGE)


def _within(op: Op | None) -> Op | None:
    """The outermost fallback around an op, or itself."""
    found: Op | None = None
    while op is not None:
        if is_fallback(op):
            found = op
        op = op.parent
    return found


def _nest(ops: list[Op]) -> None:
    """Finds the op around each op."""
    ops.sort(key=lambda op: (op.start, -op.end))
    stacks: dict[int, list[Op]] = defaultdict(list)
    for op in ops:
        stack = stacks[op.thread]
        while stack and stack[-1].end < op.end - 0.002:  # the file has three decimals
            stack.pop()
        op.parent = stack[-1] if stack else None
        stack.append(op)


def _find_fallbacks(recording: Recording) -> None:
    """A command belongs to the op that asked, which may be around the fallback: then its host call tells."""
    ranges = defaultdict(list)
    for op in recording.fallbacks:
        ranges[op.thread].append(op)
    places = dict.fromkeys(ranges, 0)
    for command in sorted(recording.commands, key=lambda c: c.call_start):
        if command.fallback is not None or command.thread not in ranges:
            continue
        mine, place = ranges[command.thread], places[command.thread]
        while place < len(mine) and mine[place].end < command.call_start:
            place += 1
        places[command.thread] = place
        if place < len(mine) and mine[place].start <= command.call_start:
            command.fallback = mine[place]


@functools.cache
def _own_folders() -> tuple[str, str]:
    return tuple(str(Path(module.__file__).parent) + os.sep for module in (torch, torch_npu))


def user_line(frames: list[dict]) -> tuple[str, int, str] | None:
    """The innermost frame outside of torch and of this package, whose models of torch_npu/bench count as somebody's."""
    ours = _own_folders()
    models, generated = f"{ours[1]}bench{os.sep}", os.environ.get("TORCHINDUCTOR_CACHE_DIR") or "<"
    for frame in frames:
        name = frame["filename"]
        if not name or name.startswith("<") or name.endswith(("runpy.py", "contextlib.py")):
            continue
        if "torchinductor" in name or name.startswith(generated):
            continue
        if not name.startswith(ours) or name.startswith(models):
            return name, frame["line"], frame["name"]
    return None


def _find_lines(recording: Recording) -> None:
    """Who allocated tells where an op was called from; what the backward pass does belongs to the line of the forward.

    The history of memory has a Python traceback per allocation; one per op would cost more than most ops do.
    """
    allocations = [
        (e["time"], user_line(e["frames"])) for e in recording.history if e["action"] == "alloc" and e.get("frames")
    ]
    ops, place, live = recording.ops, 0, []
    for when, line in allocations:
        if line is None:
            continue
        when += 0.5  # full microseconds, rounded down
        while place < len(ops) and ops[place].start <= when:
            live.append(ops[place])
            place += 1
        live = [op for op in live if op.end >= when]
        for op in live:
            if op.line is None and op.forward_thread == 0:
                op.line = line
    _lines_nearby(ops)
    forward = {}
    for op in ops:
        if op.sequence >= 0 and op.forward_thread == 0 and op.line:
            forward[op.sequence] = op.line
    for op in ops:
        if op.line is None and op.forward_thread and op.sequence in forward:
            file, number, function = forward[op.sequence]
            op.line = file, number, f"{function}, backward"


def _lines_nearby(ops: list[Op]) -> None:
    """What allocates nothing (item, in-place ops) has the line of the op before it, marked as such."""
    last: dict[int, tuple[str, int, str]] = {}
    for op in ops:
        if op.is_range or op.forward_thread:
            continue
        if op.line is not None:
            last[op.thread] = op.line
        elif op.parent is None and op.thread in last:
            file, number, function = last[op.thread]
            op.line = file, number, f"{function}, near"


def line_of(op: Op | None) -> tuple[str, int, str] | None:
    """Of the op or of the nearest one around it that has one."""
    while op is not None:
        if op.line is not None and not (op.is_range and not is_fallback(op)):
            return op.line
        op = op.parent
    return None
