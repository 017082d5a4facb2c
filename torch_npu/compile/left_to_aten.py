"""Ops that no program can carry: they run as in eager mode, inside the compiled graph.

Which ops these are is found by trying. A kernel that asks for something impossible (CannotCarry) names the aten ops it
came from; they get a lowering that calls them, for npu tensors only, and the graph is lowered again."""

import logging

import torch
from torch._inductor import lowering

from torch_npu.compile.program import CannotCarry

log = logging.getLogger("torch_npu.compile")

OPS: set = set()


def on_npu(args) -> bool:
    found = False

    def look(x):
        nonlocal found
        device = x.get_device() if hasattr(x, "get_device") else None
        found = found or (isinstance(device, torch.device) and device.type == "npu")

    torch.utils._pytree.tree_map(look, args)
    return found


def leave(op, reason: str) -> None:
    """From now on `op` is an aten call on npu."""
    log.warning("torch.compile on npu runs %s as in eager mode: a program cannot express %s", op, reason)
    OPS.add(op)
    lowered = lowering.lowerings.get(op)
    called = lowering.fallback_handler(op, add_to_fallback_set=False)

    def choose(*args, **kwargs):
        return (called if lowered is None or on_npu((args, kwargs)) else lowered)(*args, **kwargs)

    lowering.lowerings[op] = choose


def cause(error: BaseException | None) -> CannotCarry | None:
    """The CannotCarry behind an exception of Inductor's."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, CannotCarry):
            return error
        error = getattr(error, "inner_exception", None) or error.__cause__ or error.__context__
    return None


def retry_without(error: BaseException) -> bool:
    """Leaves the ops behind `error` to aten. False if there is nothing to change: the error is then a real one."""
    failure = cause(error)
    if failure is None:
        return False
    ops = [o for o in failure.ops if isinstance(o, torch._ops.OpOverload) and o not in OPS]
    named = [o for o in ops if str(failure).split()[0] in o.name()]
    for op in named or ops:
        leave(op, str(failure))
    return bool(ops)
