"""PyTorch's optimizer database: every optimizer in every configuration, a few steps, plain, foreach and fused."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import torch
from torch.testing._internal.common_optimizers import optim_db

from torch_npu.testing.case import Case, Form, Side
from torch_npu.testing.compare import WIDE, tolerance

_STEPS = 3
_SHAPES = ((), (5,), (3, 4), (2, 3, 2), (67, 33))
_MATRICES = ((3, 4), (6, 3), (16, 33))  # Muon takes nothing else
_FLAGS = ("foreach", "fused", "differentiable", "capturable")
_FUSED = {"Adam": "_fused_adam_", "AdamW": "_fused_adamw_", "SGD": "_fused_sgd_", "Adagrad": "_fused_adagrad_"}


class _Steps(Side):
    """Parameters, gradients that do not depend on them (or a closure), a few steps; then parameters and state."""

    def __init__(self, sample: _Sample, device: str, wide: bool) -> None:
        self.sample, self.device = sample, device
        self.dtype = WIDE[sample.dtype] if wide and sample.dtype in WIDE else sample.dtype
        self.leaves = []
        source = torch.Generator().manual_seed(3)

        def numbers(shape: tuple[int, ...]) -> torch.Tensor:
            return torch.randn(shape, dtype=sample.dtype, generator=source).to(device, self.dtype)

        self.start = [numbers(shape) for shape in sample.shapes]
        self.idle = numbers((3, 4))  # a parameter that never gets a gradient
        self.grads = [[self._gradient(numbers(shape)) for shape in sample.shapes] for _ in range(_STEPS)]

    def _gradient(self, dense: torch.Tensor) -> torch.Tensor:
        if not self.sample.sparse:
            return dense
        rows = torch.tensor([[2, 0]], device=dense.device)
        return torch.sparse_coo_tensor(rows, dense[:2], dense.shape, check_invariants=False)

    def run(self, seed: int) -> Any:
        kwargs = deepcopy(self.sample.kwargs)
        if self.device == "cpu":
            kwargs.pop("capturable", None)  # the same arithmetic without it
        if kwargs.get("differentiable"):
            self.leaves = [p.requires_grad_() for p in (*self.start, *self.grads[-1])]
            params = [p.clone() for p in self.start]
        else:
            params = [torch.nn.Parameter(p.clone()) for p in self.start]
        optimizer = self.sample.info.optim_cls(self._groups(params), **kwargs)
        for grads in self.grads:
            if self.sample.info.step_requires_closure:
                optimizer.step(lambda: self._loss(optimizer, params))
                continue
            for param, grad in zip(params, grads, strict=True):
                param.grad = grad if kwargs.get("differentiable") else grad.clone()
            optimizer.step()
        return params, [self._state(optimizer.state[param], param) for param in params]

    def differentiable(self, result: Any) -> Any:
        return result[0]

    def _groups(self, params: list[torch.Tensor]) -> list[Any]:
        if not self.sample.groups:
            return params
        idle = torch.nn.Parameter(self.idle)
        return [{"params": params[:2], "lr": 0.003}, {"params": [*params[2:], idle]}]

    def _loss(self, optimizer: torch.optim.Optimizer, params: list[torch.Tensor]) -> torch.Tensor:
        """A bowl whose centre is the first gradient."""
        optimizer.zero_grad()
        parts = [(param - centre).abs().square().sum() for param, centre in zip(params, self.grads[0], strict=True)]
        loss = torch.stack(parts).sum()
        loss.backward()
        return loss

    def _state(self, state: dict[str, Any], param: torch.Tensor) -> list[Any]:
        """Step counts and the like may live on the host, so only values count."""
        entries = [value for _, value in sorted(state.items()) if isinstance(value, torch.Tensor)]
        return [value.detach().to(param.device) for value in entries]


class _Sample:
    def __init__(self, case: OptimizerCase, kwargs: dict[str, Any], groups: bool = False) -> None:
        self.info, self.dtype, self.kwargs, self.groups = case.info, case.dtype, kwargs, groups
        self.sparse = case.variant == "sparse"
        self.shapes = _MATRICES if self.sparse or self.info.name == "Muon" else _SHAPES

    def form(self) -> Form:
        text = ", ".join(f"{name}={value}" for name, value in self.kwargs.items() if value is not False)
        return Form(
            f"{_STEPS} steps with {text or 'defaults'}{', two groups' if self.groups else ''}",
            lambda device, wide: _Steps(self, device, wide),
        )


class OptimizerCase(Case):
    database = "optimizers"
    tries = 0

    def __init__(self, info: Any, variant: str, dtype: torch.dtype) -> None:
        self.info, self.variant, self.dtype = info, variant, dtype
        self.name = f"{info.name}.{variant}" if variant else info.name
        self.limits = tolerance(None, dtype)
        if info.name == "LBFGS":  # divides by differences of gradients that hardly differ
            self.limits = {kind: 100 * limit for kind, limit in self.limits.items()}
        if info.name == "Muon":  # computes its orthogonal matrices in bfloat16, whatever the parameters are
            self.limits = tolerance(None, torch.bfloat16)
        self.has_gradient = variant == "differentiable"
        self.own_ops = [_FUSED[info.name]] if variant == "fused" else []

    def samples(self, grad: bool) -> Iterable[list[Form]]:
        chosen = {flag: flag == self.variant for flag in self.info.supported_impls}
        # The database offers capturable configurations to the GPUs that it knows by name.
        for raw in self.info.optim_inputs_func("cuda" if self.variant == "capturable" else "cpu"):
            if self.variant == "capturable" and not raw.kwargs.get("capturable"):
                continue
            yield [_Sample(self, {**raw.kwargs, **chosen}).form()]
            if self.variant == "capturable" and "foreach" in self.info.supported_impls:
                yield [_Sample(self, {**raw.kwargs, **chosen, "foreach": True}).form()]
        if self.info.supports_param_groups and self.variant != "capturable":
            yield [_Sample(self, chosen, groups=True).form()]


def _variants(info: Any) -> list[str]:
    if info.only_supports_sparse_grads:
        return ["sparse"]
    flags = [flag for flag in _FLAGS if flag in info.supported_impls]
    flags += ["capturable"] if info.has_capturable_arg else []
    return ["", *flags, *(["sparse"] if info.supports_sparse else [])]


def optimizer_cases(dtype: torch.dtype) -> dict[str, OptimizerCase]:
    # Not in float16, where the optimizers' epsilon of 1e-8 is zero.
    if dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.complex64):
        return {}
    infos = [info for info in optim_db if not dtype.is_complex or info.supports_complex]
    cases = [OptimizerCase(info, variant, dtype) for info in infos for variant in _variants(info)]
    return {case.name: case for case in cases}
