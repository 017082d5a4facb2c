"""Commands that the device was given, counted per op while counting is on.

    with torch_npu.native.counting():
        model(x)
    torch_npu.native_report()                {"aten::mm": 12, "aten::add.Tensor": 9}

Counting is off by default, because it takes a lock per command. An op that asks for several commands counts once per
command.
"""

from contextlib import contextmanager

from torch_npu import _C


def enable() -> None:
    _C.native_counting(True)


def disable() -> None:
    """Stops counting; the counts stay."""
    _C.native_counting(False)


def reset() -> None:
    _C.native_reset()


def report() -> dict[str, int]:
    """Op to the number of commands, most frequent first."""
    return dict(sorted(_C.native_counts().items(), key=lambda entry: (-entry[1], entry[0])))


@contextmanager
def counting():
    """Starts from zero, counts inside the with block."""
    reset()
    enable()
    try:
        yield
    finally:
        disable()
