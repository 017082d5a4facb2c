"""Functions of mathematics at the corners that the samples of PyTorch leave out, against mpmath and the CPU."""

import math

import mpmath
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

BY_NAME = {op.full_name: op for op in op_db}
SPECIAL = {
    "special.i0e": (lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(0, x), -60, 60),
    "special.i1e": (lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(1, x), -60, 60),
    "special.bessel_j0": (lambda x: mpmath.besselj(0, x), -60, 60),
    "special.bessel_j1": (lambda x: mpmath.besselj(1, x), -60, 60),
    "special.bessel_y0": (lambda x: mpmath.bessely(0, x), 0.01, 60),
    "special.bessel_y1": (lambda x: mpmath.bessely(1, x), 0.01, 60),
    "special.modified_bessel_k0": (lambda x: mpmath.besselk(0, x), 0.01, 60),
    "special.modified_bessel_k1": (lambda x: mpmath.besselk(1, x), 0.01, 60),
    "special.airy_ai": (mpmath.airyai, -20, 20),
    "special.erfcx": (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), -20, 300),
    "special.log_ndtr": (lambda x: mpmath.log(mpmath.ncdf(x)), -30, 8),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions_are_accurate_in_double(name, native):
    exact, low, high = SPECIAL[name]
    x = torch.linspace(low, high, 157, dtype=torch.float64)
    function = BY_NAME[name].op
    got = function(x.npu()).cpu()
    want = torch.tensor([float(exact(mpmath.mpf(v))) for v in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", [*SPECIAL, "i0", "special.i1", "special.scaled_modified_bessel_k1"])
def test_special_functions_at_the_ends(name, native):
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, 8.0, -8.0, 2.0, math.nan], dtype=torch.float32)
    function = BY_NAME[name].op
    torch.testing.assert_close(function(x.npu()).cpu(), function(x), equal_nan=True)


def test_incomplete_gamma_from_tiny_to_large_and_at_the_ends(native):
    a = torch.tensor([1e-4, 0.3, 1.0, 7.5, 90.0, 2000.0], dtype=torch.float64)
    x = torch.tensor([1e-9, 1e-3, 0.3, 1.0, 7.5, 95.0, 1950.0, 4000.0], dtype=torch.float64)
    for function in (torch.special.gammainc, torch.special.gammaincc):
        got = function(a.npu()[:, None], x.npu()[None]).cpu()
        torch.testing.assert_close(got, function(a[:, None], x[None]), rtol=1e-9, atol=1e-300)
        ends = torch.tensor([0.0, 1.0, -1.0, math.inf, math.nan])
        got = function(ends.npu()[:, None], ends.npu()[None]).cpu()
        torch.testing.assert_close(got, function(ends[:, None], ends[None]), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_nextafter_of_every_half(dtype, native):
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    for to in (math.inf, -math.inf, 0.0, math.nan):
        y = torch.full((), to, dtype=dtype)
        got, want = torch.nextafter(x.npu(), y.npu()).cpu(), torch.nextafter(x, y)
        assert torch.equal(got.isnan(), want.isnan())
        assert torch.equal(got.view(torch.int16)[~got.isnan()], want.view(torch.int16)[~want.isnan()])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_gcd_and_lcm_of_the_longest_sequences(dtype, native):
    limit = torch.iinfo(dtype).max
    fibonacci = [1, 2]
    while fibonacci[-1] + fibonacci[-2] <= limit:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    x, y = torch.tensor(fibonacci[:-1], dtype=dtype), torch.tensor(fibonacci[1:], dtype=dtype)
    assert torch.equal(torch.gcd(x.npu(), y.npu()).cpu(), torch.ones_like(x))
    zero = torch.zeros((), dtype=dtype)
    assert torch.equal(torch.gcd(x.npu(), zero.npu()).cpu(), x)
    assert torch.equal(torch.lcm(x.npu(), zero.npu()).cpu(), torch.zeros_like(x))
