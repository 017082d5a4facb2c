"""Seeds and states of the devices' default generators. torch.manual_seed reaches manual_seed_all by itself."""

from collections.abc import Iterable

import torch

from torch_npu import _C
from torch_npu.npu._lazy import _lazy_call, _lazy_init, is_initialized
from torch_npu.npu._utils import Device, _get_device_index
from torch_npu.npu.device import current_device, device_count

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def _generator(index: int) -> torch.Generator:
    return _C.default_generator(index)


def _get_generator(device: torch.device) -> torch.Generator:
    """torch asks for a device's default generator by this name."""
    _lazy_init()
    return _generator(_get_device_index(device, optional=True))


def get_rng_state(device: Device = "npu") -> torch.Tensor:
    """The state of the device's default generator, as a byte tensor on the CPU."""
    _lazy_init()
    return _generator(_get_device_index(device, optional=True)).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The state of every device's generator, in the order of devices."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state(new_state: torch.Tensor, device: Device = "npu") -> None:
    """Sets the state of the device's default generator; before the first use of the device, at that moment."""
    if not is_initialized():
        new_state = new_state.clone(memory_format=torch.contiguous_format)
    _lazy_call(lambda: _generator(_get_device_index(device, optional=True)).set_state(new_state))


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Sets the states of the devices' generators, in the order of devices."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    """Seeds the current device's default generator."""
    seed = int(seed)
    _lazy_call(lambda: _generator(current_device()).manual_seed(seed), kind="seed")


def manual_seed_all(seed: int) -> None:
    """Seeds the default generator of every device."""
    seed = int(seed)

    def apply() -> None:
        for i in range(device_count()):
            _generator(i).manual_seed(seed)

    _lazy_call(apply, kind="seed_all")


def seed() -> None:
    """Seeds the current device's default generator with a random number."""
    _lazy_call(lambda: _generator(current_device()).seed(), kind="seed")


def seed_all() -> None:
    """Seeds all default generators with one random number."""

    def apply() -> None:
        for i in range(device_count()):
            if i == 0:
                value = _generator(0).seed()
            else:
                _generator(i).manual_seed(value)

    _lazy_call(apply, kind="seed_all")


def initial_seed() -> int:
    """The seed of the current device's default generator."""
    _lazy_init()
    return _generator(current_device()).initial_seed()
