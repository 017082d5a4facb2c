"""Ops of models compiled ahead of time, where Inductor would call C functions of its own devices."""

import torch
from torch._inductor.virtualized import V

from torch_npu.compile.lowerings import table

aten = torch.ops.aten


@table.lower(aten.convolution.default)
def convolution(lowered, *args, **kwargs):
    return (table.eager(aten.convolution.default) if V.graph.cpp_wrapper else lowered)(*args, **kwargs)


@table.lower(aten._scaled_dot_product_fused_attention_overrideable.default)
def attention(lowered, *args, **kwargs):
    return (_attention if V.graph.cpp_wrapper else lowered)(*args, **kwargs)


def _attention(q, k, v, bias=None, dropout=0.0, causal=False, return_debug_mask=False, *, scale=None):
    """Calls can return tensors only, and aten's attention on a device returns more. In front of it is an op that does
    not; the other results are for a backward pass."""
    heads = lambda x: x.get_size()[-3]  # noqa: E731
    grouped = {} if V.graph.sizevars.statically_known_equals(heads(q), heads(k)) else {"enable_gqa": True}
    attend = table.eager(aten.scaled_dot_product_attention.default)
    return (attend(q, k, v, bias, dropout, causal, scale=scale, **grouped), *[None] * 8)
