"""The sanitizer: wrong uses of device memory, named with both ops and their lines.

    TORCH_NPU_SANITIZE=memory,init,race python train.py      or all

    torch_npu.sanitizer.enable()                   for the rest of the process
    torch_npu.sanitizer.disable()
    with torch_npu.sanitizer.sanitize("race", on_report="log") as found:
        step()
    found                                          [Report(kind="race", ...)]

memory: accesses outside of a tensor, or of one that was freed. init: reads of bytes that nothing has written. race: two
streams that use the same bytes, one of them writing, without an event or a wait between them.

A report raises RuntimeError at the op that is at fault, which is not run then; with on_report="log"
(TORCH_NPU_SANITIZE_REPORT=log) it is printed to stderr and the program goes on. A process that has reports ends with
status 66 where it would have ended with 0. docs/seeing-inside.md says what the sanitizer cannot see.
"""

import dataclasses
from contextlib import contextmanager

from torch_npu import _C

CHECKS = ("memory", "init", "race")


@dataclasses.dataclass(frozen=True)
class Report:
    kind: str  # "memory", "init" or "race"
    title: str
    op: str  # the one at fault
    place: str  # its Python line: "train.py:12 (step)"
    other_op: str  # who allocated, freed or raced
    other_place: str
    count: int  # how often the same was found
    text: str  # all of it

    def __str__(self) -> str:
        return self.text


def enable(*checks: str, on_report: str = "raise") -> None:
    """Some of "memory", "init" and "race"; all of them if none is named. Tensors that are there already count as
    written, and work that was given already as done."""
    if on_report not in ("raise", "log"):
        raise ValueError(f'expected on_report to be "raise" or "log", got {on_report!r}')
    _C.sanitizer_enable(",".join(checks) or "all", on_report == "raise")


def disable() -> None:
    """Forgets what it knows of memory and streams; the reports stay."""
    _C.sanitizer_disable()


def enabled() -> tuple[str, ...]:
    """The checks that are on."""
    bits = _C.sanitizer_checks()
    return tuple(check for k, check in enumerate(CHECKS) if bits >> k & 1)


def reports() -> list[Report]:
    """All of this process, oldest first."""
    return [Report(**report) for report in _C.sanitizer_reports()]


def clear() -> None:
    """Forgets the reports, so that the process can end with status 0."""
    _C.sanitizer_clear()


@contextmanager
def sanitize(*checks: str, on_report: str = "raise"):
    """enable() for the time of a with block; then the sanitizer is as it was before. Yields a list that has the block's
    reports when the block ends."""
    before, raised = enabled(), _C.sanitizer_raises()
    known = {(report.title, report.place, report.other_place): report.count for report in reports()}
    found: list[Report] = []
    enable(*checks, on_report=on_report)
    try:
        yield found
    finally:
        for report in reports():
            if report.count > known.get((report.title, report.place, report.other_place), 0):
                found.append(report)
        if before:
            enable(*before, on_report="raise" if raised else "log")
        else:
            disable()
