"""Where PyTorch's decompositions ask whether a device is the CPU and npu does as the CPU does; and one that costs more
than the op."""

import functools

import torch
from torch._decomp import decompositions
from torch._inductor import decomposition, lowering
from torch._inductor.virtualized import V

from torch_npu.compile import left_to_aten

aten = torch.ops.aten


def _kept(statistics, input, *params):
    """Statistics in the type that eager mode gives them: the parameters', and without any the input's."""
    dtype = next((p.dtype for p in params if p is not None), input.dtype)
    return (s if s.dtype == dtype else s.to(dtype) for s in statistics)


def _batch_norm(helper):
    @functools.wraps(helper)
    def normalize(input, weight, bias, running_mean, running_var, training, *rest, **options):
        out, mean, rstd, *running = helper(input, weight, bias, running_mean, running_var, training, *rest, **options)
        if input.device.type == "npu":
            if not training:  # nothing was computed that a backward pass would need
                mean, rstd = mean.new_zeros((0,)), rstd.new_zeros((0,))
            mean, rstd = _kept((mean, rstd), input, weight, bias, running_mean, running_var)
        return (out, mean, rstd, *running)

    return normalize


def _layer_norm(decomposed):
    @functools.wraps(decomposed)
    def normalize(input, normalized_shape, weight, bias, eps):
        out, mean, rstd = decomposed(input, normalized_shape, weight, bias, eps)
        if input.device.type == "npu":
            mean, rstd = _kept((mean, rstd), input, weight, bias)
        return out, mean, rstd

    return normalize


def _any(lowered):
    """Of uint8 the result is uint8, as a relic of times without bool."""

    def reduce(x, *args, **kwargs):
        result = lowered(x, *args, **kwargs)
        return lowering.to_dtype(result, torch.uint8) if x.get_dtype() == torch.uint8 else result

    return reduce


def _has_border(padding) -> bool:
    return any(padding) if isinstance(padding, (list, tuple)) else padding != 0


def _leave_borders(decomposed):
    """Loops over windows that reach over a border have a mask for each place of the window. Where positions are wanted,
    the op and its gradient as they are take 2.5 instead of 3.5 ms (4 x 64 x 32 x 32). Without a border, and for
    maxima alone, loops are faster."""

    @functools.wraps(decomposed)
    def pool(input, kernel_size, stride=None, padding=0, *rest, **options):
        if input.device.type == "npu" and _has_border(padding):
            return NotImplemented
        return decomposed(input, kernel_size, stride, padding, *rest, **options)

    return pool


def _leave_positions(lowered, left):
    def pool(*args, **kwargs):
        wanted = any(user.args[1] == 1 for user in V.graph.current_node.users)
        return (left if wanted else lowered)(*args, **kwargs)

    return pool


def _leave_border_gradients(lowered, left):
    def gradient(grad, input, kernel_size, stride, padding, *rest, **options):
        return (left if _has_border(padding) else lowered)(grad, input, kernel_size, stride, padding, *rest, **options)

    return gradient


def _register_pooling() -> None:
    pool, gradient = aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default
    decomposition.decompositions[pool] = _leave_borders(decomposition.decompositions[pool])
    for op, choose in ((pool, _leave_positions), (gradient, _leave_border_gradients)):
        left = lowering.fallback_handler(op, add_to_fallback_set=False)
        left_to_aten.replace_lowering(op, choose(lowering.lowerings[op], left))


def register() -> None:
    decompositions.native_batch_norm_helper = _batch_norm(decompositions.native_batch_norm_helper)
    norm = aten.native_layer_norm.default
    decomposition.decompositions[norm] = _layer_norm(decomposition.decompositions[norm])
    _register_pooling()
    for name in aten.any.overloads():
        op = getattr(aten.any, name)
        if op in lowering.lowerings:
            left_to_aten.replace_lowering(op, _any(lowering.lowerings[op]))
