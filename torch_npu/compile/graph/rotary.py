"""Rotary embedding: x * cos + turned(x) * sin, where turned puts the second half of a row, negated, before the first.

As written it is a `cat` inside arithmetic: at each point both of its parts are asked for, under masks. Here each half
of the result is computed at its own points, from the halves of x, cos and sin where they lie: one MAP over pairs that
loads and stores with plain strides, and still open to what Inductor fuses with it."""

import operator

import torch
from torch.fx import Graph, Node

from torch_npu.compile.graph.nodes import (
    arguments,
    is_last,
    is_private,
    is_quiet,
    name_of,
    on_npu,
    replace,
    shape_of,
    sweep,
    value_of,
)


def _part(node, matched: set[Node]) -> tuple | None:
    """(x, begin, end) if `node` is this part of the last dimension of x."""
    name = name_of(node)
    if name == "getitem":
        source, index = node.args
        if name_of(source) in ("chunk", "split"):
            x, count, dim = arguments(source, "input", "chunks" if name_of(source) == "chunk" else "split_size", "dim")
            size = shape_of(x) and shape_of(x)[-1]
            pieces = shape_of(node)
            if not is_last(dim, x) or not isinstance(size, int) or pieces is None or pieces[-1] * 2 != size:
                return None
            matched |= {node, source}
            return x, index * pieces[-1], (index + 1) * pieces[-1]
        if isinstance(index, tuple) and len(index) == 2 and index[0] is Ellipsis and isinstance(index[1], slice):
            begin, end, step = index[1].start, index[1].stop, index[1].step
        else:
            return None
    elif name == "slice":
        source, dim, begin, end, step = arguments(node, "self", "dim", "start", "end", "step")
        if not is_last(dim or 0, source):
            return None
    else:
        return None
    size = (shape_of(source) or [None])[-1]
    if not isinstance(size, int) or step not in (None, 1):
        return None
    bounds = [b if b is not None else default for b, default in ((begin, 0), (end, size))]
    if not all(isinstance(b, int) for b in bounds):
        return None
    matched.add(node)
    begin, end = (min(max(b + size if b < 0 else b, 0), size) for b in bounds)
    return source, begin, end


def _turned(node, matched: set[Node]) -> Node | None:
    """x, if `node` is turned(x)."""
    if name_of(node) != "cat":
        return None
    parts, dim = arguments(node, "tensors", "dim")
    if not is_last(dim or 0, node) or len(parts) != 2 or name_of(parts[0]) != "neg":
        return None
    second, first = _part(parts[0].args[0], matched), _part(parts[1], matched)
    if second is None or first is None or second[0] is not first[0]:
        return None
    x, half, end = second
    if first[1:] != (0, half) or end != 2 * half or shape_of(x)[-1] != end:
        return None
    matched |= {node, parts[0]}
    return x


def _rotation(node: Node) -> tuple | None:
    """x, cos, sin and what belongs to the pattern."""
    if name_of(node) != "add" or len(node.args) != 2 or node.kwargs or not on_npu(node):
        return None
    for straight, crossed in (node.args, node.args[::-1]):
        if name_of(straight) != "mul" or name_of(crossed) != "mul":
            continue
        for turned, sin in (crossed.args, crossed.args[::-1]):
            matched = {node, straight, crossed}
            x = _turned(turned, matched)
            if x is None or x not in straight.args:
                continue
            cos = straight.args[1] if straight.args[0] is x else straight.args[0]
            if all((shape_of(t) or [0])[-1] == shape_of(x)[-1] for t in (cos, sin)):
                return x, cos, sin, matched
    return None


def _order(x: Node) -> list[int]:
    """The dimensions of x as they lie in memory. A cat is contiguous, but arithmetic keeps the order of its operand,
    which is what the attention behind it hands on to the next product."""
    value = value_of(x)
    order = list(range(value.dim()))
    strides = value.stride()
    if all(isinstance(s, int) for s in strides):
        order[:-1] = sorted(order[:-1], key=lambda d: (-strides[d], d))
    return order


def _permuted(graph: Graph, t: Node, order: list[int]) -> Node:
    if order == sorted(order):
        return t
    for _ in range(len(order) - value_of(t).dim()):
        t = graph.call_method("unsqueeze", (t, 0))
    return graph.call_method("permute", (t, order))


def _by_halves(graph: Graph, x: Node, cos: Node, sin: Node) -> Node:
    half, order = shape_of(x)[-1] // 2, _order(x)

    def call(op, *args):
        return graph.call_function(op, args)

    def halves(t):  # whose gradient is a cat, where that of two slices is a sum of two padded tensors
        both = call(torch.split, _permuted(graph, t, order), half, -1)
        return call(operator.getitem, both, 0), call(operator.getitem, both, 1)

    (a, b), (cos_a, cos_b), (sin_a, sin_b) = halves(x), halves(cos), halves(sin)
    upper = call(operator.sub, call(operator.mul, a, cos_a), call(operator.mul, b, sin_a))
    lower = call(operator.add, call(operator.mul, b, cos_b), call(operator.mul, a, sin_b))
    new = call(torch.cat, (upper, lower), -1)
    if order != sorted(order):
        new = graph.call_method("permute", (new, [order.index(k) for k in range(len(order))]))
    return new


def rewrite(graph: Graph) -> int:
    count = 0
    for node in list(graph.nodes):
        found = _rotation(node)
        if found is None:
            continue
        x, cos, sin, matched = found
        if is_private(matched, node) and is_quiet(matched, node):
            with graph.inserting_before(node):
                new = _by_halves(graph, x, cos, sin)
            replace(node, new, "rotary")
            sweep(graph, matched)
            count += 1
    return count
