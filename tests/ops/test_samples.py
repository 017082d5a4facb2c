"""PyTorch's own samples of the ops that each room of csrc/aten has, with fallback forbidden; gradients where listed.

The conformance run takes all ops and samples; these are the first of each, for every day.
"""

from typing import NamedTuple

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import torch_npu
from torch_npu.testing import compare

BY_NAME = {op.full_name.replace(".", "_"): op for op in op_db}
NUMBERS = (torch.float32, torch.bfloat16, torch.int64)


class Room(NamedTuple):
    ops: str
    dtypes: tuple[torch.dtype, ...]
    limit: int  # samples of an op
    gradient: torch.dtype | None = None  # of which gradients are compared too
    left_out: tuple[tuple[str, torch.dtype], ...] = ()
    fallback: str = "error"
    statuses: tuple[str, ...] = ("passed",)


POINTWISE = """
abs neg sign exp expm1 log1p sqrt rsqrt reciprocal sin tanh sigmoid erf floor round frac square lgamma angle
add sub mul div fmod remainder pow maximum fmin atan2 hypot copysign heaviside xlogy logaddexp lerp addcmul
eq lt isnan isposinf signbit logical_and logical_not isclose where masked_fill clamp nan_to_num
arange linspace eye tril triu
nn.functional.relu nn.functional.hardtanh nn.functional.hardswish nn.functional.silu nn.functional.mish
nn.functional.gelu nn.functional.elu nn.functional.leaky_relu nn.functional.softplus nn.functional.softshrink
nn.functional.logsigmoid nn.functional.glu nn.functional.prelu
"""
OF_INTEGERS = """
add sub mul fmod remainder pow maximum abs neg sign eq lt clamp where masked_fill bitwise_and bitwise_not
bitwise_left_shift bitwise_right_shift logical_and floor arange tril
"""
FOLDS = """
sum mean prod amax amin aminmax max.reduction_no_dim max.reduction_with_dim min.reduction_no_dim min.reduction_with_dim
argmax argmin any all var std var_mean std_mean linalg.vector_norm norm logsumexp nansum count_nonzero
cumsum cumprod cummax cummin logcumsumexp softmax log_softmax nn.functional.softmin
nn.functional.layer_norm native_layer_norm nn.functional.group_norm nn.functional.rms_norm
nn.functional.batch_norm native_batch_norm nn.functional.instance_norm
nn.functional.mse_loss nn.functional.smooth_l1_loss nn.functional.huber_loss nn.functional.binary_cross_entropy
nn.functional.nll_loss nn.functional.cross_entropy
dot vdot mv addmv trace equal sort argsort topk kthvalue msort median nanmedian
"""
GRADIENTS_OF_FOLDS = """
sum mean amax logsumexp var softmax log_softmax nn.functional.layer_norm nn.functional.group_norm
nn.functional.rms_norm nn.functional.batch_norm nn.functional.mse_loss nn.functional.smooth_l1_loss
nn.functional.huber_loss nn.functional.binary_cross_entropy nn.functional.nll_loss nn.functional.cross_entropy
"""
MOVEMENT = """
__getitem__ index_put index_select index_add index_copy index_fill gather scatter scatter_add
scatter_reduce.sum scatter_reduce.prod scatter_reduce.amax scatter_reduce.amin take take_along_dim put
nonzero nonzero_static masked_select masked_scatter cat stack hstack vstack flip roll rot90 repeat repeat_interleave
nn.functional.embedding nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.max_pool3d
nn.functional.avg_pool1d nn.functional.avg_pool2d nn.functional.avg_pool3d
nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool2d nn.functional.adaptive_avg_pool3d
nn.functional.adaptive_max_pool1d nn.functional.adaptive_max_pool2d nn.functional.adaptive_max_pool3d
nn.functional.interpolate_nearest nn.functional.interpolate_linear nn.functional.interpolate_bilinear
nn.functional.interpolate_trilinear nn.functional.interpolate_bicubic
nn.functional.pad_constant nn.functional.pad_reflect nn.functional.pad_replicate nn.functional.pad_circular
nn.functional.unfold nn.functional.pixel_shuffle unfold
"""
GRADIENTS_OF_MOVEMENT = """
__getitem__ index_select gather scatter_add cat nn.functional.embedding nn.functional.max_pool2d
nn.functional.max_pool3d nn.functional.avg_pool2d nn.functional.avg_pool3d nn.functional.adaptive_avg_pool2d
nn.functional.adaptive_max_pool2d nn.functional.interpolate_bilinear nn.functional.interpolate_bicubic
nn.functional.pad_reflect nn.functional.pad_replicate nn.functional.unfold unfold
"""
OF_COMPLEX_NUMBERS = """
acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 log log10 log1p log2 reciprocal rsqrt sigmoid sin
sinc sinh sqrt tan tanh abs angle neg sgn conj_physical real imag isnan isinf isfinite isreal square
add sub mul div pow rsub addcmul addcdiv lerp logaddexp eq ne isclose where masked_fill logical_and
logical_not float_power
sum mean prod cumsum cumprod logcumsumexp logsumexp var std var_mean any all count_nonzero norm trace
linalg.vector_norm masked.mean
mm bmm addmm addmv baddbmm dot vdot matmul einsum nn.functional.linear nn.functional.conv2d
cat gather scatter_add index_select index_put index_add index_fill index_copy take put masked_select flip
masked_scatter roll tril triu eye linspace logspace nonzero nn.functional.pad clone bool
"""
RARE = """
i0 special.i1e special.bessel_y1 special.airy_ai special.erfcx special.log_ndtr special.modified_bessel_k1 special.zeta
special.chebyshev_polynomial_v special.shifted_chebyshev_polynomial_u special.legendre_polynomial_p
special.hermite_polynomial_h polygamma.polygamma_n_3 igamma igammac gcd lcm nextafter
unique unique_consecutive mode isin searchsorted bucketize histc histogram histogramdd bincount renorm cross addbmm
cdist nn.functional.pdist nn.functional.grid_sample nn.functional.max_unpool2d nn.functional.fractional_max_pool3d
nn.functional.multi_margin_loss nn.functional.multilabel_margin_loss nn.functional.ctc_loss nn.functional.embedding_bag
nn.functional.channel_shuffle nn.functional.rrelu _upsample_bilinear2d_aa _segment_reduce.lengths hash_tensor
tril_indices triu_indices
"""
# Positions of equal keys are not defined without `stable`, and samples of few values are full of them.
UNSTABLE = ("topk", "kthvalue", "sort", "argsort", "nanmedian", "median")
ROOMS = {
    "pointwise": Room(
        POINTWISE,
        (torch.float32, torch.bfloat16),
        8,
        torch.float32,
        tuple((name, torch.bfloat16) for name in ("angle", "isclose", "clamp")),
    ),
    "integers": Room(OF_INTEGERS, (torch.int64, torch.uint8), 8),
    "folds": Room(FOLDS, NUMBERS, 24, None, tuple((name, torch.bfloat16) for name in UNSTABLE)),
    "gradients of folds": Room(GRADIENTS_OF_FOLDS, (torch.float32,), 12, torch.float32, fallback="quiet"),
    # The CPU adds 16-bit numbers in 16 bits in this one; the device adds in single precision.
    "movement": Room(MOVEMENT, NUMBERS, 8, None, (("nn.functional.adaptive_avg_pool3d", torch.bfloat16),)),
    "gradients of movement": Room(GRADIENTS_OF_MOVEMENT, (torch.float32,), 6, torch.float32, fallback="quiet"),
    "complex": Room(OF_COMPLEX_NUMBERS, (torch.complex64, torch.complex128), 6, torch.complex64),
    "rare": Room(RARE, NUMBERS, 6, torch.float32, statuses=("passed", "skipped")),
}
WITHOUT_GRADIENT = [("complex", "index_fill")]  # which asks for _unique, whatever the type


def cases():
    for room, facts in ROOMS.items():
        for name in facts.ops.split():
            op = BY_NAME.get(name.replace(".", "_")) or next(op for op in op_db if op.name == name)
            for dtype in facts.dtypes:
                if dtype in op.supported_dtypes("cpu") and (name, dtype) not in facts.left_out:
                    yield pytest.param(room, name, op, dtype, id=f"{room}-{name}-{str(dtype).removeprefix('torch.')}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("room", "name", "op", "dtype"), list(cases()))
def test_as_on_the_cpu_and_without_fallback(room, name, op, dtype):
    facts = ROOMS[room]
    grad = dtype == facts.gradient and (room, name) not in WITHOUT_GRADIENT
    with torch_npu.fallback.mode(facts.fallback):
        result = compare.check(op, dtype, device="npu", grad=grad, limit=facts.limit)
    assert result.status in facts.statuses, result.message
