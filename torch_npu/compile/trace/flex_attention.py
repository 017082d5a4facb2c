"""torch.nn.attention.flex_attention on npu.

PyTorch keeps a list of devices in its check of arguments, and has kernels for its own devices only: in compiled mode
Inductor would fill in a template of Triton's. On npu the operator is traced through instead. Scores, the user's
functions over them, softmax and the second product become plain ops, which are fused like any others, and so does the
gradient. The scores of all heads are a tensor then, as in PyTorch's eager form; blocks that the mask leaves out are
computed like the rest."""

import torch
from torch._C import DispatchKey
from torch._higher_order_ops.flex_attention import flex_attention, flex_attention_backward
from torch._subclasses.functional_tensor import FunctionalTensorMode

from torch_npu import torch_seams

_AUTOCAST = DispatchKey.__members__["AutocastPrivateUse1"]


def _all_but_npu(check):
    def _validate_device(query, key, value):
        if query.device.type != "npu":
            check(query, key, value)

    return _validate_device


def _through(operator):
    """Traces what the operator does on npu, not that it was called. Where functionalization meets it, since the dense
    forms fill their results in place."""
    dense = operator.py_kernels[DispatchKey.CompositeExplicitAutograd]

    def wrap(trace):
        def trace_or_go_through(mode, query, *args):
            if query.device.type != "npu":
                return trace(mode, query, *args)
            with mode:
                return dense(query, *args)

        return trace_or_go_through

    return wrap


def _in_autocast(query, key, value, *args):
    dtype = torch.get_autocast_dtype("npu")
    cast = (t.to(dtype) if t.is_floating_point() and t.dtype != torch.float64 else t for t in (query, key, value))
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_AUTOCAST)):
        return flex_attention(*cast, *args)


def register() -> None:
    torch_seams.replace(
        "torch.nn.attention.flex_attention",
        "_validate_device",
        _all_but_npu,
        why="it refuses every device that is not in its list",
        until="it asks the device",
    )
    for operator in (flex_attention, flex_attention_backward):
        torch_seams.replace(
            f"torch._higher_order_ops.flex_attention.{operator.name()}.python_key_table",
            FunctionalTensorMode,
            _through(operator),
            why="Inductor has templates in Triton for the operator; on npu its parts are fused like any ops",
            until="a backend can name a decomposition for operators of higher order",
        )
        operator._dispatch_cache.clear()
    if _AUTOCAST not in flex_attention.py_kernels:
        flex_attention.py_impl(_AUTOCAST)(_in_autocast)


register()
