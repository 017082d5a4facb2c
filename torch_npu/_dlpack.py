"""torch's Tensor.__dlpack_device__ knows PrivateUse1 by its old name only, and calls every pinned tensor CUDA's."""

import torch
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType


def patch() -> None:
    original = torch.Tensor.__dlpack_device__
    if getattr(original, "_of_torch_npu", False):
        return

    def __dlpack_device__(self):
        if not has_torch_function_unary(self):
            if self.device.type == "npu":
                return DLDeviceType.kDLExtDev, self.device.index
            if self.device.type == "cpu" and not torch.cuda.is_available():
                return DLDeviceType.kDLCPU, 0  # pinned for the npu is plain memory for everyone else
        return original(self)

    __dlpack_device__._of_torch_npu = True
    torch.Tensor.__dlpack_device__ = __dlpack_device__
