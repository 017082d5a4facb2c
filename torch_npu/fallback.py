"""Ops that ran on the CPU because the device has no kernel for them, or its driver refused the command.

    torch_npu.fallback.report()              {"aten::linalg_svd": 3}; empty when nothing fell back
    torch_npu.fallback.reset()
    with torch_npu.fallback.mode("error"):   a fallback inside raises and names the op
        model(x)

TORCH_NPU_FALLBACK sets the mode at the start: warn (once per op, the default), quiet (only count), error.
A call that raises because of its arguments is no fallback: it is neither counted nor warned of.
"""

from contextlib import contextmanager

from torch_npu import _C


def report() -> dict[str, int]:
    """Op name to the number of times it ran on the CPU, or was kept from it (mode "error"); most frequent first."""
    return dict(sorted(_C.fallback_counts().items(), key=lambda entry: (-entry[1], entry[0])))


def reset() -> None:
    """Clears the counts, and lets every op warn again."""
    _C.fallback_reset()


def get_mode() -> str:
    return _C.fallback_mode()


def set_mode(mode: str) -> None:
    """ "warn", "quiet" or "error", for the whole process."""
    _C.fallback_set_mode(mode)


@contextmanager
def mode(mode: str):
    """set_mode for the time of a with block."""
    before = get_mode()
    set_mode(mode)
    try:
        yield
    finally:
        set_mode(before)
