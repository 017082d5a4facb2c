"""Convolutions and their gradients: a CONV command each, whose epilogue is what Inductor fuses behind it.

A transposed convolution is the input gradient of the plain one, so three modes of CONV serve both. The result lies as
the op's does (trace/layouts.py); operands are read where they lie."""

import sympy
import torch
from torch._inductor import ir, lowering
from torch._inductor.kernel import conv as _  # noqa: F401 registers the lowering
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols, statically_known_true

from torch_npu.compile.codegen.program import COMPUTE
from torch_npu.compile.codegen.space import plain
from torch_npu.compile.lowerings import left_to_aten
from torch_npu.compile.lowerings.template import Template, factor

aten = torch.ops.aten
FORWARD, GRAD_INPUT, GRAD_WEIGHT = range(3)  # npu_conv_mode


class Convolution(Template):
    """`value`: a tensor without data that lies as the result; `image`, `output` and `kernel` are the sizes of the plain
    one's."""

    kind = "conv"

    def __init__(self, mode, operands, value, order, image, output, kernel, windows, groups) -> None:
        size, stride = (ir.convert_shape_to_inductor(s) for s in (value.shape, value.stride()))
        layout = ir.FixedLayout(operands[0].get_device(), operands[0].get_dtype(), size, stride)
        spatial = [*image[2:], *output[2:], *kernel[2:], *(n for w in windows for n in w)]
        geometry = [mode, image[0], image[1], output[1], groups, *spatial]
        points = [size[d] for d in order]
        super().__init__(layout, operands, points, order, geometry=tuple(map(plain, geometry)))


def _order(value: torch.Tensor) -> list[int] | None:
    """Its dimensions in the order of memory: those of a contiguous or a channels last tensor, else None."""
    rank = value.dim()
    for order in ([*range(rank)], [0, *range(2, rank), 1]):
        expected, fits = 1, True
        for d in reversed(order):
            fits = fits and statically_known_true((value.stride(d) == expected) | (value.shape[d] == 1))
            expected = expected * value.shape[d]
        if fits:
            return order
    return None


def _fits(node, images, weight, value) -> bool:
    """Whether a CONV has the place for it: a few dimensions, all of one float type, and something in each. Of its sizes
    only the batch's may be free; Inductor's lowering makes constants of the others, too."""
    tensors = [n.meta.get("val") for n in node.args[:2]] + [value]
    rank, dtype = len(weight.get_size()), weight.get_dtype()
    sizes = [*weight.get_size(), *(s for image in images for s in image.get_size()[1:])]
    return (
        3 <= rank <= 5
        and all(len(image.get_size()) == rank and image.get_dtype() == dtype for image in images)
        and dtype in COMPUTE
        and dtype.is_floating_point
        and all(isinstance(s, (int, sympy.Integer)) for s in sizes)
        and not any(s == 0 for s in [*sizes, images[0].get_size()[0]])
        and all(isinstance(t, torch.Tensor) and not has_free_unbacked_symbols(t) for t in tensors)
        and _order(value) is not None
    )


def _command(mode, operands, value, image, output, kernel, windows, groups):
    windows = [list(w) * (len(image) - 2) if len(w) == 1 else w for w in windows]
    operands = [factor(x) for x in operands]
    return ir.TensorBox.create(
        Convolution(mode, operands, value, _order(value), image, output, kernel, windows, groups)
    )


def _convolution(lowered):
    def convolve(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
        node = V.graph.current_node
        value = node.meta.get("val")
        own = node.target is aten.convolution.default and (bias is None or bias.get_dtype() == x.get_dtype())
        if not own or not _fits(node, [x], weight, value):
            return lowered(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
        size = ir.convert_shape_to_inductor(value.shape)
        mode = GRAD_INPUT if transposed else FORWARD
        image, output = (size, x.get_size()) if transposed else (x.get_size(), size)
        windows = (stride, padding, dilation)
        result = _command(mode, [x, weight], value, image, output, weight.get_size(), windows, groups)
        if bias is None:
            return result
        view, add = lowering.lowerings[aten.view.default], lowering.lowerings[aten.add.Tensor]
        return add(result, view(bias, [size[1], *[1] * (len(size) - 2)]))

    return convolve


def _gradients(lowered):
    """A command each, so that the activation's gradient, sums of gradients and other types are part of it."""

    def differentiate(grad, x, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask):
        windows, rest = (stride, padding, dilation), (transposed, output_padding, groups)
        node = V.graph.current_node
        values = node.meta["val"] if node.target is aten.convolution_backward.default else [None] * 3
        image, output = (grad, x) if transposed else (x, grad)  # of the plain convolution
        sizes = (image.get_size(), output.get_size(), weight.get_size(), windows, groups)
        own = [wanted and v is not None and _fits(node, [grad, x], weight, v) for wanted, v in zip(mask, values[:2])]
        own.append(mask[2] and own == list(mask[:2]))  # it takes no more than a sum
        others = [wanted and not ours for wanted, ours in zip(mask, own)]
        results = list(lowered(grad, x, weight, bias_sizes, *windows, *rest, others)) if any(others) else [None] * 3
        if own[0]:
            mode = FORWARD if transposed else GRAD_INPUT
            results[0] = _command(mode, [grad, weight], values[0], *sizes)
        if own[1]:
            results[1] = _command(GRAD_WEIGHT, [output, image], values[1], *sizes)
        if own[2]:
            results[2] = lowering.lowerings[aten.sum.dim_IntList](grad, [0, *range(2, len(x.get_size()))])
        return tuple(results)

    return differentiate


def register() -> None:
    for op, ours in ((aten.convolution.default, _convolution), (aten.convolution_backward.default, _gradients)):
        left_to_aten.replace_lowering(op, ours(lowering.lowerings[op]))
