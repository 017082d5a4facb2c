"""Device memory: what is in use, what is cached, limits. The keys and names are torch.cuda's."""

import collections
import contextlib
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

from torch_npu import _C
from torch_npu.npu._lazy import _is_in_bad_fork, _lazy_init
from torch_npu.npu._utils import Device, _get_device_index

__all__ = [
    "MemPool",
    "empty_cache",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]


def _index(device: Device) -> int:
    _lazy_init()
    return _get_device_index(device, optional=True)


def empty_cache() -> None:
    """Gives cached memory that no tensor uses back to the devices."""
    _C.empty_cache()


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """The allocator's counters. Asking is no use of the device: the process may fork after it."""
    if _is_in_bad_fork():
        return {}
    index = _C.current_device() if device is None else _get_device_index(device, optional=True)
    return torch._C._accelerator_getDeviceStats(index)


def _flattened(stats: dict[str, Any]) -> dict[str, Any]:
    flat = {}

    def visit(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                visit(f"{prefix}.{key}" if prefix else key, inner)
        else:
            flat[prefix] = value

    visit("", stats)
    return collections.OrderedDict(sorted(flat.items()))


def memory_stats(device: Device = None) -> dict[str, Any]:
    """The allocator's counters, flattened: "allocated_bytes.all.peak" and so on, in order of their names."""
    return _flattened(memory_stats_as_nested_dict(device))


def _bytes(device: Device, kind: str, metric: str) -> int:
    stats = memory_stats_as_nested_dict(device)
    return stats[kind]["all"][metric] if stats else 0


def memory_allocated(device: Device = None) -> int:
    """Bytes in tensors."""
    return _bytes(device, "allocated_bytes", "current")


def max_memory_allocated(device: Device = None) -> int:
    """The most bytes in tensors since the start or reset_peak_memory_stats."""
    return _bytes(device, "allocated_bytes", "peak")


def memory_reserved(device: Device = None) -> int:
    """Bytes taken from the device: in tensors or cached."""
    return _bytes(device, "reserved_bytes", "current")


def max_memory_reserved(device: Device = None) -> int:
    """The most bytes that the cache had from the driver, since the start or the last reset."""
    return _bytes(device, "reserved_bytes", "peak")


def reset_peak_memory_stats(device: Device = None) -> None:
    """Lets every peak of `memory_stats` begin at what it is now."""
    torch._C._accelerator_resetPeakStats(_index(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Lets what `memory_stats` adds up (allocations, frees, retries) begin at 0."""
    torch._C._accelerator_resetAccumulatedStats(_index(device))


def _deprecated(old: str, new: str) -> None:
    warnings.warn(f"torch.npu.{old} is deprecated, use torch.npu.{new}", FutureWarning, stacklevel=3)


def memory_cached(device: Device = None) -> int:
    """The old name of `memory_reserved`."""
    _deprecated("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: Device = None) -> int:
    """The old name of `max_memory_reserved`."""
    _deprecated("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


def reset_max_memory_allocated(device: Device = None) -> None:
    """The old name of `reset_peak_memory_stats`."""
    _deprecated("reset_max_memory_allocated", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Device = None) -> None:
    """The old name of `reset_peak_memory_stats`."""
    _deprecated("reset_max_memory_cached", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Free and total bytes of the device, as its driver counts them."""
    return _C.memory_info(_index(device))


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Caps what this process may take of the device's memory; beyond it is OutOfMemoryError."""
    if not isinstance(fraction, (int, float)) or isinstance(fraction, bool):
        raise TypeError(f"expected a fraction as a float, got {type(fraction).__name__}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"expected a fraction from 0 to 1, got {fraction}")
    _C.set_memory_fraction(float(fraction), _index(device))


def get_per_process_memory_fraction(device: Device = None) -> float:
    """The part of a device's memory that this process may use, 0 to 1."""
    return _C.memory_fraction(_index(device))


def memory_snapshot(mempool_id: tuple[int, int] | None = None) -> list[dict[str, Any]]:
    """Every segment taken from a device, or those of one pool, with the blocks in it, in the form of
    torch.cuda.memory_snapshot."""
    _lazy_init()
    segments = _C.memory_snapshot()
    return [s for s in segments if mempool_id is None or s["segment_pool_id"] == tuple(mempool_id)]


class MemPool:
    """Memory of its own, for what is allocated in `use_mem_pool`: nobody else gets it as long as the pool lives.

    When the pool is gone, what no tensor uses goes back to the device at once and the rest with `empty_cache`."""

    def __init__(self, allocator: None = None, use_on_oom: bool = False, no_split: bool = False):
        if allocator is not None or use_on_oom or no_split:
            raise NotImplementedError(
                "MemPool: expected the default settings, got "
                f"allocator={allocator!r}, use_on_oom={use_on_oom}, no_split={no_split}: leave them out"
            )
        self._device = _index(None)
        self._id = _C.graph_pool_handle()
        _C.hold_pool(self._device, self._id)

    @property
    def id(self) -> tuple[int, int]:
        """Its name, which `torch.npu.graph(pool=...)` takes as well."""
        return self._id

    def use_count(self) -> int:
        """How many hold it: this object, graphs, and `use_mem_pool`."""
        return _C.pool_holders(self._device, self._id)

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """Its segments, as `memory_snapshot` has them. `include_traces` is there for torch.cuda's sake."""
        return memory_snapshot(self._id)

    def __del__(self):
        if hasattr(self, "_id") and not sys.is_finalizing() and not _is_in_bad_fork():
            _C.drop_pool(self._device, self._id)


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Device = None):
    """What this thread allocates on the device inside comes from the pool and goes back there. Other threads are not
    concerned, that of a backward pass included. A graph that is captured inside has its own pool."""
    index = pool._device if device is None else _index(device)
    if index != pool._device:
        raise ValueError(f"expected the pool's device, npu:{pool._device}, got npu:{index}")
    use = _C.begin_thread_pool(index, pool.id)
    try:
        yield
    finally:
        _C.end_thread_pool(index, use)


_ACTIONS: tuple[str, ...] = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
)
_ACTIONS += ("segment_unmap", "oom", "snapshot")


def _one_of(name: str, value: Any, allowed: tuple) -> None:
    if value not in allowed:
        raise ValueError(f"expected {name} to be one of {', '.join(map(repr, allowed))}, got {value!r}")


_history_options: dict[str, Any] | None = None  # of the latest _record_memory_history; None if it is off


def _record_memory_history(
    enabled: str | bool | None = "all",
    context: str | None = "all",
    stacks: str = "python",
    max_entries: int = sys.maxsize,
    device: Device = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
) -> None:
    """Keeps who allocated and freed device memory, on all devices, for _snapshot and for out-of-memory messages.

    `enabled`: None stops and forgets, "state" keeps what is allocated now, "all" every event too. `context`: which of
    them get tracebacks. `stacks`: "python", or "all" for C++ frames as well, whose names take long to look up."""
    if isinstance(enabled, bool):
        enabled = "all" if enabled else None
    _one_of("enabled", enabled, (None, "state", "all"))
    _one_of("context", context, (None, "state", "alloc", "all"))
    _one_of("stacks", stacks, ("python", "all"))
    for action in skip_actions or []:
        _one_of("each of skip_actions", action, _ACTIONS)
    global _history_options
    if enabled is None:
        _C.stop_memory_history()
        _history_options = None
        return
    _history_options = {
        "enabled": enabled,
        "context": context,
        "stacks": stacks,
        "max_entries": max_entries,
        "skip_actions": skip_actions,
    }
    _C.record_memory_history(
        enabled == "all", context or "", stacks == "all", max_entries, list(skip_actions or []), clear_history
    )


def _snapshot(device: Device = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """What is in the memory of all devices and, with _record_memory_history, what happened there and who asked for it.
    The dict of torch.cuda.memory._snapshot, which PyTorch's memory viewer (torch/cuda/_memory_viz.py) opens."""
    snapshot: Any = {
        "segments": memory_snapshot(),
        "device_traces": _C.memory_traces(),
        "allocator_settings": {"PYTORCH_ALLOC_CONF": os.environ.get("PYTORCH_ALLOC_CONF", "")},
        "external_annotations": [],
    }
    if augment_with_fx_traces:
        snapshot = torch._utils._augment_memory_snapshot_stack_traces(snapshot)
    return snapshot


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Writes _snapshot() to a file that https://pytorch.org/memory_viz opens."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(augment_with_fx_traces=augment_with_fx_traces), file)


def host_memory_stats() -> dict[str, Any]:
    """Counters of the pinned host memory cache."""
    _lazy_init()
    return _flattened(_C.host_memory_stats())


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{int(value)} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """A table of memory_stats for people."""
    index = _index(device)
    stats = memory_stats(index)
    free, total = mem_get_info(index)
    rows: list[tuple[str, str, Callable[[int], str]]] = [
        ("tensors", "allocated_bytes", _size),
        ("with freed, not yet idle", "active_bytes", _size),
        ("taken from device", "reserved_bytes", _size),
        ("unused inside segments", "inactive_split_bytes", _size),
        ("tensors, count", "allocation", str),
        ("segments, count", "segment", str),
    ]
    pools = ["all"] if abbreviated else ["all", "large_pool", "small_pool"]
    line = "-" * 88
    out = [f"npu:{index} memory: {_size(free)} of {_size(total)} free on the device", line]
    out += [f"{'':<36}{'current':>13}{'peak':>13}{'total taken':>13}{'total freed':>13}", line]
    for title, key, show in rows:
        for pool in pools:
            name = title if pool == "all" else f"  {pool.replace('_', ' ')}"
            values = [stats.get(f"{key}.{pool}.{metric}", 0) for metric in ("current", "peak", "allocated", "freed")]
            out.append(f"{name:<36}" + "".join(f"{show(v):>13}" for v in values))
    out += [
        line,
        f"out of memory: {stats.get('num_ooms', 0)} times; retried: {stats.get('num_alloc_retries', 0)} times",
    ]
    return "\n".join(out) + "\n"
