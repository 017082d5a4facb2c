"""Rewrites of a model's graph before autograd sees it: hand-written forms of what one op or one command does.

This is the place where a model still says what it means: `softmax` is one node and not five, and there is no gradient
yet: it will be that of the new form. A pattern is replaced only if nothing between its first and its last node changes
a tensor in place. `counters["inductor"]["npu_<pattern>"]` of torch._dynamo.utils counts replacements.
docs/design/compile.md says which patterns there are."""

from torch.fx import Graph

from torch_npu import torch_seams
from torch_npu.compile import settings
from torch_npu.compile.graph import attention, rotary
from torch_npu.compile.graph.nodes import on_npu


def rewrite(graph: Graph) -> int:
    """Returns how often something was replaced."""
    return attention.rewrite(graph) + rotary.rewrite(graph)


@torch_seams.replace(
    "torch._inductor.compile_fx",
    "pre_grad_passes",
    why="attention and rotary embeddings written by hand are recognised before autograd takes them apart",
    until="a backend can register passes over graphs in front of autograd",
)
def then_ours(original, gm, *args, **kwargs):
    gm = original(gm, *args, **kwargs)
    if settings.patterns and any(on_npu(n) for n in gm.graph.nodes) and rewrite(gm.graph):
        gm.graph.lint()
        gm.recompile()
    return gm
