"""Pointwise ops against the CPU: PyTorch's own samples with fallback forbidden, and known traps."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.support.tensors import FLOATS, INTS, assert_same, same, values

SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-40, 3.4e38, 0.5, -2.5])


@pytest.mark.parametrize(
    "function",
    [torch.maximum, torch.fmin, torch.fmod, torch.remainder, torch.atan2, torch.copysign, torch.xlogy, torch.logaddexp]
    + [torch.pow, torch.heaviside, torch.nextafter, torch.floor_divide],
    ids=lambda f: f.__name__,
)
def test_special_values_of_two_operands(native, function):
    # Without the tiny and the huge one: PyTorch's vector code yields NaN for remainders of far apart numbers.
    values = torch.cat([SPECIAL[:7], SPECIAL[9:]])
    a, b = (t.flatten().contiguous() for t in torch.meshgrid(values, values, indexing="ij"))
    same(function, a, b)


@pytest.mark.parametrize(
    "function",
    [F.relu, F.silu, F.softplus, F.hardswish, F.hardshrink, F.softshrink, F.logsigmoid, F.leaky_relu, F.elu]
    + [torch.sign, torch.signbit, torch.sgn, torch.isinf, torch.nan_to_num, torch.angle, torch.sinc, torch.logit]
    + [torch.round, torch.frac, torch.log1p, torch.isfinite, torch.logical_not],
    ids=lambda f: f.__name__,
)
def test_special_values_of_one_operand(native, function):
    same(function, SPECIAL, atol=1e-6, rtol=1e-5)


def test_integers_narrower_than_the_computation_wrap(native):
    a = torch.arange(256, dtype=torch.uint8)
    same(lambda x: x * x + x, a)
    same(lambda x: -x, a)
    same(lambda x: ~x, a)
    same(lambda x: x << 3, a)
    same(torch.abs, torch.tensor([-128, 127], dtype=torch.int8))
    same(lambda x: torch.floor_divide(x, -1), torch.tensor([-128, 127], dtype=torch.int8))


def test_half_precision_rounds_once(native):
    x = torch.randn(1000).bfloat16()
    expected = F.silu(x.float()).bfloat16()
    torch.testing.assert_close(F.silu(x.to("npu")).cpu(), expected, rtol=0, atol=0)


def test_a_result_of_another_type_is_rounded_first():
    x = torch.randn(100).half()
    for out_type in (torch.float32, torch.float64):
        got = torch.add(x.to("npu"), x.to("npu") * 0.3, out=torch.empty(100, dtype=out_type, device="npu"))
        torch.testing.assert_close(got.cpu(), torch.add(x, x * 0.3, out=torch.empty(100, dtype=out_type)))


def test_where_takes_numbers_and_other_types(native):
    condition = torch.tensor([True, False, True])
    x = torch.tensor([1, 2, 3])
    same(lambda c, v: torch.where(c, v, 0.5), condition, x)
    same(lambda c, v: torch.where(c, 7, v), condition, x)
    same(lambda c, v: torch.where(c, v, v.double()), condition, x.float())


def test_masked_fill_broadcasts_both_ways(native):
    x, mask = torch.randn(4, 1), torch.tensor([True, False, True])
    same(lambda v, m: v.masked_fill(m, -1), x, mask)
    same(lambda v, m: v.clone().masked_fill_(m[:1], math.inf), x, mask)
    with pytest.raises(RuntimeError, match="only supports boolean masks"):
        x.to("npu").masked_fill_(torch.ones(4, 1, device="npu"), 0)


@pytest.mark.parametrize("mode", [None, "trunc", "floor"])
def test_rounding_modes(native, mode):
    a, b = torch.tensor([7, -7, 7, -7]), torch.tensor([2, 2, -2, -2])
    same(lambda x, y: torch.div(x, y, rounding_mode=mode), a, b)
    same(lambda x, y: torch.div(x, y, rounding_mode=mode), a / 1.0, b / 1.0)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -0.5, -1, -2, 2.7])
def test_powers_with_their_own_program(native, exponent):
    same(lambda x: x**exponent, torch.rand(50) + 0.1)
    same(lambda x: 2.5 ** (x * exponent), torch.rand(50))


@pytest.mark.parametrize("function", [F.elu, F.leaky_relu, F.hardtanh, F.threshold], ids=lambda f: f.__name__)
def test_gradient_of_an_in_place_activation(native, function):
    arguments = (0.1, 0.0) if function is F.threshold else ()
    grads = []
    for device in ("cpu", "npu"):
        x = torch.linspace(-2, 2, 9).to(device).requires_grad_()
        function(x * 1, *arguments, inplace=True).sum().backward()
        grads.append(x.grad.cpu())
    torch.testing.assert_close(*grads)


def test_foreach_runs_on_the_native_ops(native):
    lists = [[torch.randn(3, 4), torch.randn(5)] for _ in range(3)]
    moved = [[t.to("npu") for t in tensors] for tensors in lists]
    for expected, got in (
        (torch._foreach_add(lists[0], lists[1], alpha=2), torch._foreach_add(moved[0], moved[1], alpha=2)),
        (torch._foreach_addcmul(*lists, value=0.5), torch._foreach_addcmul(*moved, value=0.5)),
        (torch._foreach_lerp(lists[0], lists[1], 0.3), torch._foreach_lerp(moved[0], moved[1], 0.3)),
        (torch._foreach_exp(lists[0]), torch._foreach_exp(moved[0])),
    ):
        torch.testing.assert_close([t.cpu() for t in got], list(expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8], ids=str)
def test_ranges(native, dtype):
    for start, end, step in [(0, 10, 1), (3, 30, 7), (5, 6, 2)]:
        torch.testing.assert_close(
            torch.arange(start, end, step, dtype=dtype, device="npu").cpu(), torch.arange(start, end, step, dtype=dtype)
        )
    torch.testing.assert_close(
        torch.linspace(0, 50, 26, dtype=dtype, device="npu").cpu(), torch.linspace(0, 50, 26, dtype=dtype)
    )
    torch.testing.assert_close(torch.eye(3, 5, dtype=dtype, device="npu").cpu(), torch.eye(3, 5, dtype=dtype))


@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 4, 5), (1, 2, 1, 3, 2, 4, 3)])
def test_triangles_of_any_rank_and_layout(native, shape):
    x = torch.randn(shape)
    for k in (-2, 0, 1):
        same(lambda v, k=k: v.tril(k), x)
        same(lambda v, k=k: v.transpose(-1, -2).triu(k), x)
        same(lambda v, k=k: v.clone().tril_(k), x)


def test_binary_cross_entropy_with_weight(native):
    x, y, w = torch.rand(6, 3), torch.rand(6, 3), torch.rand(3)
    for reduction in ("none", "sum"):
        same(lambda a, b, c, r=reduction: F.binary_cross_entropy(a, b, c, reduction=r), x, y, w)


@pytest.mark.parametrize("dtype", FLOATS + INTS, ids=str)
def test_relu_and_its_gradient(dtype):
    a = values((8, 9), dtype)
    if dtype.is_floating_point:
        a[0, 0] = float("nan")
        x = a.to("npu").requires_grad_()
        y = a.clone().requires_grad_()
        for t in (x, y):
            t.relu().sum().backward()
        assert_same(x.grad, y.grad)
    assert_same(a.to("npu").relu(), a.relu())
    assert_same(a.to("npu").relu_(), a.relu())
