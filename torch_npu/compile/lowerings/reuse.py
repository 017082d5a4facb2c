"""Which values are stored, where Inductor would compute them again in each of their uses.

Inductor's rule counts reads and operations. On a device whose commands are fused from whatever it likes, three kinds of
value are worth storing that the rule would not store."""

import functools

import torch
from torch._inductor import ir
from torch._inductor.virtualized import V

from torch_npu.compile.lowerings.template import Template, known

# Functions that cost more than writing a result and reading it again.
HEAVY = frozenset(
    "acos acosh asin asinh atan atan2 atanh cos cosh digamma erf erfc erfcx erfinv exp exp2 expm1 fmod i0 i1 lgamma "
    "log log10 log1p log2 pow sigmoid sin sinh tan tanh".split()
)


# Nodes that _meet() looks at: derivatives are shorter.
NEAR = 12


def _is_worth_storing(data) -> bool:
    used = data.inner_fn_opcount().used_ops
    if "indirect_indexing" in used:
        return True
    if not HEAVY.isdisjoint(used):
        return not _meet(V.graph.current_node)
    return isinstance(data, ir.Pointwise) and any(_is_epilogue(data, name) for name in data.get_read_names())


def _meet(node) -> bool:
    """Do all uses of a value meet in one element by element result, as those of sigmoid in the gradient of silu do? A
    program computes the value once then, and nobody has to store it."""
    if node is None or not _same_points(node, node):
        return False
    place = {n: k for k, n in enumerate(node.graph.nodes)}
    ahead = set(node.users)
    for _ in range(NEAR):
        if not all(_same_points(n, node) for n in ahead):
            return False
        if len(ahead) == 1:
            return True
        first = min(ahead, key=place.__getitem__)
        ahead = (ahead - {first}) | set(first.users)
    return False


def _same_points(node, like) -> bool:
    value, other = node.meta.get("val"), like.meta.get("val")
    if not isinstance(value, torch.Tensor) or node.op != "call_function" or value.shape != other.shape:
        return False
    return node is like or torch.Tag.pointwise in getattr(node.target, "tags", ())


def _is_epilogue(data, name: str) -> bool:
    """What a product's or convolution's command can compute at its end costs nothing there, and its uses then read one
    tensor instead of the sum and all that is added to it: residuals, biases."""
    template = V.graph.try_get_buffer(name)
    return isinstance(template, Template) and known(template.get_numel(), data.get_numel())


def install() -> None:
    should_realize = ir.StorageBox.should_realize_on_reuse

    @functools.wraps(should_realize)
    def check(self, users, *args, **kwargs):
        if users > 1 and isinstance(self.data, (ir.Pointwise, ir.Reduction)) and self.data.get_device().type == "npu":
            if _is_worth_storing(self.data):
                return True
        return should_realize(self, users, *args, **kwargs)

    ir.StorageBox.should_realize_on_reuse = check
