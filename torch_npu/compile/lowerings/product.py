"""Matrix products: a MATMUL command whose epilogue program is what Inductor fuses behind the product."""

import torch
from torch._inductor import ir, lowering

from torch_npu.compile.codegen.program import COMPUTE
from torch_npu.compile.codegen.space import plain
from torch_npu.compile.lowerings import left_to_aten
from torch_npu.compile.lowerings.template import Template, factor

aten = torch.ops.aten


class Product(Template):
    """The result of a MATMUL: [*batch, m, n], its dimensions in memory in this `order`."""

    kind = "matmul"

    def __init__(self, a, b, order: list[int] | None = None) -> None:
        *batch, m, k = a.get_size()
        size = [*batch, m, b.get_size()[-1]]
        order = order or list(range(len(size)))
        layout = ir.FixedLayout(a.get_device(), a.get_dtype(), [size[d] for d in order])
        super().__init__(layout, [a, b], layout.size, order, k=plain(k))


def takes(*tensors) -> bool:
    dtypes = {t.get_dtype() for t in tensors}
    return len(dtypes) == 1 and dtypes <= COMPUTE.keys() - {torch.bool}


def _product(lowered):
    def multiply(a, b, *rest, **options):
        if rest or any(v is not None for v in options.values()) or not takes(a, b):
            return lowered(a, b, *rest, **options)
        return ir.TensorBox.create(Product(factor(a), factor(b)))

    return multiply


def _added(multiply, lowered):
    """addmm and baddbmm: the sum is an epilogue like any other."""

    def add(c, a, b, *, alpha=1, beta=1, **options):
        if any(v is not None for v in options.values()) or not takes(a, b, c):
            return lowered(c, a, b, alpha=alpha, beta=beta, **options)
        scale, plus = lowering.lowerings[aten.mul.Tensor], lowering.lowerings[aten.add.Tensor]
        total = multiply(a, b)
        total = total if alpha == 1 else scale(total, alpha)
        return total if beta == 0 else plus(total, c if beta == 1 else scale(c, beta))

    return add


def register() -> None:
    for plain_op, added_op in ((aten.mm.default, aten.addmm.default), (aten.bmm.default, aten.baddbmm.default)):
        multiply = _product(lowering.lowerings[plain_op])
        added = _added(multiply, lowering.lowerings[added_op])
        left_to_aten.replace_lowering(plain_op, multiply)
        left_to_aten.replace_lowering(added_op, added)
