"""Maxima of windows: which way, and the one over a border where the positions are wanted.

Inductor's loops have a mask for each place of a window that can lie beyond the border. Where positions are wanted too,
the input is first written with its border, and then each result is a chain of comparisons in one program: 4 x 64 x 32 x
32 by 3 x 3 in 0.7 ms, where the op takes 1.7."""

import functools
import math

import sympy
import torch
from torch._inductor import decomposition, ir, lowering
from torch._inductor.virtualized import V, ops

from torch_npu.compile import left_to_aten

aten = torch.ops.aten

MOST_PLACES = 25  # of a window: each is a load and five instructions
MOST_POSITION = 1 << 24  # in F32, in which positions are chosen


def _pair(value) -> list[int]:
    value = list(value) if isinstance(value, (list, tuple)) else [value]
    return value * 2 if len(value) == 1 else value


def _has_border(padding) -> bool:
    return any(_pair(padding))


def _leave_borders(decomposed):
    @functools.wraps(decomposed)
    def pool(input, kernel_size, stride=None, padding=0, *rest, **options):
        if input.device.type == "npu" and _has_border(padding):
            return NotImplemented
        return decomposed(input, kernel_size, stride, padding, *rest, **options)

    return pool


def _with_positions(lowered, left):
    def pool(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
        if not any(user.args[1] == 1 for user in V.graph.current_node.users):
            return lowered(x, kernel_size, stride, padding, dilation, ceil_mode)
        out = V.graph.current_node.meta["val"][0].shape
        sizes = [*x.get_size()[-2:], *out[-2:]]
        kernel, known = _pair(kernel_size), all(isinstance(s, (int, sympy.Integer)) for s in sizes)
        if not known or x.get_dtype() != torch.float32 or _pair(dilation) != [1, 1] or math.prod(kernel) > MOST_PLACES:
            return left(x, kernel_size, stride, padding, dilation, ceil_mode)
        height, width, *window = map(int, sizes)
        if height * width >= MOST_POSITION:
            return left(x, kernel_size, stride, padding, dilation, ceil_mode)
        step = _pair(stride) if stride else kernel
        return _pool(x, (height, width), window, kernel, step, _pair(padding))

    return pool


def _integer(expression):
    return ops.index_expr(expression, torch.int64)


def _bordered(x, size, window, kernel, step, padding):
    """x with its border of -infinity, as far as windows reach."""
    behind = [
        max((n - 1) * s + k - p - e, 0) for n, s, k, p, e in zip(window, step, kernel, padding, size, strict=True)
    ]
    result = lowering.constant_pad_nd(x, [padding[1], behind[1], padding[0], behind[0]], float("-inf"))
    result.realize()
    return result


def _pool(x, size, window, kernel, step, padding):
    x.realize()
    load = _bordered(x, size, window, kernel, step, padding).make_loader()
    width = size[1]

    def best(index):
        """The greatest value, the last NaN if there is one, and how far its position is from the window's first."""
        *outer, row, column = index
        # What lies beyond the border is not chosen, even where all else is -infinity.
        over = [
            ops.maximum(_integer(p - at * s), _integer(0)) for p, at, s in zip(padding, index[-2:], step, strict=True)
        ]
        first = ops.add(ops.mul(over[0], _integer(width)), over[1])
        value, position = ops.constant(float("-inf"), torch.float32), ops.to_dtype(first, torch.float32)
        for i in range(kernel[0]):
            for j in range(kernel[1]):
                here = load([*outer, row * step[0] + i, column * step[1] + j])
                take = ops.or_(ops.gt(here, value), ops.ne(here, here))
                value = ops.where(take, here, value)
                position = ops.where(take, ops.constant(float(i * width + j), torch.float32), position)
        return value, position

    def position(index):
        row, column = (at * s - p for at, s, p in zip(index[-2:], step, padding, strict=True))
        return ops.add(ops.to_dtype(best(index)[1], torch.int64), _integer(row * width + column))

    ranges = [*x.get_size()[:-2], *window]
    create = functools.partial(ir.Pointwise.create, device=x.get_device(), ranges=ranges)
    values = create(dtype=x.get_dtype(), inner_fn=lambda index: best(index)[0])
    positions = create(dtype=torch.int64, inner_fn=position)
    for result in (values, positions):
        result.realize()
    return values, positions


def _leave_border_gradients(lowered, left):
    def gradient(grad, input, kernel_size, stride, padding, *rest, **options):
        return (left if _has_border(padding) else lowered)(grad, input, kernel_size, stride, padding, *rest, **options)

    return gradient


def register() -> None:
    pool, gradient = aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default
    decomposition.decompositions[pool] = _leave_borders(decomposition.decompositions[pool])
    for op, choose in ((pool, _with_positions), (gradient, _leave_border_gradients)):
        left = lowering.fallback_handler(op, add_to_fallback_set=False)
        left_to_aten.replace_lowering(op, choose(lowering.lowerings[op], left))
