"""Compiled optimizers keep their step counts on the device.

On CUDA a compiled step of a fresh optimizer takes the capturable way by itself. Dynamo asks is_cuda for that; without
it the counts lie on the CPU, and every compiled step has a part in C++ that a compiler must build first."""

import functools

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
