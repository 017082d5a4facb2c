"""Ops that no program can carry: they run as in eager mode, inside the compiled graph.

Which ops these are is found by trying. A kernel that asks for something impossible (Unsupported) names the aten ops it
came from; they get a lowering that calls them, for npu tensors only, and the graph is lowered again."""

import logging
import sys

import torch
from torch._inductor import lowering
from torch._inductor.codegen.common import pointwise_overrides_data
from torch._inductor.virtualized import V

from torch_npu.compile.codegen.ops import REFUSED
from torch_npu.compile.codegen.program import Unsupported

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


def replace_lowering(op, ours) -> None:
    """`ours`, given the lowering that there was, is used for npu tensors."""
    lowered = lowering.lowerings[op]

    def choose(*args, **kwargs):
        return ours(*args, **kwargs) if on_npu((args, kwargs)) else lowered(*args, **kwargs)

    lowering.lowerings[op] = choose


def leave(op) -> None:
    """From now on `op` is an aten call on npu."""
    if op not in OPS and op in lowering.lowerings:
        OPS.add(op)
        replace_lowering(op, lowering.fallback_handler(op, add_to_fallback_set=False))


def leave_complex(packet) -> None:
    """Inductor leaves complex numbers to aten by itself, but not where one of its passes wrote a packet for an op."""
    lowered, call = lowering.lowerings[packet], lowering.fallback_handler(packet.default, add_to_fallback_set=False)

    def choose(x, *args, **kwargs):
        return (call if x.get_dtype().is_complex else lowered)(x, *args, **kwargs)

    replace_lowering(packet, choose)


def leave_what_is_known() -> None:
    """Special functions without an instruction, and assertions, whose message no command can carry."""
    leave_complex(torch.ops.aten.clone)
    names = [data.name for function, data in pointwise_overrides_data.items() if function in REFUSED]
    for name in (*names, "_assert_async"):
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet else ():
            leave(getattr(packet, overload))


def quiet(record: logging.LogRecord) -> bool:
    """A filter for Inductor's log: it reports every exception of a kernel as fatal, also those that lead to another
    attempt."""
    return not isinstance(sys.exc_info()[1], Unsupported)


def quiet_about_names(record: logging.LogRecord) -> bool:
    """Another: an aten op that is called by name ahead of time is no news on a device where all are."""
    return not (V.graph.device_type == "npu" and "missing a c-shim implementation" in str(record.msg))


def cause(error: BaseException | None) -> Unsupported | None:
    """The Unsupported behind an exception of Inductor's."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, Unsupported):
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
        log.warning("torch.compile on npu runs %s as in eager mode: a program cannot express %s", op, failure)
        leave(op)
    return bool(ops)
