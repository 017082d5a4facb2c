"""Tensor.__dlpack_device__ for npu tensors, and for pinned ones, which are plain memory for everyone else."""

import torch
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

from torch_npu import torch_seams


@torch_seams.replace(
    "torch.Tensor",
    "__dlpack_device__",
    why="it knows PrivateUse1 by its old name only, and calls every pinned tensor CUDA's",
    until="it asks for the name of PrivateUse1's backend",
)
def dlpack_device(original, self):
    if not has_torch_function_unary(self):
        if self.device.type == "npu":
            return DLDeviceType.kDLExtDev, self.device.index
        if self.device.type == "cpu" and not torch.cuda.is_available():
            return DLDeviceType.kDLCPU, 0
    return original(self)
