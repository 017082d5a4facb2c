"""Folds of one range are one command, whatever is computed before, between and behind them."""

import re

import pytest
import torch
import torch._dynamo
from torch.nn import functional as F

from tests.support.compiled import check, to_cpu

REDUCTIONS = {
    "sums": (lambda x: (x.sum(), x.sum(0), x.mean((0, 2), keepdim=True), x.prod(1)), 4),
    "extremes": (lambda x: (x.amax(-1), x.amin(-1), x.argmax(-1), x.argmin(-1)), 1),
    "variance": (lambda x: torch.var_mean(x, -1), 1),
    "softmax": (lambda x: torch.softmax(x * 2, -1) + 1, 1),
    "log softmax": (lambda x: F.log_softmax(x, -1), 1),
    "layer norm": (lambda x: F.layer_norm(x.relu(), (9,)), 1),
    "rms norm": (lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5), 1),
    "truth": (lambda x: ((x > 1).any(-1), (x > -3).all(-1), (x > 0).sum(-1)), 1),
    "seven folds": (lambda x: (*((x * k).sum(-1) for k in range(1, 5)), x.amax(-1), x.amin(-1), x.prod(-1)), 1),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_over_one_range_are_one_command(name):
    fn, kernels = REDUCTIONS[name]
    check(fn, torch.randn(7, 5, 9), kernels=kernels)


def test_argmax_counts_in_the_order_of_dimensions():
    check(lambda x: (x.t().argmax(), (x + 1).t().argmin()), torch.randn(7, 5))


@pytest.mark.parametrize("params", [torch.bfloat16, torch.float32])
def test_statistics_of_norms_have_the_types_of_eager_mode(params):
    def f(x, image, weight, mean, var):
        layer = torch.native_layer_norm(x, (8,), weight, weight, 1e-5)
        training = torch.native_batch_norm(image, weight, weight, mean.clone(), var.clone(), True, 0.1, 1e-5)
        return *layer, *training, *torch.native_batch_norm(image, weight, None, mean, var, False, 0.1, 1e-5)

    x, image = torch.randn(6, 8).bfloat16(), torch.randn(4, 8, 5).bfloat16()
    numbers = [t.to(params) for t in (torch.randn(8), torch.randn(8), torch.rand(8) + 1)]
    check(f, x, image, *numbers, tolerance={"rtol": 2e-2, "atol": 2e-2})


def test_any_of_bytes_is_a_byte():
    check(lambda x: (x.any(), x.any(1), x.all(1), x.bool().any(0)), torch.tensor([[0, 2], [0, 0]], dtype=torch.uint8))


@pytest.mark.parametrize("special", [None, float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_chain_of_norms_walks_over_one_tensor(dtype, special):
    def norms(x):
        for k in range(3):
            x = torch.tanh(x + k) * x
            x = (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-2)
        return x

    given = torch.randn(33, 100, dtype=dtype)
    if special is not None:
        given[3, 5] = special
    near = 1e-4 if dtype == torch.float32 else 1e-1
    code = check(norms, given, kernels=1, tolerance={"rtol": near, "atol": near, "equal_nan": True})
    if dtype == torch.float32:  # else what is stored is not what was computed
        assert code.count("fold sum") == 6 and "welford" not in code
    assert len(set(re.findall(r"store (\w+)", code))) == 1, code


def test_a_sum_beside_moments_is_what_it_is_alone():
    """Exact where the sum is, and infinite where one element is."""
    ones = (torch.rand(200, 1000) < torch.rand(200, 1)).float()
    long = torch.ones(4, 5000)
    long[:, 2500] = float("inf")
    both = torch.compile(lambda x: (x.sum(-1), x.mean(-1), x.var(-1)))
    for x in (ones, long):
        total, mean, _ = to_cpu(both(x.npu()))
        assert total.equal(x.sum(-1)) and mean.allclose(x.mean(-1))


def _two_moments(x, y):
    a = x + y
    return a, (a * 2).var(1), a.var(1)


def _moments_of_a_result_in_place(x, y):
    a = x + 1
    y.copy_(a - a.mean(1, keepdim=True))
    return y.var(1), (y * 3).var(1)


def _moments_of_a_norm_in_place(x, y):
    a = x + y
    y.copy_(F.layer_norm(a, (64,)))
    return (y * 2).var(1)


@pytest.mark.parametrize("fn", [_two_moments, _moments_of_a_result_in_place, _moments_of_a_norm_in_place])
def test_second_passes_find_what_they_load(fn):
    check(fn, torch.randn(32, 64), torch.randn(32, 64))


def test_moments_of_nothing_are_nan():
    def moments(x):
        return torch.var_mean(x), torch.std_mean(x, 0, keepdim=True), torch.var_mean(x, (0, 1), correction=0)

    check(moments, torch.randn(0, 3), tolerance={"rtol": 0, "atol": 0, "equal_nan": True})
