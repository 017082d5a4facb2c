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


@torch_seams.replace(
    "torch.nn.attention.flex_attention",
    "_validate_device",
    why="it refuses every device that is not in its list",
    until="it asks the device",
)
def validate_device(original, query, key, value):
    if query.device.type != "npu":
        original(query, key, value)


def _trace_through(operator) -> None:
    """Traces what the operator does on npu, not that it was called. Where functionalization meets it, since the dense
    forms fill their results in place."""
    dense = operator.py_kernels[DispatchKey.CompositeExplicitAutograd]

    @torch_seams.replace(
        f"torch._higher_order_ops.flex_attention.{operator.name()}.python_key_table",
        FunctionalTensorMode,
        why="Inductor has templates in Triton for the operator; on npu its parts are fused like any ops",
        until="a backend can name a decomposition for operators of higher order",
    )
    def trace(original, mode, query, *args):
        if query.device.type != "npu":
            return original(mode, query, *args)
        with mode:
            return dense(query, *args)

    operator._dispatch_cache.clear()


def _in_autocast(query, key, value, *args):
    dtype = torch.get_autocast_dtype("npu")
    cast = (t.to(dtype) if t.is_floating_point() and t.dtype != torch.float64 else t for t in (query, key, value))
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_AUTOCAST)):
        return flex_attention(*cast, *args)


def register() -> None:
    for operator in (flex_attention, flex_attention_backward):
        _trace_through(operator)
    if _AUTOCAST not in flex_attention.py_kernels:
        flex_attention.py_impl(_AUTOCAST)(_in_autocast)


register()
