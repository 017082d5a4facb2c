"""PyTorch's OpInfo databases: every op by itself, and the _foreach_ ops over lists."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations as infos

from torch_npu.testing import coverage
from torch_npu.testing.case import Case, Form, Side
from torch_npu.testing.compare import WIDE, Mover, tolerance
from torch_npu.testing.seeds import seeds_from_outside

# Ops with a tensor argument that stays on the host on every device, as their OpInfos make it.
_HOST_ARGUMENTS = ("tensor_split",)
# Ops that may draw random numbers: worth more than one try to see it.
_SEEDED = re.compile("rand|bernoulli|multinomial|normal|dropout|fractional|rrelu|geometric|attention|lowrank")
# Ops that answer with the positions of equal elements in any order, and the names of their arguments: positions are
# compared by what lies there.
_PICKS = {
    "topk": ("k", "dim"),
    "kthvalue": ("k", "dim"),
    "sort": ("dim",),
    "argsort": ("dim",),
    "mode": ("dim", "keepdim"),
}
# Results that hold whatever was in memory; only shape, type and device can be compared.
_UNINITIALISED = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted")


class _Call(Side):
    """The plain call."""

    def __init__(self, sample: _Sample, device: str, wide: bool, grad: bool = True) -> None:
        move = Mover(device, wide, grad)
        self.sample = sample
        self.op = sample.op
        self.input, self.kwargs = move((sample.raw.input, dict(sample.raw.kwargs)))
        host = self.op.name in _HOST_ARGUMENTS
        self.args = list(sample.raw.args) if host else move(list(sample.raw.args))
        self.leaves = move.leaves
        self.device = device if move.used else "cpu"

    def run(self, seed: int) -> Any:
        torch.manual_seed(seed)
        result = self.op(self.input, *self.args, **self.kwargs)
        if self.sample.plain is None:
            self.sample.plain = result
        return result

    def differentiable(self, result: Any) -> Any:
        return self.sample.raw.output_process_fn_grad(result)

    def comparable(self, result: Any) -> Any:
        """Positions replaced by the elements at them, for the ops of _PICKS."""
        name = self.op.name
        if name not in _PICKS or self.input.dim() == 0 or self.kwargs.get("stable"):
            return result
        dim = (dict(zip(_PICKS[name], self.args, strict=False)) | self.kwargs).get("dim", -1)
        values, positions = result if name != "argsort" else (None, result)
        wide = positions if positions.dim() == self.input.dim() else positions.unsqueeze(dim)
        return values, self.input.detach().cpu().gather(dim, wide.cpu()).to(positions.device)

    def comparable_gradients(self, gradients: list[Any]) -> list[Any]:
        """Of equal elements any may be the one that was chosen: each gets what all of them got."""
        if self.op.name not in (*_PICKS, "msort") or self.input.dim() == 0 or self.input.numel() == 0:
            return gradients
        dim = (dict(zip(_PICKS.get(self.op.name, ()), self.args, strict=False)) | self.kwargs).get("dim", -1)
        dim = 0 if self.op.name == "msort" else dim
        rows = self.input.detach().cpu().movedim(dim, -1)
        shared = gradients[0].cpu().movedim(dim, -1).double().contiguous()
        for values, row in zip(rows.reshape(-1, rows.shape[-1]), shared.reshape(-1, rows.shape[-1]), strict=True):
            _, group = values.unique(return_inverse=True)
            row.copy_(torch.zeros_like(row).index_add(0, group, row)[group])
        return [shared.to(self.leaves[0].device), *gradients[1:]]


class _InPlace(_Call):
    """op_(input, ...): the input afterwards is the result."""

    def run(self, seed: int) -> Any:
        torch.manual_seed(seed)
        self.op.inplace_variant(self.input, *self.args, **self.kwargs)
        return self.input

    def comparable(self, result: Any) -> Any:
        return result


class _Out(_Call):
    """op(..., out=results): into memory that the caller made."""

    def __init__(self, sample: _Sample, device: str, wide: bool, grad: bool = True) -> None:
        super().__init__(sample, device, wide, grad)
        self.device = device

        def fresh(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                raise TypeError(f"out= takes tensors, and a result is {type(value).__name__}")
            dtype = WIDE.get(value.dtype, value.dtype) if wide else value.dtype
            # Not empty: fft.ihfftn over one dimension forgets to write its out=, on every device.
            return torch.ones_like(value, dtype=dtype, device=device, requires_grad=False)

        plain = sample.plain
        self.out = fresh(plain) if isinstance(plain, torch.Tensor) else tuple(fresh(value) for value in plain)

    def run(self, seed: int) -> Any:
        torch.manual_seed(seed)
        self.op(self.input, *self.args, **self.kwargs, out=self.out)
        return self.out


class _Sample:
    """One sample of an OpInfo, and what the CPU answered to it."""

    def __init__(self, op: Any, raw: Any) -> None:
        self.op, self.raw = op, raw
        self.plain: Any = None

    def forms(self) -> list[Form]:
        in_place = Form("in place", lambda device, wide: _InPlace(self, device, wide, grad=False))
        if self.op.inplace_variant is self.op.op:
            return [in_place]
        forms = [Form("forward", lambda device, wide: _Call(self, device, wide))]
        if self.op.inplace_variant is not None:
            forms.append(in_place)
        if self.op.supports_out and "out" not in self.raw.kwargs:
            forms.append(Form("out=", lambda device, wide: _Out(self, device, wide, grad=False)))
        return forms


class OpCase(Case):
    database = "ops"
    other_seeds = staticmethod(seeds_from_outside)

    def __init__(self, op: Any, dtype: torch.dtype) -> None:
        self.op, self.dtype, self.name = op, dtype, op.full_name
        self.limits = tolerance(op, dtype)
        self.own_ops = coverage.base_names(op.aten_name)
        self.has_gradient = op.supports_autograd
        self.tries = 8 if _SEEDED.search(op.full_name) else 1
        self.uninitialised = op.name.rsplit(".", 1)[-1] in _UNINITIALISED

    def samples(self, grad: bool) -> Iterable[list[Form]]:
        for raw in self.op.sample_inputs("cpu", self.dtype, requires_grad=grad):
            yield _Sample(self.op, raw).forms()


class ForeachCase(OpCase):
    database = "foreach"

    def __init__(self, op: Any, dtype: torch.dtype) -> None:
        super().__init__(op, dtype)
        self.own_ops = [op.name]
        self.tries = 0

    def samples(self, grad: bool) -> Iterable[list[Form]]:
        make, three = self.op.sample_inputs, {"requires_grad": grad, "num_input_tensors": [3]}
        lists = itertools.chain(
            make("cpu", self.dtype, **three),
            make("cpu", self.dtype, noncontiguous=True, **three),
            self.op.sample_zero_size_inputs("cpu", self.dtype, requires_grad=grad),
        )
        for raw in lists:
            yield _Sample(self.op, raw).forms()


def _for_dtype(kind: type[OpCase], ops: Iterable[Any], dtype: torch.dtype) -> dict[str, OpCase]:
    return {op.full_name: kind(op, dtype) for op in ops if dtype in op.supported_dtypes("cpu")}


def op_cases(dtype: torch.dtype) -> dict[str, OpCase]:
    return _for_dtype(OpCase, infos.op_db, dtype)


def foreach_cases(dtype: torch.dtype) -> dict[str, OpCase]:
    parts = ("unary", "binary", "pointwise", "reduce", "other")
    ops = itertools.chain(*(getattr(infos, f"foreach_{part}_op_db") for part in parts))
    return _for_dtype(ForeachCase, ops, dtype)
