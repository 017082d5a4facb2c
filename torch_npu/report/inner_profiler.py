"""A profiler that the measured program starts itself: PyTorch has one session per process, and this one is taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from torch_npu import torch_seams

NOTE = "The program's own profiler was kept off, and its results are empty, because the report has PyTorch's only one."


class _Nothing:
    """What a session without events returns."""

    def events(self) -> list:
        return []

    experimental_event_tree = events

    def trace_start_ns(self) -> int:
        return 0

    def save(self, path: str) -> None:
        Path(path).write_text('{"traceEvents": []}')


SEAMS = [
    torch_seams.hold(
        "torch.autograd.profiler",
        name,
        why="ending or reading a second session, while the report has PyTorch's only one, ends that or crashes",
        until="sessions can be nested",
    )
    for name in (
        "_prepare_profiler",
        "_enable_profiler",
        "_disable_profiler",
        "_toggle_collection_dynamic",
        "_run_on_profiler_start",
        "_run_on_profiler_stop",
    )
]


@contextmanager
def kept_off(notes: list[str]) -> Iterator[None]:
    """Inside, starting and ending a session does nothing but add a note: ending one would end the session that is on,
    and reading that one's results afterwards would crash."""

    def started(*_, **__) -> None:
        if NOTE not in notes:
            notes.append(NOTE)

    def nothing(*_, **__) -> None:
        pass

    instead = {"_enable_profiler": started, "_disable_profiler": _Nothing}
    with ExitStack() as stack:
        for seam in SEAMS:
            stack.enter_context(seam.held(instead.get(seam.name, nothing)))
        yield
