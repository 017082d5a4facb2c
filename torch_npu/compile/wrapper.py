"""Wrapper code: Inductor's Python, with memory from our allocator in one call."""

from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen


class NpuWrapper(PythonWrapperCodegen):
    @staticmethod
    def create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures=None):
        if is_subgraph:
            return SubgraphPythonWrapperCodegen(subgraph_name, parent_wrapper, partition_signatures)
        return NpuWrapper()

    def write_header(self) -> None:
        super().write_header()
        self.header.writeline("from torch_npu.compile.runtime import empty_strided_npu, npu_kernel")

    def make_allocation(self, name, device, dtype, shape, stride, allocation_shape=None, is_pinned=False):
        line = super().make_allocation(name, device, dtype, shape, stride, allocation_shape, is_pinned)
        general, fast = f"{name} = empty_strided(", f", device='npu', dtype={dtype})"
        if device.type == "npu" and line.startswith(general) and fast in line:
            line = line.replace(general, f"{name} = empty_strided_npu(").replace(fast, f", {dtype})")
        return line
