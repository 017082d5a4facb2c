"""Inductor's table of lowerings, with ours for npu tensors in front of the ones that there were."""

from collections.abc import Callable

import torch
from torch._inductor import lowering


def _on_npu(args) -> bool:
    devices = (x.get_device() for x in torch.utils._pytree.tree_leaves(args) if hasattr(x, "get_device"))
    return any(isinstance(device, torch.device) and device.type == "npu" for device in devices)


def lower(*ops) -> Callable[[Callable], Callable]:
    """Decorates the lowering of these ops for npu tensors: it gets the one that there was in front of the arguments."""

    def register(ours: Callable) -> Callable:
        for op in ops:

            def choose(*args, _lowered=lowering.lowerings[op], **kwargs):
                return ours(_lowered, *args, **kwargs) if _on_npu((args, kwargs)) else _lowered(*args, **kwargs)

            lowering.lowerings[op] = choose
        return ours

    return register


def call(op, *args, **kwargs):
    """As part of another lowering."""
    return lowering.lowerings[op](*args, **kwargs)


def eager(op) -> Callable:
    """The lowering that leaves an op as it is: an aten call."""
    return lowering.fallback_handler(op, add_to_fallback_set=False)


def one_node(decomposed, *args, **options):
    """In the place of a decomposition: on npu the op stays one node, for the lowerings."""
    return NotImplemented if args[0].device.type == "npu" else decomposed(*args, **options)
