"""PyTorch's module database: torch.nn modules in training and in evaluation, forward, gradients and buffers."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.testing._internal.common_modules import module_db

from torch_npu.testing.case import Case, Form, Side
from torch_npu.testing.compare import WIDE, Mover, tolerance


class _Forward(Side):
    """A copy of the module, called once. The result includes the buffers, which training changes."""

    def __init__(self, sample: _Sample, device: str, wide: bool) -> None:
        move = Mover(device, wide)
        self.device = device
        self.module = deepcopy(sample.module).to(device)
        if wide:
            self.module.to(WIDE[sample.dtype])
        self.args, self.kwargs = move((sample.inputs.args, sample.inputs.kwargs))
        self.leaves = move.leaves + ([p for p in self.module.parameters() if p.requires_grad] if sample.grad else [])

    def run(self, seed: int) -> Any:
        torch.manual_seed(seed)
        result = self.module(*self.args, **self.kwargs)
        return result, [buffer.detach().clone() for buffer in self.module.buffers()]

    def differentiable(self, result: Any) -> Any:
        return result[0]


class _Made(Side):
    """The module made on the device, for those whose constructor takes one: what initialises it runs there."""

    def __init__(self, sample: _Sample, device: str, wide: bool) -> None:
        self.device, self.sample = device, sample

    def run(self, seed: int) -> Any:
        torch.manual_seed(seed)
        module = self.sample.make(device=self.device, dtype=self.sample.dtype)
        return [p.detach() for p in (*module.parameters(), *module.buffers()) if not is_lazy(p)]


class _Sample:
    def __init__(self, info: Any, raw: Any, dtype: torch.dtype, training: bool, grad: bool) -> None:
        self.info, self.constructor, self.inputs = info, raw.constructor_input, raw.forward_input
        self.dtype, self.grad, self.training = dtype, grad, training
        self._module: torch.nn.Module | None = None

    def make(self, **where: Any) -> torch.nn.Module:
        move = Mover(where.get("device", "cpu"))
        args, kwargs = move((self.constructor.args, self.constructor.kwargs))
        return self.info.module_cls(*args, **{**kwargs, **where})

    @property
    def module(self) -> torch.nn.Module:
        """On the CPU, with its parameters: made once, and never run itself."""
        if self._module is None:
            torch.manual_seed(0)
            module = self.make().to(self.dtype).train(self.training)
            if any(is_lazy(parameter) for parameter in module.parameters()):
                move = Mover("cpu")
                args, kwargs = move((self.inputs.args, self.inputs.kwargs))
                module(*args, **kwargs)
            self._module = module
        return self._module

    def forms(self) -> list[Form]:
        mode = "training" if self.training else "evaluation"
        forms = [Form(f"forward in {mode}", lambda device, wide: _Forward(self, device, wide))]
        if self.training and "device" in inspect.signature(self.info.module_cls.__init__).parameters:
            forms.append(Form("construction", lambda device, wide: _Made(self, device, wide), random=True))
        return forms


class ModuleCase(Case):
    database = "modules"
    tries = 4

    def __init__(self, info: Any, dtype: torch.dtype) -> None:
        self.info, self.dtype, self.name = info, dtype, info.name
        self.limits = tolerance(info, dtype)

    def samples(self, grad: bool) -> Iterable[list[Form]]:
        for training in (True, False) if self.info.train_and_eval_differ else (True,):
            arguments = {"device": "cpu", "dtype": self.dtype, "requires_grad": grad, "training": training}
            for raw in self.info.module_inputs_func(self.info, **arguments):
                if raw.forward_input is not None:
                    yield _Sample(self.info, raw, self.dtype, training, grad).forms()


def module_cases(dtype: torch.dtype) -> dict[str, ModuleCase]:
    return {info.name: ModuleCase(info, dtype) for info in module_db if dtype in info.supported_dtypes("cpu")}
