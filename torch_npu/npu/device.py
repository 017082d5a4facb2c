"""Devices: how many, which one is current, what they are."""

import dataclasses
from typing import Any

import torch

from torch_npu import _C
from torch_npu.npu._lazy import _lazy_init
from torch_npu.npu._utils import Device, _get_device_index

COMMANDS = ("COPY", "MAP", "REDUCE", "SCAN", "SORT", "SCATTER", "MATMUL", "CONV")


@dataclasses.dataclass(frozen=True)
class DeviceProperties:
    """What a driver says about a device. `commands` are those it implements at least in part."""

    name: str
    vendor: str
    total_memory: int
    alignment: int
    multi_processor_count: int
    clock_mhz: int
    major: int
    minor: int
    peak_flops: float
    peak_bandwidth: float
    least_priority: int
    greatest_priority: int
    commands: tuple[str, ...]
    driver: str
    driver_version: str
    driver_index: int


def is_available() -> bool:
    """Whether a driver with a device could be loaded. Opens no device."""
    return _C.device_count() > 0


def device_count() -> int:
    """The devices of all drivers in TORCH_NPU_DRIVER. Opens none; 0 if no driver could be loaded."""
    return _C.device_count()


def current_device() -> int:
    """The index of the calling thread's current device."""
    _lazy_init()
    return _C.current_device()


def set_device(device: Device) -> None:
    """Makes `device` the calling thread's current one. A negative index is ignored, as in torch.cuda."""
    index = _get_device_index(device, optional=True)
    if index >= 0:
        _lazy_init()
        _C.set_device(index)


def exchange_device(device: int) -> int:
    """Sets the current device and returns the one before. A negative index changes nothing and returns -1."""
    if device < 0:
        return -1
    _lazy_init()
    return _C.exchange_device(device)


_exchange_device = exchange_device
_maybe_exchange_device = exchange_device


class device:
    """Context manager: `device` is the current one inside. None and negative indices change nothing."""

    def __init__(self, device: Device | Any):
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self):
        self.prev_idx = exchange_device(self.idx)
        return self

    def __exit__(self, *exc):
        exchange_device(self.prev_idx)
        return False


class device_of(device):
    """Context manager: the device of the given tensor or storage is the current one inside; no change for others."""

    def __init__(self, obj):
        super().__init__(obj.get_device() if obj.is_npu else -1)


def synchronize(device: Device = None) -> None:
    """Waits for all work on the device. Raises the first failure of that work."""
    _lazy_init()
    _C.synchronize(_get_device_index(device, optional=True))


def reset_device(device: Device = None) -> None:
    """Drops queued work and failures of a lost device. Its tensors stay; what was being written is undefined."""
    _lazy_init()
    _C.reset_device(_get_device_index(device, optional=True))


def get_device_properties(device: Device = None) -> DeviceProperties:
    """What the driver says of a device: name, memory, units, clock, the commands that it has."""
    _lazy_init()
    facts = _C.properties(_get_device_index(device, optional=True))
    bits = facts.pop("commands")
    return DeviceProperties(commands=tuple(n for k, n in enumerate(COMMANDS) if bits >> k & 1), **facts)


def get_device_name(device: Device = None) -> str:
    """The name that the driver gives to a device: "C model"."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """Major and minor revision of the hardware."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Devices have no direct way to each other's memory: copies between them go through the host."""
    indices = [_get_device_index(d, optional=True) for d in (device, peer_device)]
    for index in indices:
        if not 0 <= index < device_count():
            raise AssertionError(f"expected an npu device index from 0 to {device_count() - 1}, got {index}")
    return indices[0] == indices[1]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Every driver stores and converts bf16; the contract asks for it."""
    return is_available()


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The types that torch.autocast("npu") may compute in."""
    return [torch.float16, torch.bfloat16, torch.float32]


def get_arch_list() -> list[str]:
    """Empty: nothing is compiled for architectures, since drivers get programs."""
    return []


def ipc_collect() -> None:
    """Device memory is not shared between processes: nothing to collect."""
