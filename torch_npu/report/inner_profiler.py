"""A profiler that the measured program starts itself: PyTorch has one session per process, and this one is taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.autograd.profiler as profiler

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


@contextmanager
def kept_off(notes: list[str]) -> Iterator[None]:
    """Inside, starting and ending a session does nothing but add a note: ending one would end the session that is on,
    and reading that one's results afterwards would crash."""

    def started(*_, **__) -> None:
        if NOTE not in notes:
            notes.append(NOTE)

    def nothing(*_, **__) -> None:
        pass

    instead = {
        "_prepare_profiler": nothing,
        "_enable_profiler": started,
        "_disable_profiler": lambda: _Nothing(),
        "_toggle_collection_dynamic": nothing,
        "_run_on_profiler_start": nothing,
        "_run_on_profiler_stop": nothing,
    }
    before = {name: getattr(profiler, name) for name in instead if hasattr(profiler, name)}
    for name in before:
        setattr(profiler, name, instead[name])
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(profiler, name, function)
