"""Device arguments, in every form that torch.cuda accepts them."""

import torch

Device = torch.device | str | int | None


def _last_index() -> int:
    from torch_npu.npu.device import device_count

    return device_count() - 1


def _get_device_index(device: Device, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index of `device`: an int, "npu", "npu:1", a torch.device, or None for the current one if `optional`.

    -1 stands for a CPU device, where `allow_cpu` lets it through.
    """
    if isinstance(device, int) and not isinstance(device, bool):
        if not -128 <= device <= 127:  # torch keeps an index in 8 bits; smaller wrong ones are refused by their users
            raise RuntimeError(f"expected an npu device index from 0 to {_last_index()}, got {device}")
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != "npu":
            raise ValueError(f"expected an npu device, got {device}")
        if device.index is not None:
            return device.index
        if not optional:
            raise ValueError(f"expected an npu device with an index, such as npu:0, got {device}")
    elif device is not None:
        raise TypeError(f"expected a device, its index or its name, got {type(device).__name__}")
    elif not optional:
        raise ValueError("expected an npu device or its index, got None")
    from torch_npu.npu.device import current_device

    return current_device()
