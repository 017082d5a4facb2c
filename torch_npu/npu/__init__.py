"""torch.npu: the device module, with the names, arguments and errors of torch.cuda."""

from torch import OutOfMemoryError
from torch._C import AcceleratorError

from torch_npu.npu import _utils, amp, memory, random
from torch_npu.npu import legacy as _legacy
from torch_npu.npu._lazy import _is_in_bad_fork, _lazy_call, _lazy_init, init, is_initialized
from torch_npu.npu.device import (
    DeviceProperties,
    _exchange_device,
    _maybe_exchange_device,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_amp_supported_dtype,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    ipc_collect,
    is_available,
    is_bf16_supported,
    reset_device,
    set_device,
    synchronize,
)
from torch_npu.npu.graphs import (
    NPUGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)
from torch_npu.npu.memory import (
    MemPool,
    empty_cache,
    get_per_process_memory_fraction,
    host_memory_stats,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)
from torch_npu.npu.precision import matmul
from torch_npu.npu.random import (
    _get_generator,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_npu.npu.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

globals().update(_legacy.types())


def __getattr__(name: str):
    if name == "default_generators":  # one per device; asking for them loads the drivers
        from torch_npu import _C

        _lazy_init()
        return tuple(_C.default_generator(i) for i in range(device_count()))
    if name == "_initialized":  # torch.utils.checkpoint asks for it to know whether there is a state to save
        return is_initialized()
    raise AttributeError(f"module 'torch.npu' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), "default_generators"]


# As torch.cuda's: what a user calls, with the tensor types.
__all__ = [name for name in globals() if not name.startswith("_")] + ["default_generators"]
