"""Wrapper code: Inductor's Python, with memory from our allocator in one call."""

from torch._inductor.codegen.simd import pexpr
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen


class _Peak:
    """Inductor's estimate of memory between two kernels; also between those that a fused node was cut into."""

    def __init__(self, estimate):
        self.estimate = estimate

    def __getattr__(self, name):
        return getattr(self.estimate, name)

    def peak_between(self, free, allocation):
        if free.scheduler_node_index >= allocation.scheduler_node_index:
            return 0
        return self.estimate.peak_between(free, allocation)

    def update_peak_between(self, free, allocation):
        if free.scheduler_node_index < allocation.scheduler_node_index:
            self.estimate.update_peak_between(free, allocation)


class EstimatesPeak:
    @property
    def estimate_peak(self):
        return self._estimate_peak

    @estimate_peak.setter
    def estimate_peak(self, estimate):
        self._estimate_peak = _Peak(estimate)


class _Lines:
    """What a graph and the graphs inside it (branches, bodies of loops) have in common."""

    def call_kernel(self, name: str, tensors: list[str], numbers) -> None:
        self.writeline(f"{name}({', '.join([*tensors, *map(pexpr, numbers)])})")

    def make_allocation(self, name, device, dtype, shape, stride, allocation_shape=None, is_pinned=False):
        line = super().make_allocation(name, device, dtype, shape, stride, allocation_shape, is_pinned)
        general, fast = f"{name} = empty_strided(", f", device='npu', dtype={dtype})"
        if device.type == "npu" and line.startswith(general) and fast in line:
            line = line.replace(general, f"{name} = empty_strided_npu(").replace(fast, f", {dtype})")
        return line

    def _codegen_assert_size_stride(self, code, name, size, stride, op_name) -> None:
        """PyTorch's check takes 1 us (from 2.13 on it can be replaced). It is left to say what is wrong."""
        code.writeline(
            f"has_layout({name}, {size}, {stride}) or assert_size_stride({name}, {size}, {stride}, {op_name!r})"
        )


class NpuSubgraphWrapper(_Lines, EstimatesPeak, SubgraphPythonWrapperCodegen):
    pass


class NpuWrapper(_Lines, EstimatesPeak, PythonWrapperCodegen):
    @staticmethod
    def create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures=None):
        if is_subgraph:
            return NpuSubgraphWrapper(subgraph_name, parent_wrapper, partition_signatures)
        return NpuWrapper()

    def write_header(self) -> None:
        super().write_header()
        self.header.writeline(
            "from torch_npu.compile.run.runtime import device_guard, empty_strided_npu, has_layout, npu_kernel"
        )
