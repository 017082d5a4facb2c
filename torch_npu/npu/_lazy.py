"""Lazy initialisation: importing costs nothing, the first use loads drivers; and what a fork means for it."""

import threading
from collections.abc import Callable

from torch_npu import _C

_initialized = False
_lock = threading.RLock()
_local = threading.local()
_queued: list[tuple[str, Callable[[], object]]] = []


def is_initialized() -> bool:
    """Whether the device was used in this process."""
    return _initialized and not _is_in_bad_fork()


def _is_in_bad_fork() -> bool:
    """True in the child of a process that had used the device before it forked."""
    return _C.is_in_bad_fork()


def _check_available() -> None:
    if _is_in_bad_fork():
        raise RuntimeError(
            "Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing, you must use the "
            "'spawn' start method"
        )
    _C.require_devices()


def _lazy_init() -> None:
    """torch calls this before the first use of the device, from any thread."""
    global _initialized
    if is_initialized() or getattr(_local, "initializing", False):
        return
    with _lock:
        if is_initialized():
            return
        _check_available()
        _C.register_fork_handler()
        _local.initializing = True  # the queued calls use the device themselves
        try:
            while _queued:
                _queued.pop(0)[1]()
            _initialized = True
        finally:
            _local.initializing = False


def init() -> None:
    """Initialises the device now instead of at its first use."""
    _lazy_init()


def _lazy_call(call: Callable[[], object], kind: str = "") -> None:
    """Runs `call` now if the device is in use, else at its first use. A later call of the same kind replaces it."""
    with _lock:
        if not is_initialized():
            if kind:
                _queued[:] = [entry for entry in _queued if entry[0] != kind]
            _queued.append((kind, call))
            return
    call()
