"""Masks that are the same in every call: computed once, when the graph is compiled, and looked at.

Models build masks from positions, sizes and comparisons. Where no input of the graph takes part, and sizes are known,
the nodes can simply be run."""

import torch
from torch.fx import Graph, Node

from torch_npu.compile.graph.nodes import is_in_place, name_of, value_of

LIMIT = 1 << 26  # elements of a mask that is looked at

# What may be run: these depend on their arguments only, and change nothing.
_PURE = set(
    """
    arange zeros ones full tensor scalar_tensor new_ones new_zeros new_full zeros_like ones_like full_like linspace iota
    add sub mul neg abs minimum maximum min max clamp floordiv floor_divide
    eq ne lt le gt ge and_ or_ xor invert not_ logical_and logical_or logical_not bitwise_and bitwise_or bitwise_not
    where masked_fill tril triu cumsum diff index getitem slice select narrow gather
    unsqueeze squeeze expand expand_as reshape transpose permute t cat stack repeat repeat_interleave broadcast_to
    to bool long int contiguous clone detach
""".split()
)


class Masks:
    def __init__(self, graph: Graph) -> None:
        self.values: dict[Node, object] = {}  # None: not a constant
        self.evaluated: list[Node] = []  # nodes of the last answers
        self.changed = _changed(graph)
        self.kinds: dict[tuple, str | None] = {}

    def kind(self, mask, query: Node, key: Node) -> str | None:
        """ "causal" if query i sees the keys up to i, "all" if every query sees every key, None for anything else."""
        value, q, k = value_of(mask), value_of(query), value_of(key)  # a masked_fill comes as a tuple: it is none
        if value is None or q is None or k is None or q.dim() < 2:
            return None
        sizes = (*value.shape, q.shape[-2], k.shape[-2])
        if not all(isinstance(s, int) for s in sizes) or value.numel() > LIMIT:
            return None
        if (mask, *sizes[-2:]) not in self.kinds:
            self.kinds[mask, *sizes[-2:]] = self._look(mask, *sizes[-2:])
        return self.kinds[mask, *sizes[-2:]]

    def _look(self, mask: Node, queries: int, keys: int) -> str | None:
        with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
            found = self._value(mask)
            if not isinstance(found, torch.Tensor):
                return None
            found = found.cpu()
            seen = found if found.dtype == torch.bool else found == 0
            if found.dtype != torch.bool and not (seen | (found <= torch.finfo(found.dtype).min)).all():
                return None  # a bias
            if seen.all():
                return "all"
            triangle = torch.ones(queries, keys, dtype=torch.bool).tril()
            return "causal" if seen.shape[-2:] == triangle.shape and (seen == triangle).all() else None

    def _value(self, node: Node):
        """What a node computes, if that depends on no input; else None."""
        stack = [node]
        while stack:
            node = stack[-1]
            waiting = [n for n in node.all_input_nodes if n not in self.values]
            if node in self.values or waiting:
                stack.extend(waiting)
                if node in self.values:
                    stack.pop()
                continue
            stack.pop()
            self.values[node] = self._run(node)
        return self.values[node]

    def _run(self, node: Node):
        good = name_of(node) in _PURE and not is_in_place(node) and node not in self.changed
        if not good or any(self.values[n] is None for n in node.all_input_nodes):
            return None
        value = value_of(node)
        if value is not None and value.numel() > LIMIT:
            return None
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), self.values.__getitem__)
        self.evaluated.append(node)
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        return node.target(*args, **kwargs)


def _changed(graph: Graph) -> set[Node]:
    """Nodes whose memory is changed by a later one, perhaps through a view."""
    changed: set[Node] = set()
    for node in graph.nodes:
        if is_in_place(node):
            first = node.args[0] if node.args else None
            plain = node.op == "call_method" or getattr(node.target, "__module__", "") == "_operator"
            stack = [first] if plain and isinstance(first, Node) else list(node.all_input_nodes)
            while stack:
                source = stack.pop()
                if source not in changed:
                    changed.add(source)
                    stack.extend(source.all_input_nodes)
    return changed
