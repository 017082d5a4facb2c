"""Layouts of convolutions in traced graphs: those that the kernels give (csrc/aten/products/convolution.cpp).

PyTorch knows which of its own backends take channels last, and says of all others that their results are contiguous."""

import functools

import torch
from torch._prims_common import suggest_memory_format
from torch._subclasses import fake_impls
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols

aten = torch.ops.aten
_LAST = (torch.channels_last, torch.channels_last_3d)


def _as_kernels_do(traced):
    @functools.wraps(traced)
    def convolve(fake_mode, func, *args, **kwargs):
        results = traced(fake_mode, func, *args, **kwargs)
        given = dict(zip((a.name for a in func._schema.arguments), args)) | kwargs
        image, weight = given["input"], given["weight"]
        if image.device.type != "npu" or has_free_unbacked_symbols(image) or has_free_unbacked_symbols(weight):
            return results
        of_weight = suggest_memory_format(weight)
        of_image = next((f for f in (suggest_memory_format(image), of_weight) if f in _LAST), torch.contiguous_format)
        with fake_mode:
            if func is not aten.convolution_backward.default:
                return results.contiguous(memory_format=of_image)
            formats = (of_image, of_weight)
            laid = (r if r is None else r.contiguous(memory_format=f) for r, f in zip(results, formats))
            return (*laid, results[2])

    return convolve


def register() -> None:
    known = fake_impls.op_implementations_dict
    for op in (aten.convolution.default, aten.convolution_backward.default):
        known[op] = _as_kernels_do(known[op])
