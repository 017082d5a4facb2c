"""Wrapper code in C++: AOTInductor's, with kernels of ours, aten calls by name, and inputs that are checked.

A package must run where no Python is, and PyTorch has no C functions for aten ops on npu: every aten op that stays one
is written into the package's list of calls, which torch's proxy executor gives to the dispatcher."""

import functools
import math

import sympy
from torch._inductor import cpp_builder
from torch._inductor.codegen import cpp_utils
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.virtualized import V
from torch.utils._sympy.value_ranges import bound_sympy

from torch_npu._info import aoti_include_path, library_path
from torch_npu.compile.backend.wrapper import EstimatesPeak


class NpuCppWrapper(EstimatesPeak, CppWrapperCpu):
    def __init__(self) -> None:
        self.device = "npu"
        super().__init__()

    @staticmethod
    def create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures=None):
        return NpuCppWrapper()

    def call_kernel(self, name: str, tensors: list[str], numbers) -> None:
        values = ", ".join(f"torch_npu::number({self.codegen_sizevar(n)})" for n in numbers)
        self.writeline(f"{name}()({{{', '.join(tensors)}}}, {{{values}}});")

    def codegen_model_kernels(self) -> None:
        """Without members for kernels, which are functions."""
        kernels, self.src_to_kernel = self.src_to_kernel, {}
        super().codegen_model_kernels()
        self.src_to_kernel = kernels

    def generate_fallback_kernel(self, node) -> None:
        outputs = node.outputs if node.outputs else node.mutation_outputs
        if any(output is None or isinstance(output, sympy.Expr) for output in outputs):
            raise NotImplementedError(
                f"{node.op_overload} cannot be part of a model compiled ahead of time: expected tensors as results, "
                f"got {node.op_overload._schema.returns}"
            )
        self.generate_fallback_kernel_with_runtime_lookup(
            node.get_name(),
            node.python_kernel_name,
            lambda: [*node.codegen_args(), *node.codegen_kwargs()],
            node.op_overload,
            node.export_extern_kernel_node(),
            outputs,
        )

    def codegen_inputs(self) -> None:
        """Symbols get their values from the inputs' sizes. What the compiled code takes for granted is checked: kind
        and rank before, sizes and strides afterwards."""
        tensors = {n: v for n, v in self.get_graph_inputs().items() if not isinstance(v, sympy.Expr)}
        if V.graph.is_const_graph:
            tensors = {}
        names = {n: f'"{k}"' for k, n in enumerate(self.get_graph_inputs())}
        for name, value in tensors.items():
            kind, index = self.codegen_device(value.get_device()).split(", ")
            index = "this->device_idx_" if value.get_device().type == "npu" else index
            self.prefix.writeline(
                f"torch_npu::check(torch_npu_check_input({name}, {names[name]}, {kind}, {index}, "
                f"{self.codegen_dtype(value.get_dtype())}, {len(value.get_size())}));"
            )
        super().codegen_inputs()
        for name, value in tensors.items():
            for dim, size in enumerate(value.get_size()):
                self._check_range(names[name], dim, size)
            sizes, strides = (", ".join(map(self.codegen_sizevar, x)) for x in (value.get_size(), value.get_stride()))
            self.prefix.writeline(f"torch_npu::check_layout({name}, {names[name]}, {{{sizes}}}, {{{strides}}});")

    def _check_range(self, name: str, dim: int, size) -> None:
        if not isinstance(size, sympy.Symbol):
            return
        known = bound_sympy(size, V.graph.sizevars.shape_env.var_to_range)
        # Export takes every unknown size for 2 or more, also where the user said 1. The code holds for 0 and 1 too.
        lower = int(known.lower) if 2 < known.lower < math.inf else 0
        upper = -1 if math.isinf(known.upper) or known.upper > 2**62 else int(known.upper)
        if lower > 0 or upper >= 0:
            self.prefix.writeline(f"torch_npu::check(torch_npu_check_range({name}, {dim}, {size}, {lower}, {upper}));")


def _with_our_headers(device_options):
    """Models for npu see our headers and are linked to libtorch_npu, which is there wherever one is loaded."""

    @functools.wraps(device_options)
    def options(device_type: str, *args, **kwargs):
        found = device_options(device_type, *args, **kwargs)
        if device_type == "npu":
            _, includes, _, link_flags, folders, libraries, _ = found
            includes.insert(0, aoti_include_path())
            # With a compiler that links libstdc++ statically, its symbols must not mix with those of torch's libraries.
            link_flags.append("Wl,--exclude-libs,ALL")
            folders.append(library_path())
            libraries.append("torch_npu")
        return found

    return options


def register() -> None:
    cpp_utils.DEVICE_TO_ATEN.setdefault("npu", "at::kPrivateUse1")
    cpp_builder.get_cpp_torch_device_options = _with_our_headers(cpp_builder.get_cpp_torch_device_options)
