"""Moving arguments between devices, and comparing what comes back."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_flatten, tree_map

# The type in which arithmetic decides when two results of low precision differ.
WIDE = {
    **dict.fromkeys((torch.float32, torch.bfloat16, torch.float16), torch.float64),
    **dict.fromkeys((torch.complex64, torch.complex32), torch.complex128),
}


def _is_part(value: torch.Tensor) -> bool:
    """The tensor is not exactly the memory behind it: a slice, with gaps, or with repeats."""
    return value.untyped_storage().nbytes() != value.numel() * value.element_size()


class Mover:
    """Moves arguments to a device. A tensor that occurs twice stays one tensor, and strides are kept.

    With `wide`, tensors and types become those of WIDE.
    """

    def __init__(self, device: str, wide: bool = False, grad: bool = True) -> None:
        self.device = torch.device(device)
        self.wide = wide
        self.grad = grad
        self.used = False  # something is on the device, so results are expected there
        self.memo: dict[int, torch.Tensor] = {}
        self.leaves: list[torch.Tensor] = []

    def __call__(self, tree: Any) -> Any:
        return tree_map(self._move, tree, is_leaf=lambda node: isinstance(node, PackedSequence))

    def _move(self, value: Any) -> Any:
        if isinstance(value, str | torch.device) and str(value) == "cpu":
            self.used = True
            return self.device
        if isinstance(value, torch.dtype) and self.wide:
            return WIDE.get(value, value)
        if isinstance(value, PackedSequence):  # its batch sizes stay on the host
            order = (self._move(value.sorted_indices), self._move(value.unsorted_indices))
            return PackedSequence(self._move(value.data), value.batch_sizes, *order)
        if not isinstance(value, torch.Tensor):
            return value
        self.used = True
        if id(value) not in self.memo:
            moved = self._copy(value.detach())
            if value.requires_grad and self.grad:
                moved.requires_grad_(True)
                self.leaves.append(moved)
            self.memo[id(value)] = moved
        return self.memo[id(value)]

    def _copy(self, value: torch.Tensor) -> torch.Tensor:
        if self.wide and value.dtype in WIDE:
            return value.to(self.device, WIDE[value.dtype])
        plain = value.layout == torch.strided and not value.is_quantized and not value.is_conj() and not value.is_neg()
        if plain and value.numel() > 0 and _is_part(value):
            whole = value.untyped_storage().nbytes() // value.element_size()
            base = value.as_strided((whole,), (1,), 0).to(self.device, copy=True)
            return base.as_strided(value.size(), value.stride(), value.storage_offset())
        return value.to(self.device, copy=True)


def tolerance(info: Any, dtype: torch.dtype) -> dict[str, float]:
    """The widest tolerance that PyTorch's own tests grant this entry, or the default for the type."""
    atol = rtol = 0.0
    for decorate in getattr(info, "decorators", ()):
        for inner in getattr(decorate, "decorators", [decorate]):
            for kind, value in getattr(inner, "d", {}).items():
                if kind == dtype:  # a plain number is a precisionOverride: absolute only
                    atol = max(atol, getattr(value, "atol", value))
                    rtol = max(rtol, getattr(value, "rtol", 0.0))
    default = torch.testing._comparison.default_tolerances(torch.empty((), dtype=dtype))
    return {"rtol": max(rtol, default[0]), "atol": max(atol, default[1])}


def leaves(tree: Any) -> list[Any]:
    """What a result consists of, without None and without what a packed sequence keeps on the host."""
    flat, _ = tree_flatten(tree, is_leaf=lambda node: isinstance(node, PackedSequence))
    return [leaf.data if isinstance(leaf, PackedSequence) else leaf for leaf in flat if leaf is not None]


def _dense(value: torch.Tensor) -> torch.Tensor:
    value = value.detach()
    return value.cpu().to_dense() if value.layout != torch.strided else value.cpu()


def _own_limits(dtype: torch.dtype, limits: dict[str, float]) -> dict[str, float]:
    if not limits or not (dtype.is_floating_point or dtype.is_complex):
        return {"rtol": 0.0, "atol": 0.0}
    rtol, atol = torch.testing._comparison.default_tolerances(torch.empty((), dtype=dtype))
    return {"rtol": max(limits["rtol"], rtol), "atol": max(limits["atol"], atol)}


def assert_same(got: Any, want: Any, *, values: bool, device: str, **limits: float) -> None:
    """Raises AssertionError at the first difference. Without `values`, shape, type and device only.

    `limits` widen the default tolerance of each result's own type (an integer op may have a float result); without
    limits the comparison is exact.
    """
    got_leaves, want_leaves = leaves(got), leaves(want)
    assert len(got_leaves) == len(want_leaves), f"expected {len(want_leaves)} results, got {len(got_leaves)}"
    for a, b in zip(got_leaves, want_leaves, strict=True):
        if not isinstance(b, torch.Tensor):
            if isinstance(b, float | int | bool | complex) and values:
                torch.testing.assert_close(a, b, equal_nan=True)
            continue
        assert isinstance(a, torch.Tensor), f"expected a tensor, got {type(a).__name__}"
        assert a.device.type == device, f"expected a result on {device}, got one on {a.device}"
        assert a.dtype == b.dtype, f"expected dtype {b.dtype}, got {a.dtype}"
        assert a.layout == b.layout, f"expected layout {b.layout}, got {a.layout}"
        if values:
            assert a.shape == b.shape, f"expected shape {tuple(b.shape)}, got {tuple(a.shape)}"
            rtol, atol = _own_limits(b.dtype, limits).values()
            torch.testing.assert_close(_dense(a), _dense(b), rtol=rtol, atol=atol, equal_nan=True)
        else:
            assert a.dim() == b.dim(), f"expected {b.dim()} dimensions, got {a.dim()}"


def no_worse(got: Any, want: Any, truth: Any, limits: dict[str, float]) -> bool:
    """The double precision result finds no fault that the CPU does not have too.

    Every element is within the tolerance of it, or at most twice as far off as the CPU's. Of the 16-bit types it is
    enough if the largest absolute and the largest relative error of a result are at most twice those of the CPU: after
    a few roundings it is chance which single element is hit. Where the CPU has NaN for what is a number (remainders of
    numbers far apart, in its vector code), that number is as good.
    """
    for got_leaf, want_leaf, true_leaf in zip(leaves(got), leaves(want), leaves(truth), strict=True):
        inexact = isinstance(want_leaf, torch.Tensor) and (want_leaf.is_floating_point() or want_leaf.is_complex())
        if not inexact:
            where = got_leaf.device.type if isinstance(got_leaf, torch.Tensor) else ""
            assert_same(got_leaf, want_leaf, values=True, device=where)
            continue
        wide = torch.complex128 if want_leaf.is_complex() else torch.float64
        mine, theirs, true = (_dense(leaf).to(wide) for leaf in (got_leaf, want_leaf, true_leaf))
        finite = true.isfinite() & theirs.isfinite()
        allowed = _own_limits(want_leaf.dtype, limits)
        right = (mine - true).abs() <= allowed["atol"] + allowed["rtol"] * true.abs()
        same = ~finite & ~(theirs.isnan() & true.isfinite() & right)
        torch.testing.assert_close(mine[same], theirs[same], rtol=0.0, atol=0.0, equal_nan=True)
        if not finite.any():
            continue
        size = true[finite].abs()
        errors, cpu_errors = (mine - true)[finite].abs(), (theirs - true)[finite].abs()
        if (errors <= 2 * cpu_errors + allowed["atol"] + allowed["rtol"] * size).all():
            continue
        if want_leaf.dtype not in (torch.bfloat16, torch.float16):
            return False
        size = size.clamp(min=allowed["atol"])
        if not (errors.max() <= 2 * cpu_errors.max() and (errors / size).max() <= 2 * (cpu_errors / size).max()):
            return False
    return True


def check(op: Any, dtype: torch.dtype, *, device: str, grad: bool, limit: int | None = None) -> Any:
    """The Result of one OpInfo in this process, not in place and without out=: for tests of single ops."""
    from torch_npu.testing import case, ops

    return case.check(ops.OpCase(op, dtype), device=device, grad=grad, limit=limit, forms=False)
