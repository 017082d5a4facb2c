"""Which values are stored, where Inductor would compute them again in each of their uses.

Inductor's rule counts reads and operations. On a device whose commands are fused from whatever it likes, three kinds of
value are worth storing that the rule would not store."""

import functools

from torch._inductor import ir
from torch._inductor.virtualized import V

from torch_npu.compile.product import Product, known

# Functions that cost more than writing a result and reading it again.
HEAVY = frozenset(
    "acos acosh asin asinh atan atan2 atanh cos cosh digamma erf erfc erfcx erfinv exp exp2 expm1 fmod i0 i1 lgamma "
    "log log10 log1p log2 pow sigmoid sin sinh tan tanh".split()
)


def _is_worth_storing(data) -> bool:
    used = data.inner_fn_opcount().used_ops
    if not HEAVY.isdisjoint(used) or "indirect_indexing" in used:
        return True
    return isinstance(data, ir.Pointwise) and any(_is_epilogue(data, name) for name in data.get_read_names())


def _is_epilogue(data, name: str) -> bool:
    """What a product's command can compute at its end costs nothing there, and its uses then read one tensor instead of
    the product and all that is added to it: residuals, biases."""
    product = V.graph.try_get_buffer(name)
    return isinstance(product, Product) and known(product.get_numel(), data.get_numel())


def install() -> None:
    should_realize = ir.StorageBox.should_realize_on_reuse

    @functools.wraps(should_realize)
    def check(self, users, *args, **kwargs):
        if users > 1 and isinstance(self.data, (ir.Pointwise, ir.Reduction)) and self.data.get_device().type == "npu":
            if _is_worth_storing(self.data):
                return True
        return should_realize(self, users, *args, **kwargs)

    ir.StorageBox.should_realize_on_reuse = check
