"""Matrix products: a MATMUL command whose epilogue program is what Inductor fuses behind the product.

To Inductor a product is a template: a buffer that pointwise kernels over the same elements may join. The joined loops
run at the command's points (batch, m, n) and read the sum as `acc`."""

import sympy
import torch
from torch._inductor import ir, lowering
from torch._inductor.codegen.simd_kernel_features import SIMDKernelFeatures
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from torch_npu.compile import left_to_aten
from torch_npu.compile.kernel import NpuKernel
from torch_npu.compile.program import COMPUTE, compute_type
from torch_npu.compile.space import Space, plain

aten = torch.ops.aten
known = lambda a, b: V.graph.sizevars.statically_known_equals(a, b)  # noqa: E731


class Product(ir.TemplateBuffer):
    """The result of a MATMUL: [*batch, m, n], its dimensions in memory in this `order`."""

    def __init__(self, a, b, order: list[int] | None = None) -> None:
        *batch, m, k = a.get_size()
        size = [*batch, m, b.get_size()[-1]]
        self.order = order or list(range(len(size)))
        layout = ir.FixedLayout(a.get_device(), a.get_dtype(), [size[d] for d in self.order])
        super().__init__(layout, [a, b], make_kernel_render=None)
        self.k = k

    def ends(self) -> list[sympy.Expr]:
        """Where dimensions end in the flat index of the result."""
        ends = [sympy.S.One]
        for size in reversed(self.get_size()):
            ends.append(ends[-1] * size)
        return ends


def joins(product: Product, node) -> bool:
    """Whether these loops can run at the points of the product: addresses are offset and strides in (batch, m, n)."""
    ends = product.ends()
    for part in node.get_nodes():
        body = getattr(part, "_body", None)
        if body is None or part.is_reduction() or isinstance(getattr(part.node, "data", None), ir.Scatter):
            return False
        if body.indirect_vars or any(index.has(FloorDiv, ModularIndexing) for index in body.indexing_exprs.values()):
            return False
        loops = [(v, s) for v, s in zip(body.iter_vars, body.sizes[0]) if not known(s, 1)]
        end = sympy.S.One
        for (outer, _), (inner, size) in zip(reversed(loops[:-1]), reversed(loops)):
            end = end * size
            if any(known(end, e) for e in ends):
                continue
            # Two loops over one dimension of the product: they have to be one loop in every address.
            for index in map(sympy.expand, body.indexing_exprs.values()):
                if index.coeff(outer) != sympy.expand(index.coeff(inner) * size):
                    return False
    return True


class ProductKernel(NpuKernel):
    kind = "matmul"

    def __init__(self, product: Product, epilogue) -> None:
        count = V.graph.sizevars.simplify(product.get_numel())
        features = SIMDKernelFeatures(epilogue, count, sympy.S.One)
        super().__init__({"x": count, "r0_": sympy.S.One}, features=features)
        self.product = product

    def generate(self, epilogue) -> None:
        product = self.product
        self.space = Space(self.range_trees, [], shape=product.get_size(), order=product.order)
        for factor in product.inputs:
            layout = factor.get_layout()
            strides = tuple(plain(s) for s in layout.stride)
            self.leading.append((self.args.input(factor.get_name()), plain(layout.offset), strides))
        self.depth = plain(product.k)
        total = self.builder.emit("acc", type=compute_type(product.get_dtype()))
        (variables, _) = self.split_and_set_ranges((product.get_size(), []))
        V.ops.store(product.get_name(), product.get_layout().make_indexer()(variables), total)
        for node in epilogue:
            node.codegen(self.split_and_set_ranges(node.get_ranges()))


def factor(x):
    return ir.ExternKernel.realize_input(x)


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
