"""Where PyTorch's decompositions and lowerings ask whether a device is the CPU and npu does as the CPU does."""

import torch
from torch._inductor import lowering

from torch_npu import torch_seams
from torch_npu.compile.lowerings import table

aten = torch.ops.aten


def _kept(statistics, input, *params):
    """Statistics in the type that eager mode gives them: the parameters', and without any the input's."""
    dtype = next((p.dtype for p in params if p is not None), input.dtype)
    return (s if s.dtype == dtype else s.to(dtype) for s in statistics)


TABLE, UNTIL = "torch._inductor.decomposition.decompositions", "a backend can have decompositions of its own"
WHY = "the statistics of a norm have the types, and in inference the sizes, that eager mode gives them"


@torch_seams.replace("torch._decomp.decompositions", "native_batch_norm_helper", why=WHY, until=UNTIL)
def batch_norm(original, input, weight, bias, running_mean, running_var, training, *rest, **options):
    out, mean, rstd, *running = original(input, weight, bias, running_mean, running_var, training, *rest, **options)
    if input.device.type == "npu":
        if not training:  # nothing was computed that a backward pass would need
            mean, rstd = mean.new_zeros((0,)), rstd.new_zeros((0,))
        mean, rstd = _kept((mean, rstd), input, weight, bias, running_mean, running_var)
    return (out, mean, rstd, *running)


@torch_seams.replace(TABLE, aten.native_layer_norm.default, why=WHY, until=UNTIL)
def layer_norm(original, input, normalized_shape, weight, bias, eps):
    out, mean, rstd = original(input, normalized_shape, weight, bias, eps)
    if input.device.type == "npu":
        mean, rstd = _kept((mean, rstd), input, weight, bias)
    return out, mean, rstd


@table.lower(*(op for op in (getattr(aten.any, name) for name in aten.any.overloads()) if op in lowering.lowerings))
def any_(lowered, x, *args, **kwargs):
    """Of uint8 the result is uint8, as a relic of times without bool."""
    result = lowered(x, *args, **kwargs)
    return lowering.to_dtype(result, torch.uint8) if x.get_dtype() == torch.uint8 else result


@table.lower(aten.var_mean.correction)
def var_mean(lowered, x, axis=None, *, correction=None, keepdim=False):
    """The mean of nothing is nan; Inductor's Welford fold begins with 0."""
    var, mean = lowered(x, axis, correction=correction, keepdim=keepdim)
    return var, table.call(aten.mean.dim, x, axis, keepdim) if 0 in x.get_size() else mean


@table.lower(aten.argmax.default, aten.argmin.default)
def position(lowered, x, axis=None, keepdims=False):
    """Over all of a tensor it counts in the order of its dimensions. Inductor counts in the order of memory, except for
    Triton; over one dimension there is no difference."""
    rank = len(x.get_size())
    if axis is not None or rank < 2:
        return lowered(x, axis, keepdims)
    found = lowered(table.call(aten.view.default, x, [-1]), 0, False)
    return table.call(aten.view.default, found, [1] * rank) if keepdims else found


@torch_seams.replace(
    TABLE,
    aten.silu.default,
    why="by the function of its gradient, the forward pass has no value of silu to store",
    until=UNTIL,
)
def silu_one_node(original, x):
    return table.one_node(original, x) if x.is_floating_point() else original(x)


def _silu(x):
    """By the function that its gradient uses, too: what a gated unit's gradient needs of silu is then computed from the
    same value, and the forward pass does not have to store it."""
    dtype = x.get_dtype()
    wide = lowering.to_dtype(x, torch.float32) if dtype.itemsize < 4 else x
    product = table.call(aten.mul.Tensor, wide, table.call(aten.sigmoid.default, wide))
    return lowering.to_dtype(product, dtype)


lowering.lowerings[aten.silu.default] = _silu
