"""Frozen inference (torch._inductor.config.freezing): parameters are constants of the compiled graph.

Inductor folds constants and batch norms by itself, on any device. What is added here: our settings hold for its passes
too, and weights of matrix products are stored as the device likes them best."""

import contextlib

import torch
from torch._inductor import config
from torch._inductor.constant_folding import replace_node_with_constant

from torch_npu import torch_seams
from torch_npu.compile.graph.nodes import on_npu, value_of
from torch_npu.compile.inductor_settings import SETTINGS

aten = torch.ops.aten

# With so few rows a product reads its weight once and computes little: [k, n] with n inside costs up to a third more
# than [n, k], where each result is one walk along memory. With many rows both are packed, at the same cost.
FEW_ROWS = 64


def _weights_by_result(gm: torch.fx.GraphModule) -> int:
    """Constant weights [k, n] of products with few rows are stored as [n, k]. Linear layers have them so already."""
    count = 0
    for node in gm.graph.nodes:
        if node.target not in (aten.mm.default, aten.addmm.default):
            continue
        rows, weight = node.args[-2:]
        if weight.op != "get_attr" or not on_npu(node) or len(weight.users) != 1:
            continue
        m, constant = value_of(rows).shape[0], getattr(gm, weight.target)
        if isinstance(m, int) and m <= FEW_ROWS and constant.is_contiguous() and min(constant.shape) > 1:
            with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
                replace_node_with_constant(gm, weight, constant.t().contiguous().t())
            count += 1
    if count:
        gm.graph.lint()
        gm.recompile()
    return count


@torch_seams.replace(
    "torch._inductor.freezing",
    "freeze",
    why="constant weights of products with few rows are stored as the device reads them best",
    until="a backend can register passes over frozen graphs",
)
def freeze(original, *args, **kwargs):
    gm, kept = original(*args, **kwargs)
    _weights_by_result(gm)
    return gm, kept


@torch_seams.replace(
    "torch._inductor.compile_fx",
    "fw_compiler_freezing",
    why="the passes over frozen graphs run outside of the compilation that our settings hold for",
    until="settings can be given by device",
)
def with_settings(original, aot_autograd_model, *args, **kwargs):
    ours = any(map(on_npu, aot_autograd_model.graph.nodes))
    with config.patch(SETTINGS) if ours else contextlib.nullcontext():
        return original(aot_autograd_model, *args, **kwargs)
