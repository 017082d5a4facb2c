"""Matrix products: a MATMUL command whose epilogue program is what Inductor fuses behind the product."""

import torch
from torch._inductor import ir

from torch_npu.compile.codegen.program import COMPUTE
from torch_npu.compile.codegen.space import plain
from torch_npu.compile.lowerings import table
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


@table.lower(aten.mm.default, aten.bmm.default)
def multiply(lowered, a, b, *rest, **options):
    if rest or any(v is not None for v in options.values()) or not takes(a, b):
        return lowered(a, b, *rest, **options)
    return ir.TensorBox.create(Product(factor(a), factor(b)))


@table.lower(aten.addmm.default, aten.baddbmm.default)
def add(lowered, c, a, b, *, alpha=1, beta=1, **options):
    """The sum is an epilogue like any other."""
    if any(v is not None for v in options.values()) or not takes(a, b, c):
        return lowered(c, a, b, alpha=alpha, beta=beta, **options)
    total = ir.TensorBox.create(Product(factor(a), factor(b)))
    total = total if alpha == 1 else table.call(aten.mul.Tensor, total, alpha)
    return (
        total
        if beta == 0
        else table.call(aten.add.Tensor, total, c if beta == 1 else table.call(aten.mul.Tensor, c, beta))
    )
