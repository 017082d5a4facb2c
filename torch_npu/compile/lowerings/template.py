"""Commands that run a program at each of their results: MATMUL (in product.py) and CONV (in convolution.py).

To Inductor such a command is a template: a buffer that pointwise kernels over the same elements may join. The joined
loops run at the command's points and read the sum as `acc`: they are its epilogue."""

import sympy
from torch._inductor import dependencies, ir
from torch._inductor.codegen.simd_kernel_features import SIMDKernelFeatures
from torch._inductor.virtualized import V, ops
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from torch_npu.compile.codegen.kernel import NpuKernel
from torch_npu.compile.codegen.program import compute_type
from torch_npu.compile.codegen.space import Space, numel, plain

known = lambda a, b: V.graph.sizevars.statically_known_equals(a, b)  # noqa: E731


class Template(ir.TemplateBuffer):
    """The result of a command: dense, its points in the order of memory having these sizes. The command has number d of
    them in the place order.index(d). `numbers` of the kernel's definition are what else the command has."""

    kind: str

    def __init__(self, layout: ir.FixedLayout, inputs, points, order: list[int], **numbers) -> None:
        self.points, self.order, self.numbers = list(points), order, numbers
        super().__init__(layout, inputs, make_kernel_render=None)

    def is_no_op(self) -> bool:
        return self.is_zero_elements()

    def place(self, variables) -> sympy.Expr:
        """The flat index of a point."""
        return sympy.Add(*[v * numel(self.points[k + 1 :]) for k, v in enumerate(variables)])

    def ends(self) -> list[sympy.Expr]:
        """Where dimensions end in the flat index of the result."""
        return [numel(self.points[k:]) for k in reversed(range(len(self.points) + 1))]

    def extract_read_writes(self, normalize: bool = False):
        """Written in the order of memory, which is how loops behind it read."""

        def store(index, _):
            return ops.store(self.get_name(), self.place(index), "fake")

        found = dependencies.extract_read_writes(store, self.points, (), normalize=normalize)
        found.reads |= super().extract_read_writes(normalize).reads
        return found


def factor(x):
    return ir.ExternKernel.realize_input(x)


def joins(template: Template, node) -> bool:
    """Whether these loops can run at the points of the template: addresses are offset and strides in its dimensions."""
    ends = template.ends()
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
            # Two loops over one dimension of the template: they have to be one loop in every address.
            for index in map(sympy.expand, body.indexing_exprs.values()):
                if index.coeff(outer) != sympy.expand(index.coeff(inner) * size):
                    return False
    return True


class TemplateKernel(NpuKernel):
    def __init__(self, template: Template, epilogue) -> None:
        count = V.graph.sizevars.simplify(template.get_numel())
        features = SIMDKernelFeatures(epilogue, count, sympy.S.One)
        super().__init__({"x": count, "r0_": sympy.S.One}, features=features)
        self.template = template
        self.kind = template.kind

    def generate(self, epilogue) -> None:
        template = self.template
        self.space = Space(self.range_trees, [], shape=template.points, order=template.order)
        for tensor in template.inputs:
            layout = tensor.get_layout()
            strides = tuple(plain(s) for s in layout.stride)
            self.leading.append((self.args.input(tensor.get_name()), plain(layout.offset), strides))
        total = self.builder.emit("acc", type=compute_type(template.get_dtype()))
        (variables, _) = self.split_and_set_ranges((template.points, []))
        V.ops.store(template.get_name(), template.place(variables), total)
        for node in epilogue:
            node.codegen(self.split_and_set_ranges(node.get_ranges()))
