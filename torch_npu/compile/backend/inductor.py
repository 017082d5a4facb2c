"""Makes Inductor generate programs for npu: scheduling, wrapper code, device code, and what its lists leave out."""

import functools
import logging
import subprocess

import torch
import torch.utils._triton
from torch._inductor import compile_fx, config, dependencies, ir, lowering, scheduler, utils
from torch._inductor.codegen.common import (
    DeviceOpOverrides,
    get_device_op_overrides,
    register_backend_for_device,
    register_device_op_overrides,
)
from torch._inductor.virtualized import V

from torch_npu.compile import settings
from torch_npu.compile.backend import cpp_wrapper, order
from torch_npu.compile.backend.cpp_wrapper import NpuCppWrapper
from torch_npu.compile.backend.scheduling import NpuScheduling
from torch_npu.compile.backend.wrapper import NpuWrapper
from torch_npu.compile.graph import batches, freezing, partition, patterns
from torch_npu.compile.lowerings import (
    ahead_of_time,
    concatenation,
    conv_as_product,
    convolution,
    decompositions,
    left_to_aten,
    product,
    reuse,
)
from torch_npu.compile.run import autotune, cache_folder, replay
from torch_npu.compile.trace import layouts

log = logging.getLogger("torch_npu.compile")

# Layouts that pay on GPUs: our commands take any strides, and convolutions prefer what they are given.
SETTINGS = {
    "layout_optimization": False,
    "comprehensive_padding": False,
    "online_softmax": False,  # two plain folds are two segments of one command
    "triton.mix_order_reduction": False,
    # A value of more operations than this that several loops use is stored by the first and loaded by the others. In
    # one command the row is still at hand, so that pays sooner than on GPUs, which have 30: a norm's gradient would
    # compute exponentials twice, every head of attention its own sine.
    "realize_opcount_threshold": 8,
    "epilogue_fusion_first": True,  # a sum that the next reduction needs as well is stored by the product before it
    "alignment_asserts": False,  # commands take any address
    "graph_partition": False,  # whole graphs are captured, or not
    "triton.autotune_at_compile_time": False,  # on by itself for a package where Triton and a GPU are
}


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
    # The list of devices whose kernels are launched, not called: it decides about fusion, about 0-d CPU tensors as
    # arguments of kernels, about moving constants.
    _one_gpu_type()
    utils.GPU_TYPES.append("npu")
    utils.get_gpu_type()
    register_backend_for_device("npu", NpuScheduling, NpuWrapper, NpuCppWrapper, device_custom_config=settings)
    get_device_op_overrides("cpu")  # before 2.13 the devices that PyTorch knows are added to an empty list only
    register_device_op_overrides("npu", NpuDeviceOps())
    left_to_aten.leave_what_is_known()
    logging.getLogger(scheduler.__name__).addFilter(left_to_aten.quiet)
    autotune.register_benchmarker()
    decompositions.register()
    layouts.register()
    logging.getLogger(ir.__name__).addFilter(left_to_aten.quiet_about_names)
    product.register()
    batches.install()
    cpp_wrapper.register()
    ahead_of_time.register()
    convolution.register()
    conv_as_product.register()
    patterns.install()
    concatenation.register()
    freezing.install(SETTINGS)
    replay.install()
    partition.install(_on_npu)
    order.install()
    for name in ("argmax", "argmin"):
        op = getattr(torch.ops.aten, name).default
        left_to_aten.replace_lowering(op, _logical_position(lowering.lowerings[op]))
    # Inductor has no hooks in these places. Nothing changes for graphs without npu tensors.
    scheduler.Scheduler.create_backend = _without_triton(scheduler.Scheduler.create_backend)
    compiler = compile_fx._InProcessFxCompile
    compiler.codegen_and_compile = _until_carried(compiler.codegen_and_compile)
    reuse.install()
    if torch.__version__ < (2, 13):
        scheduler.Scheduler.score_fusion_memory = _by_points(scheduler.Scheduler.score_fusion_memory)
    utils.is_big_gpu = _without_templates(utils.is_big_gpu)
    triton = torch.utils._triton
    triton.triton_hash_with_backend = _with_runtime_errors(triton.triton_hash_with_backend)
    compile_fx.get_input_idxs_to_check = _without_alignment(compile_fx.get_input_idxs_to_check)


def _one_gpu_type() -> None:
    """Inductor asks once which of GPU_TYPES the machine has, and stops if there are two. Where there is a GPU it gets
    its answer now, and moves no constants of npu graphs to the device; else the answer is npu."""
    if any(getattr(torch, kind).is_available() for kind in utils.GPU_TYPES):
        utils.get_gpu_type()


def _logical_position(lowered):
    """argmax over all of a tensor counts in the order of its dimensions. Inductor counts in the order of memory, except
    for Triton; over one dimension there is no difference."""

    def find(x, axis=None, keepdims=False):
        rank = len(x.get_size())
        if axis is not None or rank < 2:
            return lowered(x, axis, keepdims)
        view = lowering.lowerings[torch.ops.aten.view.default]
        found = lowered(view(x, [-1]), 0, False)
        return view(found, [1] * rank) if keepdims else found

    return find


def _without_triton(create_backend):
    """Inductor asks for Triton on every device of GPU_TYPES except mps."""

    @functools.wraps(create_backend)
    def create(self, device):
        if device.type != "npu":
            return create_backend(self, device)
        V.graph.add_device_info(device)
        return NpuScheduling(self)

    return create


def _without_templates(is_big_gpu):
    """No Triton templates, and no warning that the device is too small for them."""

    @functools.wraps(is_big_gpu)
    def check(device=0):
        return not (isinstance(device, torch.device) and device.type == "npu") and is_big_gpu(device)

    return check


def _until_carried(codegen_and_compile):
    """Compiles with our settings, and again with an op left to aten where a program cannot express it."""

    @functools.wraps(codegen_and_compile)
    def compile(self, graph, example_inputs, inputs_to_check, graph_kwargs):
        if not _on_npu(graph):
            return codegen_and_compile(self, graph, example_inputs, inputs_to_check, graph_kwargs)
        cache_folder.check()
        # The C++ of a model compiled ahead of time computes nothing: no need to try which vectors the compiler knows.
        ahead = {"cpp.vec_isa_ok": True} if V.aot_compilation else {"cpp_wrapper": False}
        if graph_kwargs.get("cpp_wrapper") and not V.aot_compilation:
            _say_python()
            graph_kwargs = {**graph_kwargs, "cpp_wrapper": False}
        with config.patch({**SETTINGS, **ahead}):
            while True:
                try:
                    compiled = codegen_and_compile(self, graph, example_inputs, inputs_to_check, graph_kwargs)
                except Exception as error:
                    if not left_to_aten.retry_without(error):
                        raise
                else:
                    replay.note_what_runs_on_cpu(graph, compiled)
                    return compiled

    return compile


def _by_points(score_fusion_memory):
    """Before 2.13 a product of [15, 7] and an activation over [3, 5, 7] have nothing in common, and stay apart."""

    @functools.wraps(score_fusion_memory)
    def score(self, node1, node2, *args, **kwargs):
        found = score_fusion_memory(self, node1, node2, *args, **kwargs)
        rest = found[1:] if isinstance(found, tuple) else ()
        if (found[0] if rest else found) or not node1.is_template() or node1.get_device().type != "npu":
            return found
        written = {d.normalize() for d in node1.read_writes.writes if isinstance(d, dependencies.MemoryDep)}
        reads = (d for d in node2.read_writes.reads if isinstance(d, dependencies.MemoryDep))
        shared = sum(self.dep_size_hint(d) for d in reads if d.normalize() in written)
        return (shared, *rest) if rest else shared

    return score


@functools.cache
def _say_python() -> None:
    log.warning("torch.compile on npu generates Python: config.cpp_wrapper is for models compiled ahead of time there")


def _on_npu(graph: torch.fx.GraphModule) -> bool:
    values = (v for n in graph.graph.nodes for v in torch.utils._pytree.tree_leaves(n.meta.get("val")))
    return any(isinstance(v, torch.Tensor) and v.device.type == "npu" for v in values)


def _with_runtime_errors(triton_hash_with_backend):
    """PyTorch asks Triton for its hash where there is a GPU, whatever the graph is for, and goes on without it after a
    RuntimeError. Triton builds its driver then: a C compiler that fails, or finds no Python.h, is another error."""

    @functools.wraps(triton_hash_with_backend)
    def ask():
        try:
            return triton_hash_with_backend()
        except (OSError, subprocess.SubprocessError) as error:
            raise RuntimeError(f"Triton cannot be used: {error}") from error

    return ask


def _without_alignment(inputs_to_check):
    """Commands take any address, so no input has to be looked at."""

    @functools.wraps(inputs_to_check)
    def check(inputs, static_input_idxs):
        found = inputs_to_check(inputs, static_input_idxs)
        return [k for k in found if inputs[k].device.type != "npu"]

    return check


register()
