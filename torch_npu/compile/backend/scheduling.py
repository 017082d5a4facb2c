"""Which loops become one kernel, and where its definition goes."""

from torch._inductor import config, ir
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.scheduler import WhyNoFuse
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata, sympy_product
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from torch_npu.compile import settings
from torch_npu.compile.codegen.definition import KERNEL_NAME
from torch_npu.compile.codegen.kernel import NpuKernel
from torch_npu.compile.codegen.program import TooLarge, Unsupported
from torch_npu.compile.lowerings.template import TemplateKernel, joins


class NpuScheduling(SIMDScheduling):
    kernel_type = NpuKernel

    def get_backend_features(self, device):
        # Sorts and searches stay aten's: a program has no such instruction.
        return OrderedSet(
            [
                BackendFeature.INPLACE_BUFFERS,
                BackendFeature.TUPLE_REDUCTION,
                BackendFeature.MASKED_SCATTER_WITH_INDEX,
                BackendFeature.REDUCE_TO_SINGLE_ELEMENT,
            ]
        )

    @classmethod
    def get_tiling_and_scores(cls, node_schedule, numel, reduction_numel=1, coalesce_analysis=None):
        # One tree of points and one of what is folded: a command has dimensions enough to need no tiles.
        return cls.create_tiling([numel], [reduction_numel]), None

    def can_fuse(self, node1, node2):
        if reason := self._apart(node1, node2):
            WhyNoFuse(node1, node2)(reason)
            return False
        return super().can_fuse(node1, node2)

    def _apart(self, node1, node2) -> str:
        """Why two nodes that Inductor would fuse cannot be one command; empty if they can."""
        nodes = [*node1.get_nodes(), *node2.get_nodes()]
        if node2.is_template():
            return "nothing runs in front of a product or convolution"
        if node1.is_template():
            if not node1.get_buffer_names() & {d.name for d in node2.read_writes.reads}:
                return "nothing of its result is read"
            if not joins(node1.get_template_node(), node2):
                return "addresses that are not those of its result"
            return "a reduction computes it" if _only_reduced(node1, node2) else ""
        if self._follows_product(node1) and _only_reduced(node1, node2):
            return "a reduction computes it, and the rest belongs to a template"
        if node1.is_reduction() and node2.is_reduction() and node1.group[1] != node2.group[1]:
            return "rows of different lengths"
        if any(n.is_reduction() for n in nodes) and any(_is_scatter(n) for n in nodes):
            return "a scatter beside a reduction"
        if any(_is_scan(n) for n in nodes) and any(n.is_reduction() and not _is_scan(n) for n in nodes):
            return "a scan beside a reduction"
        accesses = len({d for n in nodes for d in n.read_writes.reads | n.read_writes.writes})
        operations = len(frozenset().union(*map(_operations, nodes)))
        if accesses > settings.max_accesses or operations > settings.max_operations:
            return f"{accesses} accesses and {operations} operations"
        return ""

    def _follows_product(self, node) -> bool:
        """Whether a product may take these loops as its epilogue."""
        buffers = (self.scheduler.name_to_buf.get(d.name) for d in node.read_writes.reads)
        products = (b.defining_op for b in buffers if b is not None and b.defining_op.is_template())
        return any(joins(p.get_template_node(), node) for p in products)

    can_fuse_vertical = can_fuse_horizontal = can_fuse

    def codegen_node_schedule(self, kernel_features):
        nodes = list(kernel_features.scheduler_nodes())
        try:
            super().codegen_node_schedule(kernel_features)
        except TooLarge as error:
            if len(nodes) == 1:
                failure = Unsupported(f"{error}".splitlines()[0])
                failure.ops = _targets(nodes)
                raise failure from error
            self._codegen_apart(nodes)
        except Unsupported as failure:
            failure.ops = failure.ops or _targets(nodes)
            raise

    def codegen_template(self, template_node, epilogue_nodes, prologue_nodes, *, only_gen_src_code=False, **_):
        try:
            self._codegen_command(template_node, epilogue_nodes)
        except (TooLarge, Unsupported):
            if not epilogue_nodes:
                raise
            self._codegen_apart(epilogue_nodes, lambda: self._codegen_command(template_node, []))

    def _codegen_apart(self, nodes, first=lambda: None) -> None:
        """A command for each node of a fused one. What that one is the last to read is freed behind all of them."""
        scheduler = self.scheduler
        waiting, scheduler.buffer_names_to_free = scheduler.buffer_names_to_free, OrderedSet()
        first()
        for node in nodes:
            self._codegen_nodes([node])
        scheduler.buffer_names_to_free = waiting
        scheduler.free_buffers()

    def _codegen_command(self, template_node, epilogue) -> None:
        kernel = TemplateKernel(template_node.node, epilogue)
        with kernel:
            kernel.generate(epilogue)
        nodes = [template_node, *epilogue]
        with V.set_kernel_handler(kernel):
            definition = kernel.codegen_kernel()
            for node in nodes:
                node.mark_run()
        kernel.kernel_name = self.define_kernel(definition, nodes, kernel)
        self.codegen_comment(nodes)
        kernel.call_kernel(kernel.kernel_name)
        V.graph.removed_buffers |= kernel.removed_buffers
        V.graph.inplaced_to_remove |= kernel.inplaced_to_remove
        self.scheduler.free_buffers()

    def define_kernel(self, src_code, node_schedule, kernel):
        wrapper = V.graph.wrapper_code
        if src_code in wrapper.src_to_kernel:
            return wrapper.src_to_kernel[src_code]
        fused = get_fused_kernel_name(node_schedule, config.triton.descriptive_names)
        name = "_".join(["npu", fused, wrapper.next_kernel_suffix()])
        wrapper.src_to_kernel[src_code] = name
        origins, detailed_origins = get_kernel_metadata(node_schedule, wrapper)
        wrapper.define_kernel(name, src_code.replace(KERNEL_NAME, name), f"{origins}\n{detailed_origins}", gpu=False)
        return name


def _targets(nodes):
    """The aten ops that these loops came from."""
    origins = [o for n in nodes if n.node is not None for o in n.node.get_origins()]
    return tuple(dict.fromkeys(o.target for o in origins if o.op == "call_function"))


def _only_reduced(product, node) -> bool:
    """Whether nobody but reductions over the same points reads the node, and the product stores what the node reads of
    it anyway: an epilogue would read and write memory that the reductions need not."""
    inside = set(node.get_nodes())
    users = [u for n in inside for buffer in n.get_outputs() for u in buffer.users if u.node not in inside]
    points = node.group[1][0]
    if not users or any(u.is_weak or not u.node.is_reduction() or _is_scan(u.node) for u in users):
        return False
    if any(sympy_product(u.node.group[1]) != points for u in users):
        return False
    reads = {d.name for d in node.read_writes.reads}
    stored = [b for n in product.get_nodes() for b in n.get_outputs() if b.get_name() in reads]
    return all(any(u.node not in inside for u in b.users if not u.is_weak) for b in stored)


def _is_scatter(node) -> bool:
    return isinstance(getattr(node.node, "data", None), ir.Scatter)


def _is_scan(node) -> bool:
    return isinstance(getattr(node.node, "data", None), ir.Scan)


def _operations(node) -> frozenset[int]:
    """One number for each operation of a loop: the same operation of the same values has the same. Inductor writes an
    operation down wherever its value is used, again and again; a program computes it once."""
    found = getattr(node, "_npu_operations", None)
    body = getattr(node, "_body", None)
    if found is not None or body is None:
        return found or frozenset()
    numbers = set()
    for block in (body.root_block, *body.subblocks.values()):
        of: dict = {}
        for n in block.graph.nodes:
            if n.op == "call_module" and n.target == "get_index":
                of[n] = hash(str(body.indexing_exprs[n.args[0]]))
            else:
                of[n] = hash((n.op, str(n.target), tuple(of.get(a, str(a)) for a in n.args if str(a) != "ops")))
                if n.op == "call_method" and n.target != "constant":
                    numbers.add(of[n])
    node._npu_operations = frozenset(numbers)
    return node._npu_operations
