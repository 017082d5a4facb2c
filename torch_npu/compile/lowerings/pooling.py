"""Pooling where Inductor's loops are not the best, or not right.

Maxima of windows where the positions are wanted too, and their gradient.

Each result is a chain of comparisons. Inductor's loops have a mask for each place of a window that can lie beyond the
border, and compare what windows share once for each of them; here, where windows share rows, the parts of a row come
first, then those of a window: 4 x 64 x 32 x 32 by 3 x 3 in 0.26 ms, where the op takes 0.85. The gradient is the op,
which adds at positions; Inductor's form of it keeps places in windows instead and divides to find positions (32 x 6 x
28 x 28 by 2 x 2: 270 us, the op 49)."""

import functools
import math

import sympy
import torch
from torch._inductor import decomposition, ir, lowering
from torch._inductor.virtualized import V, ops

from torch_npu.compile.lowerings import left_to_aten

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
        kernel, step = _pair(kernel_size), _pair(stride or kernel_size)
        sizes = [*x.get_size()[-2:], *V.graph.current_node.meta["val"][0].shape[-2:]]
        known = all(isinstance(s, (int, sympy.Integer)) for s in sizes)
        axes = []
        if known and _pair(dilation) == [1, 1] and math.prod(kernel) <= MOST_PLACES:
            size, window = list(map(int, sizes[:2])), list(map(int, sizes[2:]))
            axes = [_Axis(*parts) for parts in zip(size, window, kernel, step, _pair(padding), strict=True)]
        if not any(user.args[1] == 1 for user in V.graph.current_node.users):
            if x.get_dtype().is_floating_point and any(not axis.is_cut() for axis in axes):
                return _maxima(x, *axes), None
            return lowered(x, kernel_size, stride, padding, dilation, ceil_mode)
        if axes and x.get_dtype() == torch.float32 and (size[0] + kernel[0]) * size[1] < MOST_POSITION:
            return _pool(x, *axes)
        return left(x, kernel, _pair(stride) if stride else [], _pair(padding), _pair(dilation), ceil_mode)

    return pool


def _integer(expression):
    return ops.index_expr(expression, torch.int64)


def _float(value):
    return ops.constant(float(value), torch.float32)


class _Axis:
    """Windows along one axis of the input."""

    def __init__(self, size, window, kernel, step, padding):
        self.size, self.window, self.kernel, self.step, self.padding = size, window, kernel, step, padding
        self.last = (window - 1) * step - padding  # where the last window begins

    def corner(self, at):
        return at * self.step - self.padding

    def overlap(self):
        return self.step < self.kernel

    def is_cut(self):
        """Windows lie side by side, inside the input."""
        return self.step >= self.kernel and not self.padding and self.last + self.kernel <= self.size

    def places(self, at):
        """(place, index, inside) of each place of a window; `inside` is None where none lies beyond the border."""
        for place in range(self.kernel):
            index, inside = self.corner(at) + place, None
            if place < self.padding:
                inside = ops.ge(_integer(index), _integer(0))
            if self.last + place >= self.size:
                below = ops.lt(_integer(index), _integer(self.size))
                inside = below if inside is None else ops.and_(inside, below)
            yield place, index, inside


def _share_rows(vertical, horizontal):
    """Whether the parts of rows are used more than once, and are more than one place each."""
    return vertical.overlap() and horizontal.kernel > 1


def _load(load, index, inside, other):
    """load(index), or `other` beyond the border."""
    return load(index) if inside is None else ops.masked(inside, lambda: load(index), other)


def _greatest(candidates):
    """(value, position) of the greatest of (inside, value, position): the last NaN if there is one, else the first of
    equal ones that lie inside."""
    value, position = ops.constant(float("-inf"), torch.float32), None
    for inside, _, where in reversed(candidates):
        position = where if inside is None or position is None else ops.where(inside, where, position)
    for _, here, where in candidates:
        take = ops.or_(ops.gt(here, value), ops.ne(here, here))
        value = ops.where(take, here, value)
        position = ops.where(take, where, position)
    return value, position


def _realized(x, ranges, dtypes, function):
    """Tensors of the values that function(index) gives."""
    create = functools.partial(ir.Pointwise.create, device=x.get_device(), ranges=ranges)
    results = [create(dtype=dtype, inner_fn=lambda index, i=i: function(index)[i]) for i, dtype in enumerate(dtypes)]
    for result in results:
        result.realize()
    return results


def _maxima(x, vertical, horizontal):
    """Without positions."""
    x.realize()
    *outer, _, _ = x.get_size()

    def along(axis, load, split):
        def greatest(index):
            before, at, behind = split(index)
            values = [_load(load, [*before, i, *behind], inside, float("-inf")) for _, i, inside in axis.places(at)]
            return (functools.reduce(ops.maximum, values),)

        return greatest

    rows = along(horizontal, x.make_loader(), lambda index: (index[:-1], index[-1], ()))

    def part(index):
        return rows(index)[0]

    if _share_rows(vertical, horizontal):
        (parts,) = _realized(x, [*outer, vertical.size, horizontal.window], (x.get_dtype(),), rows)
        part = parts.make_loader()
    windows = along(vertical, part, lambda index: (index[:-2], index[-2], index[-1:]))
    return _realized(x, [*outer, vertical.window, horizontal.window], (x.get_dtype(),), windows)[0]


def _pool(x, vertical, horizontal):
    x.realize()
    *outer, height, width = x.get_size()
    load = x.make_loader()

    def of_row(index):
        """Of a window's part in one row: the greatest value, and its place in that part."""
        *rows, column = index
        return _greatest(
            [
                (inside, _load(load, [*rows, at], inside, float("-inf")), _float(place))
                for place, at, inside in horizontal.places(column)
            ]
        )

    def value(index):
        return of_row(index)[0]

    def place(index):
        return of_row(index)[1]

    if _share_rows(vertical, horizontal):
        # Their parts are computed once, and the border of each axis is a mask of its own.
        parts = _realized(x, [*outer, height, horizontal.window], (torch.float32, torch.float32), of_row)
        value, place = (p.make_loader() for p in parts)

    def of_window(index):
        *images, row, column = index
        candidates = []
        for i, at, inside in vertical.places(row):
            here = [*images, at, column]
            where = ops.add(_load(place, here, inside, 0.0), _float(i * width))
            candidates.append((inside, _load(value, here, inside, float("-inf")), where))
        greatest, position = _greatest(candidates)
        corner = vertical.corner(row) * width + horizontal.corner(column)
        return greatest, ops.add(ops.to_dtype(position, torch.int64), _integer(corner))

    ranges = [*outer, vertical.window, horizontal.window]
    return tuple(_realized(x, ranges, (x.get_dtype(), torch.int64), of_window))


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
