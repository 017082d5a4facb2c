"""Pooling where Inductor's loops are not the best, or not right.

Maxima of windows where the positions are wanted too, and their gradient.

Each result is a chain of comparisons in one program. Inductor's loops have a mask for each place of a window that can
lie beyond the border; here the input is first written with its border: 4 x 64 x 32 x 32 by 3 x 3 in 0.7 ms, where the
op takes 1.7. The gradient is the op, which adds at positions; Inductor's form of it keeps places in windows instead and
divides to find positions (32 x 6 x 28 x 28 by 2 x 2: 270 us, the op 49)."""

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


def _leave(decomposed):
    """The op stays one node on npu, for the lowerings below."""

    @functools.wraps(decomposed)
    def compose(input, *args, **options):
        return NotImplemented if input.device.type == "npu" else decomposed(input, *args, **options)

    return compose


def _with_positions(lowered, left):
    def pool(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
        def leave():
            step = _pair(stride) if stride else []
            return left(x, _pair(kernel_size), step, _pair(padding), _pair(dilation), ceil_mode)

        if not any(user.args[1] == 1 for user in V.graph.current_node.users):
            return lowered(x, kernel_size, stride, padding, dilation, ceil_mode)
        out = V.graph.current_node.meta["val"][0].shape
        sizes = [*x.get_size()[-2:], *out[-2:]]
        kernel, known = _pair(kernel_size), all(isinstance(s, (int, sympy.Integer)) for s in sizes)
        if not known or x.get_dtype() != torch.float32 or _pair(dilation) != [1, 1] or math.prod(kernel) > MOST_PLACES:
            return leave()
        height, width, *window = map(int, sizes)
        if height * width >= MOST_POSITION:
            return leave()
        step = _pair(stride) if stride else kernel
        return _pool(x, (height, width), window, kernel, step, _pair(padding))

    return pool


def _integer(expression):
    return ops.index_expr(expression, torch.int64)


def _bordered(x, size, window, kernel, step, padding):
    """x with its border of -infinity, as far as windows reach; x itself where they do not reach beyond it."""
    behind = [
        max((n - 1) * s + k - p - e, 0) for n, s, k, p, e in zip(window, step, kernel, padding, size, strict=True)
    ]
    if not any((*padding, *behind)):
        return x
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


def _mean_gradient(lowered, left):
    """Inductor's form divides by the window's whole size where ceil_mode lets it reach beyond the padding; the op, by
    what lies inside (torch 2.11 to 2.13, on every device)."""

    def gradient(grad, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override=None):
        reaches = ceil_mode and count_include_pad and not divisor_override
        call = left if reaches else lowered
        return call(grad, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)

    return gradient


def register() -> None:
    for op in (aten.avg_pool2d_backward.default, aten.avg_pool3d_backward.default):
        left_to_aten.replace_lowering(
            op, _mean_gradient(lowering.lowerings[op], lowering.fallback_handler(op, add_to_fallback_set=False))
        )
    pool, gradient = aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default
    for op in (pool, gradient):
        if op in decomposition.decompositions:  # the gradient from 2.13 on
            decomposition.decompositions[op] = _leave(decomposition.decompositions[op])
    left = {op: lowering.fallback_handler(op, add_to_fallback_set=False) for op in (pool, gradient)}
    left_to_aten.replace_lowering(pool, _with_positions(lowering.lowerings[pool], left[pool]))
    left_to_aten.replace_lowering(gradient, left[gradient])
