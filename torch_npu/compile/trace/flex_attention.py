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
from torch.nn.attention import flex_attention as module

_check_others = module._validate_device


def _validate_device(query, key, value):
    if query.device.type != "npu":
        _check_others(query, key, value)


def _through(operator) -> None:
    """Traces what the operator does on npu, not that it was called. Where functionalization meets it, since the dense
    forms fill their results in place."""
    trace = operator.python_key_table[FunctionalTensorMode]
    dense = operator.py_kernels[DispatchKey.CompositeExplicitAutograd]

    def trace_or_go_through(mode, query, *args):
        if query.device.type != "npu":
            return trace(mode, query, *args)
        with mode:
            return dense(query, *args)

    operator.python_key_table[FunctionalTensorMode] = trace_or_go_through
    operator._dispatch_cache.clear()


def _in_autocast(query, key, value, *args):
    dtype = torch.get_autocast_dtype("npu")
    cast = (t.to(dtype) if t.is_floating_point() and t.dtype != torch.float64 else t for t in (query, key, value))
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(DispatchKey.AutocastPrivateUse1)):
        return flex_attention(*cast, *args)


def register() -> None:
    if module._validate_device is _validate_device:
        return
    module._validate_device = _validate_device
    _through(flex_attention)
    _through(flex_attention_backward)
    if DispatchKey.AutocastPrivateUse1 not in flex_attention.py_kernels:
        flex_attention.py_impl(DispatchKey.AutocastPrivateUse1)(_in_autocast)


register()
