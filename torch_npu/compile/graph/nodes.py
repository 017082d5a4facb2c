"""Reading the graph that Dynamo traced, and changing it: what the patterns (graph/patterns.py) have in common.

Such a graph may be written in functions, methods, operators or aten ops, and it is not functional: nodes change tensors
in place."""

import functools
import inspect
import logging
import operator

import torch
from torch._dynamo.utils import counters
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

log = logging.getLogger("torch_npu.compile")

_SAME = {"truediv": "div", "concat": "cat", "concatenate": "cat", "multiply": "mul", "negative": "neg", "iadd": "add"}
_SAME |= {"add_": "add", "imul": "mul", "mul_": "mul", "itruediv": "div", "div_": "div", "masked_fill_": "masked_fill"}
_SAME |= {"view": "reshape", "_unsafe_view": "reshape", "flatten": "reshape", "_softmax": "softmax", "bmm": "matmul"}
_SAME |= {"float": "to", "half": "to", "bfloat16": "to", "type_as": "to", "type": "to"}
# Later code runs in another mode. Not one of these is in a pattern.
_MODES = {"_enter_autocast", "_exit_autocast", "_set_grad_enabled", "_enter_inference_mode", "_exit_inference_mode"}

_CHANGING_OPERATORS = {operator.setitem, operator.delitem, operator.iadd, operator.isub, operator.imul}
_CHANGING_OPERATORS |= {operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow, operator.imatmul}
_CHANGING_OPERATORS |= {operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift}


def _operator(node: Node):
    """The operator that a node is, also where it is called by its method: `a.__eq__(b)`, as torch 2.12 traces it."""
    if node.op == "call_method":
        return vars(operator).get(node.target) if node.target.startswith("__") else None
    return node.target if getattr(node.target, "__module__", "") == "_operator" else None


def _raw_name(node: Node) -> str:
    if found := _operator(node):
        return found.__name__
    if node.op == "call_method":
        return node.target
    if node.op != "call_function":
        return ""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target.overloadpacket.__name__
    return getattr(node.target, "__name__", "")


def name_of(node) -> str:
    """What a node does, however it is written: `matmul` for `a @ b`, `torch.matmul`, `a.matmul(b)` and `torch.bmm`."""
    if not isinstance(node, Node):
        return ""
    raw = _raw_name(node)
    return _SAME.get(raw, raw)


def is_in_place(node: Node) -> bool:
    """Whether a node may change a tensor that existed before it. Unknown things may."""
    if node.op in ("placeholder", "get_attr", "output"):
        return False
    if node.op == "call_module":
        return True
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable
    if found := _operator(node):
        return found in _CHANGING_OPERATORS
    name = _raw_name(node)
    if (name.endswith("_") and not name.endswith("__")) or "out" in node.kwargs:
        return True
    return _bound(node).get("inplace") is True


@functools.cache
def _parameters(target) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(target).parameters)
    except (TypeError, ValueError):
        return ()


def _bound(node: Node) -> dict:
    names = () if node.op == "call_method" else _parameters(node.target)
    return {**dict(zip(names, node.args)), **node.kwargs}


def arguments(node: Node, *names: str) -> list:
    """Arguments by position or by one of these names, the first being number 0; None where nothing is given."""
    found = list(node.args[: len(names)]) + [None] * (len(names) - len(node.args))
    return [node.kwargs.get(n, found[k]) for k, n in enumerate(names)]


def value_of(node) -> torch.Tensor | None:
    """The tensor, without data, that a node gave when it was traced."""
    meta = node.meta if isinstance(node, Node) else {}
    value = meta.get("example_value", meta.get("val"))
    return value if isinstance(value, torch.Tensor) else None


def shape_of(node) -> list | None:
    value = value_of(node)
    return None if value is None else list(value.shape)


def on_npu(node) -> bool:
    value = value_of(node)
    return value is not None and value.device.type == "npu"


def is_last(dim, node) -> bool:
    value = value_of(node)
    return value is not None and dim in (-1, value.dim() - 1)


def same(a, b) -> bool:
    """Whether two sizes or shapes are known to be equal, without a guard."""
    if isinstance(a, (list, tuple, torch.Size)):
        return len(a) == len(b) and all(map(same, a, b))
    return statically_known_true(a == b)


def hint_of(size) -> int:
    """A size, or what it was in the call that was traced."""
    if isinstance(size, int):
        return size
    hint = getattr(size.node, "hint", None)
    return 0 if hint is None else int(hint)


def is_private(nodes: set[Node], last: Node) -> bool:
    """Whether nobody else sees what `nodes`, a pattern that ends in `last`, compute on the way."""
    if any(is_in_place(n) and n.args[0] not in nodes for n in nodes):
        return False
    return all(set(n.users) <= nodes for n in nodes if n is not last)


def is_quiet(nodes: set[Node], last: Node) -> bool:
    """Whether `nodes` can be computed in the place of `last`: from the first of them on nothing else changes a tensor,
    or the mode that they run in."""
    waiting, node = len(nodes - {last}), last
    while waiting:
        node = node.prev
        if node in nodes:
            waiting -= 1
        elif is_in_place(node) or _raw_name(node) in _MODES:
            return False
    return True


def replace(node: Node, new: Node, pattern: str) -> None:
    new.meta.update({k: v for k, v in node.meta.items() if k not in new.meta})
    node.replace_all_uses_with(new)
    note(node, pattern)


def note(node: Node, pattern: str) -> None:
    counters["inductor"][f"npu_{pattern}"] += 1
    log.debug("pattern %s at %s", pattern, node)


def sweep(graph: Graph, nodes) -> None:
    """Erases those of `nodes` that nobody uses any more."""
    places = {n: k for k, n in enumerate(graph.nodes)}
    for node in sorted(nodes, key=places.__getitem__, reverse=True):
        if not node.users:
            graph.erase_node(node)
