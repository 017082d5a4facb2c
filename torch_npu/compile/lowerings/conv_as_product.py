"""Convolutions whose windows do not overlap: one product of patches, as a model that cuts images into patches means it.

The patches are copied once, the bias and what follows are the product's epilogue, and the result lies as [batch, place,
channel], which is how transformers go on. The gradients are products as well."""

import math

import torch
from torch._inductor import lowering
from torch._inductor.kernel import conv as _  # noqa: F401 registers the lowering

from torch_npu.compile.codegen.program import COMPUTE
from torch_npu.compile.lowerings import left_to_aten

aten = torch.ops.aten
# Elements of a window that are neighbours in memory. To copy patches of fewer costs more than the product gains: a
# convolution of 4 x 4 windows is 1.7 times as fast.
WIDE = 8


def _call(op, *args, **kwargs):
    return lowering.lowerings[op](*args, **kwargs)


def _cuts(x, weight, stride, padding, dilation, transposed, groups) -> bool:
    """Whether windows lie side by side and cover the image."""
    kernel, image = weight.get_size()[2:], x.get_size()[2:]
    sizes = [*x.get_size(), *weight.get_size()]
    if transposed or groups != 1 or not all(getattr(s, "is_Integer", isinstance(s, int)) for s in sizes) or 0 in sizes:
        return False
    if x.get_dtype() != weight.get_dtype() or x.get_dtype() not in COMPUTE or not x.get_dtype().is_floating_point:
        return False
    if any(padding) or any(d != 1 for d in dilation) or len(image) != len(kernel) or kernel[-1] < WIDE:
        return False
    every = list(stride) * len(kernel) if len(stride) == 1 else list(stride)
    return every == list(kernel) and all(i % k == 0 for i, k in zip(image, kernel, strict=True))


def _patches(x, kernel):
    """[batch, channel, *image] as [patch, channel * place in the patch]."""
    batch, channels, *image = x.get_size()
    rank = len(kernel)
    split = [s for i, k in zip(image, kernel, strict=True) for s in (i // k, k)]
    x = _call(aten.view.default, x, [batch, channels, *split])
    x = _call(aten.permute.default, x, [0, *range(2, 2 + 2 * rank, 2), 1, *range(3, 3 + 2 * rank, 2)])
    x = _call(aten.clone.default, x, memory_format=torch.contiguous_format)
    return _call(aten.view.default, x, [batch * math.prod(split[::2]), channels * math.prod(kernel)])


def _image(patches, size, kernel):
    """The other way."""
    batch, channels, *image = size
    rank = len(kernel)
    places = [i // k for i, k in zip(image, kernel, strict=True)]
    x = _call(aten.view.default, patches, [batch, *places, channels, *kernel])
    pairs = [d for i in range(rank) for d in (1 + i, 2 + rank + i)]
    x = _call(aten.permute.default, x, [0, 1 + rank, *pairs])
    x = _call(aten.clone.default, x, memory_format=torch.contiguous_format)
    return _call(aten.view.default, x, size)


def _rows(weight):
    size = weight.get_size()
    return _call(aten.view.default, weight, [size[0], math.prod(size[1:])])


def _turned(x):
    return _call(aten.permute.default, x, [1, 0])


def _convolution(lowered):
    def convolve(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
        given = (stride, padding, dilation, transposed, output_padding, groups)
        if not _cuts(x, weight, stride, padding, dilation, transposed, groups):
            return lowered(x, weight, bias, *given)
        kernel = weight.get_size()[2:]
        places = [i // k for i, k in zip(x.get_size()[2:], kernel, strict=True)]
        result = _call(aten.mm.default, _patches(x, kernel), _turned(_rows(weight)))
        if bias is not None:
            result = _call(aten.add.Tensor, result, bias)
        result = _call(aten.view.default, result, [x.get_size()[0], *places, weight.get_size()[0]])
        return _call(aten.permute.default, result, [0, len(kernel) + 1, *range(1, len(kernel) + 1)])

    return convolve


def _gradients(lowered):
    def differentiate(grad, x, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask):
        given = (bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask)
        if not _cuts(x, weight, stride, padding, dilation, transposed, groups):
            return lowered(grad, x, weight, *given)
        kernel = weight.get_size()[2:]
        rows = _call(aten.permute.default, grad, [0, *range(2, len(kernel) + 2), 1])
        rows = _call(aten.clone.default, rows, memory_format=torch.contiguous_format)
        rows = _call(aten.view.default, rows, [math.prod(rows.get_size()[:-1]), weight.get_size()[0]])
        rows.realize()
        of_x = of_weight = of_bias = None
        if mask[0]:
            of_x = _image(_call(aten.mm.default, rows, _rows(weight)), x.get_size(), kernel)
        if mask[1]:
            product = _call(aten.mm.default, _turned(rows), _patches(x, kernel))
            of_weight = _call(aten.view.default, product, weight.get_size())
        if mask[2]:
            of_bias = _call(aten.sum.dim_IntList, rows, [0])
        return of_x, of_weight, of_bias

    return differentiate


def register() -> None:
    for op, ours in ((aten.convolution.default, _convolution), (aten.convolution_backward.default, _gradients)):
        left_to_aten.replace_lowering(op, ours(lowering.lowerings[op]))
