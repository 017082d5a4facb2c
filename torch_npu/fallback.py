"""Ops that ran on the CPU because the device has no kernel for them, or its driver refused the command.

    torch_npu.fallback.report()              {"aten::linalg_svd": 3}; empty when nothing fell back
    torch_npu.fallback.reset()
    with torch_npu.fallback.mode("error"):   a fallback inside raises and names the op
        model(x)
    with torch_npu.fallback.locked("torch_npu.lock"):    other ops than those of the file: raises (lock_file.py)
        model(x)

TORCH_NPU_FALLBACK sets the mode at the start: warn (once per op, the default), quiet (only count), error.
A call that raises because of its arguments is no fallback: it is neither counted nor warned of.
"""

from contextlib import contextmanager
from pathlib import Path

from torch_npu import _C, lock_file
from torch_npu.lock_file import FallbackChanged as FallbackChanged


def report() -> dict[str, int]:
    """Op name to the number of times it ran on the CPU, or was kept from it (mode "error"); most frequent first."""
    return dict(sorted(_C.fallback_counts().items(), key=lambda entry: (-entry[1], entry[0])))


def reset() -> None:
    """Clears the counts, and lets every op warn again."""
    _C.fallback_reset()


def get_mode() -> str:
    """ "warn", "quiet" or "error": what happens when an op runs on the CPU."""
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


@contextmanager
def locked(path: str | Path = "torch_npu.lock", update: bool = False):
    """The ops that run on the CPU inside must be those of the file; else FallbackChanged. `update`: writes the file."""
    path, before = Path(path), report()
    if not update and not path.exists():
        raise FileNotFoundError(
            f"expected a lock file, got {path}: write it with update=True or python -m torch_npu lock"
        )
    with mode("quiet"):
        yield
    ops = [op for op, count in report().items() if count > before.get(op, 0)]
    if update:
        lock_file.write(path, ops)
        return
    new, gone = lock_file.compare(path, ops)
    if new or gone:
        raise FallbackChanged(path, new, gone)
