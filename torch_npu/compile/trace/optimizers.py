"""Compiled optimizers keep their step counts on the device.

On CUDA a compiled step of a fresh optimizer takes the capturable way by itself. Dynamo asks is_cuda for that; without
it the counts lie on the CPU, and every compiled step has a part in C++ that a compiler must build first."""

import torch

from torch_npu import torch_seams

OPTIMIZER = "torch._dynamo.variables.optimizer.OptimizerVariable"


@torch_seams.replace(
    OPTIMIZER,
    "_set_capturable",
    why="a fresh optimizer takes the capturable way on CUDA only, and keeps its step counts on the CPU elsewhere",
    until="Dynamo asks for the device's graphs, not for is_cuda",
)
def set_capturable(original, self, *args, **kwargs):
    for group in self.value.param_groups:
        fresh = all(p.device.type == "npu" and p not in self.value.state for p in group.get("params", []))
        if "capturable" in group and fresh:
            group["capturable"] = True
    return original(self, *args, **kwargs)


@torch_seams.replace(
    OPTIMIZER,
    "move_step_if_cpu",
    why="of an optimizer that has made eager steps only `step` is moved; NAdam has another number beside it",
    until="all numbers of a parameter's state are moved",
)
def move_counts(original, self):
    for parameter, state in self.value.state.items():
        for name, value in state.items():
            if parameter.device.type == "npu" and isinstance(value, torch.Tensor) and value.is_cpu:
                state[name] = value.to(parameter.device)
    return original(self)
