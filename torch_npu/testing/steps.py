"""A call taken apart: every op of it runs on the device and, with the same arguments, on the CPU and in double.

In 16-bit types a result of several ops may differ from the CPU's although every op is as good as the CPU's: each one
rounds, and what follows magnifies it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from torch_npu.testing.compare import Mover, assert_same, leaves, no_worse, tolerance

# More than this many units of the last place of the largest value on the way is not rounding.
_UNITS = 16


def _to_cpu(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) else value


class _Steps(TorchDispatchMode):
    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.fault = ""  # the first op that is worse than the CPU's, or that only the device has
        self.largest = 0.0  # value on the way

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        on_cpu = Mover("cpu", grad=False)((args, tree_map(_to_cpu, kwargs)))
        in_double = Mover("cpu", wide=True)(on_cpu)
        result = func(*args, **kwargs)
        tags = torch.Tag.nondeterministic_seeded in func.tags or "empty" in func.name()
        if not self.fault and not tags and any(self._here(value) for value in leaves((result, args))):
            self._compare(func, (result, args, kwargs), on_cpu, in_double)
        return result

    def _here(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.device.type == self.device

    def _compare(self, func: Any, got: Any, on_cpu: Any, in_double: Any) -> None:
        """Results, and arguments too, because an op may write to them."""
        try:
            want: Any = func(*on_cpu[0], **on_cpu[1]), *on_cpu
            got, want = ([v for v in leaves(tree) if isinstance(v, torch.Tensor)] for tree in (got, want))
            for mine, theirs in zip(got, want, strict=True):
                if theirs.is_floating_point():
                    self.largest = max(
                        self.largest, theirs.abs().nan_to_num(0, 0, 0).max().item() if theirs.numel() else 0
                    )
                limits = tolerance(None, theirs.dtype) if theirs.is_floating_point() else {}
                assert_same(mine, theirs, values=True, device=mine.device.type, **limits)
        except AssertionError as error:
            truth = func(*in_double[0], **in_double[1]), *in_double
            true = [v for v in leaves(truth) if isinstance(v, torch.Tensor)]
            if not no_worse(got, want, true, {}):
                self.fault = f"{func.name()}: {error}"


def fault(run: Callable[[], Any], device: str, got: Any, want: Any) -> str:
    """Empty if `run`, which gives `got`, consists of ops that are no worse than the CPU's one by one, and `want` is not
    further away than their rounding explains. Otherwise what is wrong."""
    steps = _Steps(device)
    try:
        with steps:
            run()
    except Exception as error:  # noqa: BLE001 (an op that the CPU does not have)
        return f"{type(error).__name__}: {error}"
    if steps.fault:
        return steps.fault
    for mine, theirs in zip(leaves(got), leaves(want), strict=True):
        if isinstance(theirs, torch.Tensor) and theirs.is_floating_point():
            far = _UNITS * torch.finfo(theirs.dtype).eps * max(steps.largest, 1e-3)
            difference = (mine.detach().cpu().double() - theirs.detach().double()).abs()
            if not (difference <= far).all():
                return f"every op is as good as the CPU's, but the result is further off than {far:.2g}"
    return ""
