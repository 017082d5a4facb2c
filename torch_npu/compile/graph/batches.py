"""Products of tensors with several batch dimensions, such as the heads of attention, read and written where they lie.

PyTorch makes three dimensions of them for bmm, which copies heads that lie between rows, and copies them back behind
it. A MATMUL takes any strides in up to six batch dimensions: here bmm with such views around it becomes one op, in the
joint graph, so that the products of the gradient are found as well."""

import functools

import torch
from torch._dynamo.utils import detect_fake_mode
from torch._inductor import compile_fx, ir, lowering
from torch.fx import Graph, Node

from torch_npu.compile.codegen.program import COMPUTE
from torch_npu.compile.graph.nodes import note, on_npu, value_of
from torch_npu.compile.lowerings.product import Product
from torch_npu.compile.lowerings.template import factor

aten = torch.ops.aten
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)
_FOLLOW = {*_VIEWS, aten.permute.default, aten.transpose.int, aten.unsqueeze.default, aten.squeeze.dim}
_FOLLOW |= {aten.expand.default, aten.slice.Tensor, aten.select.int}
_SETTLE = {aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default}
_SETTLE |= {aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten._softmax.default}
_MAX_RANK = 8

_library = torch.library.Library("npu_compile", "DEF")
_library.define("product(Tensor a, Tensor b, bool across) -> Tensor")


def _order(rank: int) -> list[int]:
    """Dimensions of a result as they lie in memory if it is stored across: rows outside of heads."""
    return [0, rank - 2, *range(1, rank - 2), rank - 1]


def _inverse(order: list[int]) -> list[int]:
    return [order.index(k) for k in range(len(order))]


@torch.library.impl(_library, "product", "CompositeExplicitAutograd")
def _product(a, b, across):
    """a[*batch, m, k] @ b[*batch, k, n]. Across: in memory the rows m come right behind the first batch dimension."""
    result = torch.matmul(a, b)
    if not across:
        return result.contiguous()
    order = _order(result.dim())
    return result.permute(order).contiguous().permute(_inverse(order))


@torch.library.register_fake("npu_compile::product", lib=_library)
def _fake(a, b, across):
    size = [*a.shape[:-1], b.shape[-1]]
    if not across:
        return a.new_empty(size)
    order = _order(len(size))
    return a.new_empty([size[d] for d in order]).permute(_inverse(order))


op = torch.ops.npu_compile.product.default
_SETTLE.add(op)


def _lower(a, b, across):
    product = ir.TensorBox.create(Product(factor(a), factor(b), _order(len(a.get_size())) if across else None))
    rank = len(a.get_size())
    return lowering.lowerings[aten.permute.default](product, _inverse(_order(rank))) if across else product


def _permutation(node: Node) -> list[int] | None:
    value = value_of(node)
    rank = 0 if value is None else value.dim()
    if node.target is aten.permute.default:
        return [d % rank for d in node.args[1]]
    if node.target is aten.transpose.int:
        first, second = (d % rank for d in node.args[1:3])
        swap = {first: second, second: first}
        return [swap.get(d, d) for d in range(rank)]
    return None


def _swapped(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]


def _is_whole(node: Node) -> bool:
    return node.target is aten.expand.default and value_of(node).shape == value_of(node.args[0]).shape


def _source(node: Node) -> tuple[Node, bool] | None:
    """The tensor with more batch dimensions that a factor of bmm is a view or a copy of, and whether it is turned."""
    if _permutation(node) == _swapped(value_of(node).dim()):
        found = _source(node.args[0])
        return found and (found[0], not found[1])
    if node.target not in _VIEWS:
        return None
    source = node.args[0]
    if not 3 < value_of(source).dim() <= _MAX_RANK or value_of(source).shape[-2:] != value_of(node).shape[-2:]:
        return None
    while source.target is aten.clone.default or _is_whole(source):
        source = source.args[0]
    return source, False


def _call(like: Node, target, *args) -> Node:
    """A node in front of `like`, with all that is known of that one but its value."""
    node = like.graph.call_function(target, args)
    node.meta = {k: v for k, v in like.meta.items() if k not in ("val", "tensor_meta")}
    values = torch.fx.node.map_arg(args, lambda n: n.meta["val"])
    with detect_fake_mode(values):
        node.meta["val"] = target(*values)
    return node


def _lifted(bmm: Node, node: Node, batch: list[int], turn: bool) -> Node:
    """A factor of bmm with these batch dimensions, or its transpose."""
    found = _source(node)
    if found is None or list(value_of(found[0]).shape[:-2]) != batch:
        found = _call(bmm, aten.view.default, node, [*batch, *value_of(node).shape[-2:]]), False
    source, turned = found
    return source if turned == turn else _call(bmm, aten.permute.default, source, _swapped(len(batch) + 2))


def _is_static(node: Node) -> bool:
    value = value_of(node)
    return value is not None and all(isinstance(s, int) for s in (*value.shape, *value.stride()))


def _is_copy(node: Node) -> bool:
    return node.target is aten.clone.default and node.kwargs.get("memory_format") is torch.contiguous_format


def _is_free(node: Node) -> bool:
    """Whether nobody sees how a tensor lies in memory: not the caller, and no op that takes strides as they are. Views
    and pointwise ops hand the question on; copies and products answer it."""
    waiting, seen = [node], set()
    while waiting:
        for user in waiting.pop().users:
            if user in seen or _is_copy(user) or user.target in _SETTLE:
                continue
            if user.op != "call_function":
                return False
            if user.target not in _FOLLOW and torch.Tag.pointwise not in getattr(user.target, "tags", ()):
                return False
            seen.add(user)
            waiting.append(user)
    return True


def _without_copies(product: Node) -> None:
    """Views of a result that is stored across, as the new strides make them; what was copied is already in order."""
    for view in list(product.users):
        if _permutation(view) is None:
            continue
        view.meta["val"] = view.target(value_of(product), *view.args[1:])
        copies = list(view.users)
        if len(copies) == 1 and _is_copy(copies[0]) and value_of(view).is_contiguous():
            copies[0].replace_all_uses_with(view)


def _users(nodes) -> list[Node]:
    return [user for node in nodes for user in node.users]


def _all_are(nodes: list[Node], permutation: list[int]) -> bool:
    return bool(nodes) and all(_permutation(n) == permutation for n in nodes)


def _rewrite(graph: Graph, node: Node) -> bool:
    if not (on_npu(node) and all(map(_is_static, (node, *node.args))) and value_of(node).dtype in COMPUTE):
        return False
    sources = [s for s in map(_source, node.args) if s is not None]
    if not sources or not all(_is_static(s) for s, _ in sources):
        return False
    batch = list(value_of(sources[0][0]).shape[:-2])
    rank, shape = len(batch) + 2, [*batch, *value_of(node).shape[-2:]]
    results = [u for u in node.users if u.target in _VIEWS and list(value_of(u).shape) == shape]
    whole = len(results) == len(node.users)
    free = whole and all(map(_is_free, results))
    turn = free and _all_are(_users(results), _swapped(rank))  # the gradient of a transposed factor
    if turn:
        results = _users(results)
    across = free and _all_are(_users(results), _order(rank))
    with graph.inserting_before(node):
        factors = [_lifted(node, f, batch, turn) for f in (node.args[::-1] if turn else node.args)]
        product = _call(node, op, *factors, across)
        if not whole:
            flat = _call(node, aten.view.default, product, list(value_of(node).shape))
    for result in results:
        result.replace_all_uses_with(product)
    if not whole:
        node.replace_all_uses_with(flat)
    _without_copies(product)
    note(node, "batches")
    return True


def rewrite(graph: Graph) -> int:
    count = sum(_rewrite(graph, n) for n in list(graph.nodes) if n.target is aten.bmm.default)
    if count:
        graph.eliminate_dead_code()
    return count


def install() -> None:
    lowering.lowerings[op] = _lower
    passes = compile_fx.joint_graph_passes

    @functools.wraps(passes)
    def with_ours(gm, *args, **kwargs):
        if rewrite(gm.graph):  # first: Inductor would make one op of attention again
            gm.graph.lint()
            gm.recompile()
        return passes(gm, *args, **kwargs)

    compile_fx.joint_graph_passes = with_ours
