"""torch.npu.amp: torch.amp with the device filled in."""

import functools
from typing import Any

import torch
from torch.amp.autocast_mode import custom_bwd as _custom_bwd
from torch.amp.autocast_mode import custom_fwd as _custom_fwd

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(torch.amp.autocast):
    """torch.autocast("npu", ...), with float16 as in torch.cuda.amp."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True):
        super().__init__("npu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler("npu", ...)."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        super().__init__("npu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def custom_fwd(fwd: Any = None, *, cast_inputs: torch.dtype | None = None):
    """Decorates the forward method of an autograd function: `torch.amp.custom_fwd` for npu."""
    return functools.partial(_custom_fwd, device_type="npu")(fwd=fwd, cast_inputs=cast_inputs)


def custom_bwd(bwd: Any):
    """Decorates its backward method: autocast is there as it was in the forward method."""
    return functools.partial(_custom_bwd, device_type="npu")(bwd)
