"""Rewrites of a model's graph before autograd sees it: hand-written forms of what one op or one command does.

This is the place where a model still says what it means: `softmax` is one node and not five, and there is no gradient
yet: it will be that of the new form. A pattern is replaced only if nothing between its first and its last node changes
a tensor in place. `counters["inductor"]["npu_<pattern>"]` of torch._dynamo.utils counts replacements.
docs/design/compile.md says which patterns there are."""

import functools

from torch._inductor import compile_fx
from torch.fx import Graph

from torch_npu.compile import settings
from torch_npu.compile.graph import attention, rotary
from torch_npu.compile.graph.nodes import on_npu


def rewrite(graph: Graph) -> int:
    """Returns how often something was replaced."""
    return attention.rewrite(graph) + rotary.rewrite(graph)


def install() -> None:
    passes = compile_fx.pre_grad_passes

    @functools.wraps(passes)
    def with_ours(gm, *args, **kwargs):
        gm = passes(gm, *args, **kwargs)
        if settings.patterns and any(on_npu(n) for n in gm.graph.nodes) and rewrite(gm.graph):
            gm.graph.lint()
            gm.recompile()
        return gm

    compile_fx.pre_grad_passes = with_ours
