"""How Inductor compiles a graph for npu, where it has no hook. Nothing changes for graphs without npu tensors."""

import functools
import logging
import subprocess

import torch
from torch._inductor import config, dependencies
from torch._inductor.virtualized import V

from torch_npu import torch_seams
from torch_npu.compile.backend.scheduling import NpuScheduling
from torch_npu.compile.graph.nodes import computes_on_npu
from torch_npu.compile.inductor_settings import SETTINGS
from torch_npu.compile.lowerings import left_to_aten
from torch_npu.compile.run import cache_folder, replay

log = logging.getLogger("torch_npu.compile")
SCHEDULER = "torch._inductor.scheduler.Scheduler"


@torch_seams.replace(
    "torch._inductor.compile_fx._InProcessFxCompile",
    "codegen_and_compile",
    why="graphs are compiled with our settings, and again with an op left to aten that a program cannot express",
    until="settings can be given by device, and a lowering can be given up",
)
def until_carried(original, self, gm, example_inputs, inputs_to_check, graph_kwargs):
    if not computes_on_npu(gm):
        return original(self, gm, example_inputs, inputs_to_check, graph_kwargs)
    cache_folder.check()
    # The C++ of a model compiled ahead of time computes nothing: no need to try which vectors the compiler knows.
    ahead = {"cpp.vec_isa_ok": True} if V.aot_compilation else {"cpp_wrapper": False}
    if graph_kwargs.get("cpp_wrapper") and not V.aot_compilation:
        _say_python()
        graph_kwargs = {**graph_kwargs, "cpp_wrapper": False}
    with config.patch({**SETTINGS, **ahead}):
        while True:
            try:
                compiled = original(self, gm, example_inputs, inputs_to_check, graph_kwargs)
            except Exception as error:
                if not left_to_aten.retry_without(error):
                    raise
            else:
                replay.note_what_runs_on_cpu(gm, compiled)
                return compiled


@functools.cache
def _say_python() -> None:
    log.warning("torch.compile on npu generates Python: config.cpp_wrapper is for models compiled ahead of time there")


@torch_seams.replace(
    SCHEDULER,
    "create_backend",
    why="it asks for Triton on every device of GPU_TYPES except mps",
    until="it asks the backend",
)
def create_backend(original, self, device):
    if device.type != "npu":
        return original(self, device)
    V.graph.add_device_info(device)
    return NpuScheduling(self)


@torch_seams.replace(
    SCHEDULER,
    "score_fusion_memory",
    why="a product of [15, 7] and an activation over [3, 5, 7] have nothing in common, and stay apart",
    until="2.13",
)
def score_by_points(original, self, node1, node2, *args, **kwargs):
    found = original(self, node1, node2, *args, **kwargs)
    rest = found[1:] if isinstance(found, tuple) else ()
    if (found[0] if rest else found) or not node1.is_template() or node1.get_device().type != "npu":
        return found
    written = {d.normalize() for d in node1.read_writes.writes if isinstance(d, dependencies.MemoryDep)}
    reads = (d for d in node2.read_writes.reads if isinstance(d, dependencies.MemoryDep))
    shared = sum(self.dep_size_hint(d) for d in reads if d.normalize() in written)
    return (shared, *rest) if rest else shared


@torch_seams.replace(
    "torch._inductor.utils",
    "is_big_gpu",
    why="no templates in Triton, and no warning that the device is too small for them",
    until="it asks the backend",
)
def is_big_gpu(original, index_or_device=0):
    device = index_or_device
    return not (isinstance(device, torch.device) and device.type == "npu") and original(device)


@torch_seams.replace(
    "torch.utils._triton",
    "triton_hash_with_backend",
    why="where a GPU is, it is asked for graphs of any device, and expects RuntimeError only: Triton builds its driver "
    "then, and a C compiler that fails, or finds no Python.h, is another error",
    until="it is not asked for graphs without Triton",
)
def triton_hash(original):
    try:
        return original()
    except (OSError, subprocess.SubprocessError) as error:
        raise RuntimeError(f"Triton cannot be used: {error}") from error


@torch_seams.replace(
    "torch._inductor.compile_fx",
    "get_input_idxs_to_check",
    why="commands take any address, so no input has to be looked at",
    until="alignment is a property of the backend",
)
def inputs_to_check(original, inputs, static_input_idxs):
    found = original(inputs, static_input_idxs)
    return [k for k in found if inputs[k].device.type != "npu"]
