"""Attention written by hand becomes scaled_dot_product_attention, and what surrounds that op becomes its arguments.

1. matmul, scale, mask, softmax, dropout, matmul: one op, which never holds all scores at once.
2. A mask that depends on no input is looked at: a causal one becomes `is_causal`, and one that hides nothing goes away.
3. Keys and values that are repeated for groups of heads are passed as they are, with `enable_gqa`.
4. Over few keys the op becomes products and a softmax."""

import dataclasses

import torch
from torch.fx import Graph, Node

from torch_npu.compile.graph.constant_masks import Masks
from torch_npu.compile.graph.nodes import (
    arguments,
    hint_of,
    is_last,
    is_private,
    is_quiet,
    name_of,
    note,
    on_npu,
    replace,
    same,
    shape_of,
    sweep,
    value_of,
)

SDPA = torch._C._nn.scaled_dot_product_attention


@dataclasses.dataclass
class Attention:
    """softmax(query @ turned_key * scale + bias) @ value"""

    query: Node
    turned_key: Node
    value: Node
    nodes: set[Node]
    scale: float = 1.0
    bias: list = dataclasses.field(default_factory=list)  # tensors, or (mask, number) where number replaces scores
    dropout: float = 0.0


def _is_number(x) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def _probabilities(node, nodes: set[Node]) -> tuple | None:
    """The scores behind node = dropout(softmax(scores)) in whatever type, and the rate of the dropout."""
    dropout = 0.0
    while True:
        name = name_of(node)
        if name == "dropout":
            node_input, p, training = arguments(node, "input", "p", "training")
            dropout_here = (0.5 if p is None else p) if training is not False else 0.0
            if dropout and dropout_here or not _is_number(dropout_here):
                return None
            dropout = dropout or dropout_here
            nodes.add(node)
            node = node_input
        elif name == "contiguous" or (name == "to" and value_of(node).is_floating_point()):
            nodes.add(node)
            node = node.args[0]
        elif name == "softmax":
            scores, dim, _ = arguments(node, "input", "dim", "dtype")
            nodes.add(node)
            return (scores, dropout) if is_last(dim, scores) else None
        else:
            return None


def _lowest(number, dtype: torch.dtype) -> bool:
    return _is_number(number) and number <= torch.finfo(dtype).min


def _attention(last: Node) -> Attention | None:
    if name_of(last) != "matmul" or len(last.args) != 2 or not on_npu(last):
        return None
    nodes = {last}
    found = _probabilities(last.args[0], nodes)
    if found is None:
        return None
    node, dropout = found
    result = Attention(None, None, last.args[1], nodes, dropout=dropout)
    while name_of(node) != "matmul":  # from the softmax towards the product
        if not isinstance(node, Node):
            return None
        nodes.add(node)
        name, args = name_of(node), list(node.args)
        if name == "to" and value_of(node).is_floating_point():
            node = args[0]
            continue
        if name == "mul" and args and _is_number(args[0]):
            args.reverse()
        if name in ("mul", "div") and len(args) == 2 and _is_number(args[1]) and args[1]:
            result.scale *= args[1] if name == "mul" else 1 / args[1]
        elif result.scale != 1.0:  # scaled behind the mask, which then is scaled as well
            return None
        elif name == "add" and len(args) == 2 and not node.kwargs:
            args = args if _is_of_product(args[0]) else args[::-1]
            result.bias.append(args[1])
        elif name == "masked_fill" and len(args) == 3 and _lowest(args[2], value_of(node).dtype):
            result.bias.append((args[1], args[2]))
        else:
            return None
        node = args[0]
    if len(node.args) != 2:
        return None
    nodes.add(node)
    result.query, result.turned_key = node.args
    return result if _fits(result, last, node) else None


def _is_of_product(node) -> bool:
    if name_of(node) in ("to", "mul", "div", "add", "masked_fill"):
        return any(map(_is_of_product, node.args))
    return name_of(node) == "matmul"


def _fits(a: Attention, last: Node, product: Node) -> bool:
    query, key, value = (value_of(n) for n in (a.query, a.turned_key, a.value))
    if query is None or key is None or value is None or query.dim() not in (3, 4):
        return False
    if not (query.dim() == key.dim() == value.dim()) or not query.is_floating_point():
        return False
    # Under autocast the products have another type than their factors.
    if not (query.dtype == key.dtype == value.dtype == value_of(product).dtype == value_of(last).dtype):
        return False
    if not same(query.shape[:-2], key.shape[:-2]) or not same(key.shape[:-2], value.shape[:-2]):
        return False
    for bias in a.bias:
        tensor = value_of(bias[0] if isinstance(bias, tuple) else bias)
        if tensor is None or tensor.device != query.device or tensor.dim() == 0:
            return False
        if tensor.dtype not in ((torch.bool,) if isinstance(bias, tuple) else (query.dtype, torch.float32)):
            return False
        scores = [*query.shape[:-1], key.shape[-1]]
        if tensor.dim() > query.dim():
            return False
        if not all(same(x, 1) or same(x, y) for x, y in zip(reversed(tensor.shape), reversed(scores))):
            return False
    return True


# From so many keys on the op pays: its tiles stay in a cache, a causal one leaves half of the work away, and the scores
# of all heads are never held. Below, and in training, where the op computes the scores a second time, fused commands
# are as fast or faster. From MANY on memory decides. Measured on the C model, 4 to 14 heads of 64.
WITHOUT_GRADIENT, CAUSAL_WITH_GRADIENT, MANY = 128, 256, 1024


def _pays(a: Attention, last: Node, masks: Masks) -> bool:
    keys = hint_of(shape_of(a.turned_key)[-1])
    if keys >= MANY:
        return True
    if not value_of(last).requires_grad:
        return keys >= WITHOUT_GRADIENT
    causal = len(a.bias) == 1 and masks.kind(a.bias[0], a.query, a.value) == "causal"
    return causal and keys >= CAUSAL_WITH_GRADIENT


def _untransposed(graph: Graph, turned: Node) -> Node:
    if name_of(turned) == "transpose":
        source, first, second = arguments(turned, "input", "dim0", "dim1")
        rank = len(shape_of(turned))
        if {first % rank, second % rank} == {rank - 2, rank - 1}:
            return source
    return graph.call_method("transpose", (turned, -2, -1))


def _bias(graph: Graph, a: Attention) -> Node | None:
    total = None
    for bias in a.bias:
        if isinstance(bias, tuple):
            mask, number = bias
            zero = graph.call_function(torch.zeros, ((),), {"dtype": value_of(a.query).dtype, "device": _device(a)})
            bias = graph.call_method("masked_fill", (zero, mask, number))
        total = bias if total is None else graph.call_function(torch.add, (total, bias))
    return total


def _device(a: Attention) -> torch.device:
    return value_of(a.query).device


def _fuse(graph: Graph, last: Node, a: Attention) -> None:
    flat = len(shape_of(a.query)) == 3

    def deep(node):
        return graph.call_method("unsqueeze", (node, 0)) if flat and node is not None else node

    with graph.inserting_before(last):
        key, bias = _untransposed(graph, a.turned_key), _bias(graph, a)
        new = graph.call_function(
            SDPA,
            (deep(a.query), deep(key), deep(a.value)),
            {"attn_mask": deep(bias), "dropout_p": a.dropout, "scale": float(a.scale)},
        )
        if flat:
            new = graph.call_method("squeeze", (new, 0))
    replace(last, new, "attention")


def _ungrouped(node) -> Node | None:
    """Keys, if `node` repeats each of their heads several times in a row."""
    rank, shape = len(shape_of(node) or ()), shape_of(node)
    if name_of(node) == "repeat_interleave":
        source, repeats, dim = arguments(node, "input", "repeats", "dim")
        return source if isinstance(repeats, int) and dim in (1, 1 - rank) and rank == 4 else None
    if rank != 4 or name_of(node) != "reshape" or name_of(node.args[0]) != "expand":
        return None
    expanded = node.args[0]
    lifted = expanded.args[0]
    if name_of(lifted) == "getitem":
        index = lifted.args[1]
        whole = slice(None)
        good = isinstance(index, tuple) and [k for k, i in enumerate(index) if i is None] == [2]
        if not good or any(i is not None and i != whole for i in index):
            return None
    elif name_of(lifted) != "unsqueeze" or arguments(lifted, "input", "dim")[1] not in (2, -3):
        return None
    source, spread = lifted.args[0], shape_of(expanded)
    inner = shape_of(source)
    if inner is None or len(inner) != 4 or not same([*spread[:2], *spread[3:]], inner):
        return None
    return source if same(shape, [inner[0], inner[1] * spread[2], *inner[2:]]) else None


def _share_heads(node: Node) -> bool:
    """Gives an attention its keys as they are before they are repeated."""
    query, key, value, *_ = arguments(node, "query", "key", "value")
    sources = [_ungrouped(key), _ungrouped(value)]
    if None in sources or node.kwargs.get("enable_gqa") or not same(shape_of(sources[0])[1], shape_of(sources[1])[1]):
        return False
    chain = {node}
    for repeated in (key, value):
        while repeated not in sources:
            chain.add(repeated)
            repeated = repeated.args[0]
    if not is_quiet(chain, node):  # others may use what is repeated: this op still does without
        return False
    node.args = (query, *sources, *node.args[3:])
    node.kwargs = {**{k: v for k, v in node.kwargs.items() if k not in ("key", "value")}, "enable_gqa": True}
    return True


def _simplify_mask(node: Node, masks: Masks) -> bool:
    query, key, _, mask, _, causal = arguments(node, "query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    if mask is None or causal:
        return False
    kind = masks.kind(mask, query, key)
    if kind is None:
        return False
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = dict(zip(names[3:], node.args[3:])) | dict(node.kwargs)
    node.args = node.args[:3]
    node.kwargs = {**given, "attn_mask": None, "is_causal": kind == "causal"}
    return True


# Below so many keys the scores of all heads are at most a few times as large as the queries, and fused commands are
# faster: nothing is computed twice, and scale and mask cost nothing where they are. Few queries read keys once.
FEW_KEYS, SOME_QUERIES = 128, 16


_SDPA_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


def _is_short(node: Node) -> bool:
    query, key, value, mask, dropout, _, _, grouped = arguments(node, *_SDPA_ARGUMENTS)
    values = [value_of(n) for n in (query, key, value)]
    if any(v is None for v in values) or mask is not None or dropout:
        return False
    if any(v.dtype != torch.float32 or v.dim() != 4 for v in (*values, value_of(node))):
        return False
    if not all(isinstance(s, int) for v in values for s in v.shape):
        return False
    (batch, heads, queries, _), (_, shared, keys, _) = (v.shape for v in values[:2])
    if any(tuple(v.shape[:2]) != (batch, shared) for v in values[1:]) or (heads != shared and not grouped):
        return False
    return keys < FEW_KEYS and queries >= SOME_QUERIES


def _scaled(graph: Graph, query: Node, attention: Node, scale: float) -> Node:
    """`query` times a number, behind the product that it is a view of: heads are apart only later."""
    views, source = [], query
    while name_of(source) in ("transpose", "reshape", "permute", "unflatten") and source.args:
        if value_of(source.args[0]) is None or value_of(source.args[0]).dtype != torch.float32:
            break
        views.append(source)
        source = source.args[0]
    if not is_quiet({attention, *views}, attention):
        views, source = [], query
    scaled = graph.call_function(torch.mul, (source, scale))
    for view in reversed(views):
        scaled = graph.create_node(view.op, view.target, (scaled, *view.args[1:]), view.kwargs)
    return scaled


def _take_apart(graph: Graph, node: Node) -> None:
    query, key, value, _, _, causal, scale, _ = arguments(node, *_SDPA_ARGUMENTS)
    (_, heads, queries, width), (_, shared, keys, _) = shape_of(query), shape_of(key)
    call, method = graph.call_function, graph.call_method
    with graph.inserting_before(node):
        query = _scaled(graph, query, node, width**-0.5 if scale is None else scale)
        if heads != shared:  # [batch, shared, group, query, width]: keys and values are the same for a group
            query = method("unflatten", (query, 1, (shared, heads // shared)))
            key, value = method("unsqueeze", (key, 2)), method("unsqueeze", (value, 2))
        scores = call(torch.matmul, (query, method("transpose", (key, -2, -1))))
        if causal:
            ones = call(torch.ones, (queries, keys), {"dtype": torch.bool, "device": value_of(node).device})
            scores = method("masked_fill", (scores, method("triu", (ones, 1)), float("-inf")))
        new = call(torch.matmul, (call(torch.softmax, (scores, -1)), value))
        across = not value_of(node).is_contiguous()  # rows outside of heads
        if across:
            rank = 4 + (heads != shared)
            new = method("contiguous", (method("permute", (new, (0, rank - 2, *range(1, rank - 2), rank - 1))),))
        if heads != shared:
            new = method("flatten", (new, 1 + across, 2 + across))
        if across:
            new = method("transpose", (new, 1, 2))
    replace(node, new, "short_attention")
    graph.erase_node(node)


def rewrite(graph: Graph) -> int:
    count, masks = 0, Masks(graph)
    for node in list(graph.nodes):
        found = _attention(node)
        if found and _pays(found, node, masks) and is_private(found.nodes, node) and is_quiet(found.nodes, node):
            _fuse(graph, node, found)
            sweep(graph, found.nodes)
            count += 1
    for node in list(graph.nodes):
        if name_of(node) == "scaled_dot_product_attention" and on_npu(node):
            for pattern, apply in (("mask", lambda n: _simplify_mask(n, masks)), ("shared_heads", _share_heads)):
                if apply(node):
                    note(node, pattern)
                    count += 1
            if _is_short(node):
                _take_apart(graph, node)
                count += 1
    sweep(graph, masks.evaluated)
    return count
