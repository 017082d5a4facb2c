"""Where PyTorch's decompositions ask whether a device is the CPU and npu does as the CPU does."""

import functools

import torch
from torch._decomp import decompositions
from torch._inductor import decomposition, lowering

from torch_npu.compile.lowerings import left_to_aten, pooling

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


def _var_mean(lowered):
    """The mean of nothing is nan; Inductor's Welford fold begins with 0."""

    def reduce(x, axis=None, *, correction=None, keepdim=False):
        var, mean = lowered(x, axis, correction=correction, keepdim=keepdim)
        return var, lowering.lowerings[aten.mean.dim](x, axis, keepdim) if 0 in x.get_size() else mean

    return reduce


def _one_node(decomposed):
    @functools.wraps(decomposed)
    def compose(x):
        return NotImplemented if x.device.type == "npu" and x.is_floating_point() else decomposed(x)

    return compose


def _silu(x):
    """By the function that its gradient uses, too: what a gated unit's gradient needs of silu is then computed from the
    same value, and the forward pass does not have to store it."""
    dtype = x.get_dtype()
    wide = lowering.to_dtype(x, torch.float32) if dtype.itemsize < 4 else x
    product = lowering.lowerings[aten.mul.Tensor](wide, lowering.lowerings[aten.sigmoid.default](wide))
    return lowering.to_dtype(product, dtype)


def register() -> None:
    decomposition.decompositions[aten.silu.default] = _one_node(decomposition.decompositions[aten.silu.default])
    lowering.lowerings[aten.silu.default] = _silu
    decompositions.native_batch_norm_helper = _batch_norm(decompositions.native_batch_norm_helper)
    norm = aten.native_layer_norm.default
    decomposition.decompositions[norm] = _layer_norm(decomposition.decompositions[norm])
    pooling.register()
    var_mean = aten.var_mean.correction
    left_to_aten.replace_lowering(var_mean, _var_mean(lowering.lowerings[var_mean]))
    for name in aten.any.overloads():
        op = getattr(aten.any, name)
        if op in lowering.lowerings:
            left_to_aten.replace_lowering(op, _any(lowering.lowerings[op]))
