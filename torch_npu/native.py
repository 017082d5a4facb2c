"""Commands that the device was given, counted per op while counting is on.

    with torch_npu.native.counting() as counts:
        model(x)
    counts                                   {"aten::mm": 12, "aten::add.Tensor": 9}

report() has the same at any time. Counting is off by default, because it takes a lock per command. An op that asks for
several commands counts once per command.
"""

from contextlib import contextmanager

from torch_npu import _C


def enable() -> None:
    """Counts, from now on, the ops that give commands to a driver."""
    _C.native_counting(True)


def disable() -> None:
    """Stops counting; the counts stay."""
    _C.native_counting(False)


def reset() -> None:
    """Clears the counts."""
    _C.native_reset()


def report() -> dict[str, int]:
    """Op to the number of commands, most frequent first."""
    return dict(sorted(_C.native_counts().items(), key=lambda entry: (-entry[1], entry[0])))


@contextmanager
def counting():
    """Starts from zero, counts inside the with block, and fills the dict that it yields when the block ends."""
    reset()
    enable()
    counts: dict[str, int] = {}
    try:
        yield counts
    finally:
        disable()
        counts.update(report())
