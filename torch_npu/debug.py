"""The debug log: a line per op that says where it ran.

    torch_npu.debug.enable(2)                1: ops, 2: and transfers, 3: and every call of the driver
    torch_npu.debug.disable()
    with torch_npu.debug.debug_mode(1):
        model(x)

    [NPU] mm [128x768] @ [768x3072]          ran on the device
    [CPU<->NPU] rsqrt [98304]                has no kernel for this call: computed on the CPU
        -> [D->H] 384.00 KB
        -> [H->D] 384.00 KB
    [VIEW] reshape                           no data moved
    [COPY] to [28x28] cpu -> npu:0           moved data and did nothing else
    [CPU] randn                              of CPU tensors only

TORCH_NPU_DEBUG=1..3 enables it from the start, TORCH_NPU_DEBUG_FORMAT=json makes each line a JSON object, and
TORCH_NPU_DEBUG_FILE names a file. Commands of compiled code and of graphs have their own names.
"""

import os
from contextlib import contextmanager
from typing import Any

from torch_npu import _C

# As they are now, for debug_mode to come back to.
_options: dict[str, Any] = {
    "format": os.environ.get("TORCH_NPU_DEBUG_FORMAT") or "text",
    "file": os.environ.get("TORCH_NPU_DEBUG_FILE") or None,
    "color": None,
}


def enable(
    level: int = 1, *, format: str = "text", file: str | os.PathLike | None = None, color: bool | None = None
) -> None:
    """Logs for the whole process, on all threads, until disable(). `format`: "text", or "json" for one object per line.
    `file` is appended to; without it the log goes to stderr. `color`: None for terminals without NO_COLOR only."""
    if format not in ("text", "json"):
        raise ValueError(f'expected format to be "text" or "json", got {format!r}')
    _C.debug_enable(level, format == "json", "" if file is None else os.fspath(file), color)
    _options.update(format=format, file=file, color=color)


def disable() -> None:
    """Ends the log."""
    _C.debug_disable()


def level() -> int:
    """0 where the log is off."""
    return _C.debug_level()


@contextmanager
def debug_mode(level: int = 1, **options):
    """enable() for the time of a with block; then the log is as it was before."""
    before, before_options = _C.debug_level(), dict(_options)
    enable(level, **options)
    try:
        yield
    finally:
        if before:
            enable(before, **before_options)
        else:
            disable()
