"""Makes Inductor generate programs for npu: scheduling, wrapper code, device code, and what its lists leave out."""

import logging

import torch
from torch._inductor import ir, scheduler, utils
from torch._inductor.codegen.common import (
    DeviceOpOverrides,
    get_device_op_overrides,
    register_backend_for_device,
    register_device_op_overrides,
)

from torch_npu import torch_seams
from torch_npu.compile import settings

# These replace something, or lower an op, when they are imported.
from torch_npu.compile.backend import compilation, order  # noqa: F401
from torch_npu.compile.backend.cpp_wrapper import NpuCppWrapper
from torch_npu.compile.backend.scheduling import NpuScheduling
from torch_npu.compile.backend.wrapper import NpuWrapper
from torch_npu.compile.graph import batches, freezing, partition, patterns  # noqa: F401
from torch_npu.compile.lowerings import (  # noqa: F401
    concatenation,
    conv_as_product,
    decompositions,
    left_to_aten,
    pooling,
    product,
    reuse,
)
from torch_npu.compile.run import autotune
from torch_npu.compile.trace import layouts  # noqa: F401


class NpuDeviceOps(DeviceOpOverrides):
    """Lines of generated code that concern the device."""

    def import_get_raw_stream_as(self, name: str) -> str:
        return f"from torch_npu.compile.run.runtime import get_raw_stream as {name}"

    def set_device(self, device_idx: int) -> str:
        return "pass"  # generated code says so behind the guard only

    def synchronize(self) -> str:
        return "torch.npu.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"device_guard({device_idx})"

    def current_stream(self) -> str:
        return "torch.npu.current_stream()"

    def cpp_aoti_stream_guard(self) -> str:
        return "torch_npu::StreamGuard"

    def cpp_kernel_type(self) -> str:
        return "void*"


def register() -> None:
    if "npu" in utils.GPU_TYPES:
        return
    _one_gpu_type()
    launched = torch_seams.extend(
        "torch._inductor.utils",
        "GPU_TYPES",
        why="devices whose kernels are launched, not called: it decides about fusion and about arguments of kernels",
        until="Inductor asks the backend",
    )
    launched.append("npu")
    utils.get_gpu_type()
    register_backend_for_device("npu", NpuScheduling, NpuWrapper, NpuCppWrapper, device_custom_config=settings)
    get_device_op_overrides("cpu")  # before 2.13 the devices that PyTorch knows are added to an empty list only
    register_device_op_overrides("npu", NpuDeviceOps())
    left_to_aten.leave_what_is_known()
    logging.getLogger(scheduler.__name__).addFilter(left_to_aten.quiet)
    autotune.register_benchmarker()
    logging.getLogger(ir.__name__).addFilter(left_to_aten.quiet_about_names)


def _one_gpu_type() -> None:
    """Inductor asks once which of GPU_TYPES the machine has, and stops if there are two. Where there is a GPU it gets
    its answer now, and moves no constants of npu graphs to the device; else the answer is npu."""
    if any(getattr(torch, kind).is_available() for kind in utils.GPU_TYPES):
        utils.get_gpu_type()


register()
