"""Ops of models compiled ahead of time, where Inductor's lowering would call a C function of its own devices."""

import functools

import torch
from torch._inductor import lowering
from torch._inductor.virtualized import V

from torch_npu.compile.lowerings import left_to_aten

aten = torch.ops.aten


def _by_name(op):
    return lowering.fallback_handler(op, add_to_fallback_set=False)


def _attention(q, k, v, bias=None, dropout=0.0, causal=False, return_debug_mask=False, *, scale=None):
    """Calls can return tensors only, and aten's attention on a device returns more. In front of it is an op that does
    not; the other results are for a backward pass."""
    heads = lambda x: x.get_size()[-3]  # noqa: E731
    grouped = {} if V.graph.sizevars.statically_known_equals(heads(q), heads(k)) else {"enable_gqa": True}
    attend = _by_name(aten.scaled_dot_product_attention.default)
    return (attend(q, k, v, bias, dropout, causal, scale=scale, **grouped), *[None] * 8)


# Lowerings of Inductor's that would call C functions, or cannot be called by name, and what they are ahead of time.
AHEAD_OF_TIME = {
    aten.convolution.default: _by_name(aten.convolution.default),
    aten._scaled_dot_product_fused_attention_overrideable.default: _attention,
}


def _ahead(lowered, ours):
    @functools.wraps(lowered)
    def lower(*args, **kwargs):
        return ours(*args, **kwargs) if V.graph.cpp_wrapper else lowered(*args, **kwargs)

    return lower


def register() -> None:
    for op, ours in AHEAD_OF_TIME.items():
        left_to_aten.replace_lowering(op, _ahead(lowering.lowerings[op], ours))
