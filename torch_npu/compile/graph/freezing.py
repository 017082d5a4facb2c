"""Frozen inference (torch._inductor.config.freezing): parameters are constants of the compiled graph.

Inductor folds constants and batch norms by itself, on any device. What is added here: our settings hold for its passes
too, and weights of matrix products are stored as the device likes them best."""

import contextlib
import functools

import torch
from torch._inductor import compile_fx, config, freezing
from torch._inductor.constant_folding import replace_node_with_constant

from torch_npu.compile.graph.nodes import on_npu, value_of

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


def install(settings: dict) -> None:
    compile_frozen, freeze = compile_fx.fw_compiler_freezing, freezing.freeze

    @functools.wraps(compile_frozen)
    def with_settings(gm, *args, **kwargs):
        ours = any(map(on_npu, gm.graph.nodes))
        with config.patch(settings) if ours else contextlib.nullcontext():
            return compile_frozen(gm, *args, **kwargs)

    @functools.wraps(freeze)
    def prepacked(*args, **kwargs):
        gm, kept = freeze(*args, **kwargs)
        _weights_by_result(gm)
        return gm, kept

    compile_fx.fw_compiler_freezing = with_settings
    freezing.freeze = prepacked
