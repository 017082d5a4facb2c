"""Convolutions and their input gradients: a CONV command whose epilogue is what Inductor fuses behind it.

A transposed convolution is the input gradient of the plain one, so two modes of CONV serve both. The result lies as the
op's does (layouts.py); operands are read where they lie."""

import sympy
import torch
from torch._inductor import ir, lowering
from torch._inductor.kernel import conv as _  # noqa: F401 registers the lowering
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols, statically_known_true

from torch_npu.compile import left_to_aten
from torch_npu.compile.program import COMPUTE
from torch_npu.compile.space import plain
from torch_npu.compile.template import Template, factor

aten = torch.ops.aten
FORWARD, GRAD_INPUT = 0, 1  # npu_conv_mode


class Convolution(Template):
    """`value`: a tensor without data that lies as the result; `image` and `output` are those of the plain one."""

    kind = "conv"

    def __init__(self, mode, source, weight, value, order, image, output, windows, groups) -> None:
        size, stride = (ir.convert_shape_to_inductor(s) for s in (value.shape, value.stride()))
        layout = ir.FixedLayout(source.get_device(), source.get_dtype(), size, stride)
        kernel = weight.get_size()[2:]
        spatial = [*image[2:], *output[2:], *kernel, *(n for w in windows for n in w)]
        geometry = [mode, image[0], image[1], output[1], groups, *spatial]
        points = [size[d] for d in order]
        super().__init__(layout, [source, weight], points, order, geometry=tuple(map(plain, geometry)))


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


def _fits(node, source, weight, value) -> bool:
    """Whether a CONV has the place for it: a few dimensions, all of one float type, and something in each. Of its sizes
    only the batch's may be free; Inductor's lowering makes constants of the others, too."""
    tensors = [n.meta.get("val") for n in node.args[:2]] + [value]
    rank, dtype = len(weight.get_size()), source.get_dtype()
    sizes = [*source.get_size(), *weight.get_size()]
    return (
        3 <= rank <= 5
        and len(source.get_size()) == rank
        and dtype == weight.get_dtype()
        and dtype in COMPUTE
        and dtype.is_floating_point
        and all(isinstance(s, (int, sympy.Integer)) for s in sizes[1:])
        and not any(s == 0 for s in sizes)
        and all(isinstance(t, torch.Tensor) and not has_free_unbacked_symbols(t) for t in tensors)
        and _order(value) is not None
    )


def _command(forward: bool, source, weight, size, value, windows, groups):
    """A CONV of `source`; `size` is that of the plain convolution's output if it is one, else of its input."""
    rank = len(size) - 2
    image, output = (source.get_size(), size) if forward else (size, source.get_size())
    windows = [list(w) * rank if len(w) == 1 else w for w in windows]
    mode, order = FORWARD if forward else GRAD_INPUT, _order(value)
    command = Convolution(mode, factor(source), factor(weight), value, order, image, output, windows, groups)
    return ir.TensorBox.create(command)


def _convolution(lowered):
    def convolve(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
        node = V.graph.current_node
        value = node.meta.get("val")
        own = node.target is aten.convolution.default and (bias is None or bias.get_dtype() == x.get_dtype())
        if not own or not _fits(node, x, weight, value):
            return lowered(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
        size = ir.convert_shape_to_inductor(value.shape)
        result = _command(not transposed, x, weight, size, value, (stride, padding, dilation), groups)
        if bias is None:
            return result
        view, add = lowering.lowerings[aten.view.default], lowering.lowerings[aten.add.Tensor]
        return add(result, view(bias, [size[1], *[1] * (len(size) - 2)]))

    return convolve


def _gradients(lowered):
    """The input's is a command of its own, so that the activation's gradient and sums of gradients are part of it."""

    def differentiate(grad, x, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask):
        windows, rest = (stride, padding, dilation), (transposed, output_padding, groups)
        node = V.graph.current_node
        value = node.meta["val"][0] if node.target is aten.convolution_backward.default and mask[0] else None
        if value is None or not _fits(node, grad, weight, value):
            return lowered(grad, x, weight, bias_sizes, *windows, *rest, mask)
        of_x = _command(transposed, grad, weight, x.get_size(), value, windows, groups)
        if not any(mask[1:]):
            return of_x, None, None
        return of_x, *lowered(grad, x, weight, bias_sizes, *windows, *rest, [False, *mask[1:]])[1:]

    return differentiate


def register() -> None:
    for op, ours in ((aten.convolution.default, _convolution), (aten.convolution_backward.default, _gradients)):
        left_to_aten.replace_lowering(op, ours(lowering.lowerings[op]))
