"""Compiled optimizers keep their step counts on the device.

On CUDA a compiled step of a fresh optimizer takes the capturable way by itself. Dynamo asks is_cuda for that; without
it the counts lie on the CPU, and every compiled step has a part in C++ that a compiler must build first."""

import functools

import torch
from torch._dynamo.variables.optimizer import OptimizerVariable


def _capturable_on_npu(set_capturable):
    @functools.wraps(set_capturable)
    def set_(self, *args, **kwargs):
        for group in self.value.param_groups:
            fresh = all(p.device.type == "npu" and p not in self.value.state for p in group.get("params", []))
            if "capturable" in group and fresh:
                group["capturable"] = True
        return set_capturable(self, *args, **kwargs)

    return set_


OptimizerVariable._set_capturable = _capturable_on_npu(OptimizerVariable._set_capturable)


def _counts_on_npu(move_step_if_cpu):
    """Of an optimizer that has made eager steps Dynamo moves "step" alone; NAdam has another number beside it."""

    @functools.wraps(move_step_if_cpu)
    def move(self):
        for parameter, state in self.value.state.items():
            for name, value in state.items():
                if parameter.device.type == "npu" and isinstance(value, torch.Tensor) and value.is_cpu:
                    state[name] = value.to(parameter.device)
        return move_step_if_cpu(self)

    return move


OptimizerVariable.move_step_if_cpu = _counts_on_npu(OptimizerVariable.move_step_if_cpu)
