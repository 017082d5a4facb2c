"""What Dynamo and Inductor ask of a device, answered by torch.npu."""

import torch
from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device

from torch_npu import _C, npu


class NpuInterface(DeviceInterface):
    device = npu.device
    Event = npu.Event
    Stream = npu.Stream

    current_device = staticmethod(npu.current_device)
    set_device = staticmethod(npu.set_device)
    device_count = staticmethod(npu.device_count)
    is_available = staticmethod(npu.is_available)
    stream = staticmethod(npu.stream)
    current_stream = staticmethod(npu.current_stream)
    set_stream = staticmethod(npu.set_stream)
    synchronize = staticmethod(npu.synchronize)
    exchange_device = staticmethod(npu._exchange_device)
    maybe_exchange_device = staticmethod(npu._maybe_exchange_device)
    memory_allocated = staticmethod(npu.memory_allocated)

    class Worker:
        """Asked in Inductor's compile workers too, which have no device: properties are those of the parent."""

        set_device = staticmethod(npu.set_device)
        current_device = staticmethod(npu.current_device)
        get_device_properties = staticmethod(npu.get_device_properties)

    @staticmethod
    def get_raw_stream(device_index: int) -> int:
        """Kernels take the current stream by themselves; generated code only carries this number around."""
        return 0

    @staticmethod
    def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
        npu.set_stream(npu.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))

    @staticmethod
    def get_compute_capability(device=None) -> str:
        """Part of the key of cached code: programs do not depend on the driver, so nothing about it is in here."""
        return ""

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return True

    @staticmethod
    def is_dtype_supported(dtype: torch.dtype, including_emulation: bool = False) -> bool:
        return True

    @staticmethod
    def is_triton_capable(device=None) -> bool:
        return False

    @staticmethod
    def raise_if_triton_unavailable(device=None) -> None:
        raise RuntimeError("expected a kernel of torch_npu, got one in Triton, which npu devices do not run")


def register() -> None:
    register_interface_for_device("npu", NpuInterface)
    for index in range(_C.device_count()):
        register_interface_for_device(f"npu:{index}", NpuInterface)


register()
