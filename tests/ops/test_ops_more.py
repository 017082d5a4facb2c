"""Ops beyond the everyday ones run on the device: special functions, searches, histograms, sampling, distances, CTC.

PyTorch's own samples are in the conformance run; here are the corners that they leave out.
"""

import itertools
import math

import mpmath
import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db

import torch_npu
from torch_npu.testing import compare

OPS = """
i0 special.i1e special.bessel_y1 special.airy_ai special.erfcx special.log_ndtr special.modified_bessel_k1 special.zeta
special.chebyshev_polynomial_v special.shifted_chebyshev_polynomial_u special.legendre_polynomial_p
special.hermite_polynomial_h polygamma.polygamma_n_3 igamma igammac gcd lcm nextafter
unique unique_consecutive mode isin searchsorted bucketize histc histogram histogramdd bincount renorm cross addbmm
cdist nn.functional.pdist nn.functional.grid_sample nn.functional.max_unpool2d nn.functional.fractional_max_pool3d
nn.functional.multi_margin_loss nn.functional.multilabel_margin_loss nn.functional.ctc_loss nn.functional.embedding_bag
nn.functional.channel_shuffle nn.functional.rrelu _upsample_bilinear2d_aa _segment_reduce.lengths hash_tensor
tril_indices triu_indices
""".split()
BY_NAME = {op.full_name: op for op in op_db}


@pytest.fixture
def no_fallback():
    with torch_npu.fallback.mode("error"):
        yield


def cases():
    for name in OPS:
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            if dtype in BY_NAME[name].supported_dtypes("cpu"):
                yield pytest.param(BY_NAME[name], dtype, id=f"{name}-{str(dtype).removeprefix('torch.')}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "dtype"), list(cases()))
def test_as_on_the_cpu_and_without_fallback(op, dtype, no_fallback):
    result = compare.check(op, dtype, device="npu", grad=dtype == torch.float32, limit=6)
    assert result.status in ("passed", "skipped"), result.message


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
def test_special_functions_are_accurate_in_double(name, no_fallback):
    exact, low, high = SPECIAL[name]
    x = torch.linspace(low, high, 157, dtype=torch.float64)
    function = BY_NAME[name].op
    got = function(x.npu()).cpu()
    want = torch.tensor([float(exact(mpmath.mpf(v))) for v in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", [*SPECIAL, "i0", "special.i1", "special.scaled_modified_bessel_k1"])
def test_special_functions_at_the_ends(name, no_fallback):
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, 8.0, -8.0, 2.0, math.nan], dtype=torch.float32)
    function = BY_NAME[name].op
    torch.testing.assert_close(function(x.npu()).cpu(), function(x), equal_nan=True)


def test_incomplete_gamma_from_tiny_to_large_and_at_the_ends(no_fallback):
    a = torch.tensor([1e-4, 0.3, 1.0, 7.5, 90.0, 2000.0], dtype=torch.float64)
    x = torch.tensor([1e-9, 1e-3, 0.3, 1.0, 7.5, 95.0, 1950.0, 4000.0], dtype=torch.float64)
    for function in (torch.special.gammainc, torch.special.gammaincc):
        got = function(a.npu()[:, None], x.npu()[None]).cpu()
        torch.testing.assert_close(got, function(a[:, None], x[None]), rtol=1e-9, atol=1e-300)
        ends = torch.tensor([0.0, 1.0, -1.0, math.inf, math.nan])
        got = function(ends.npu()[:, None], ends.npu()[None]).cpu()
        torch.testing.assert_close(got, function(ends[:, None], ends[None]), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_nextafter_of_every_half(dtype, no_fallback):
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    for to in (math.inf, -math.inf, 0.0, math.nan):
        y = torch.full((), to, dtype=dtype)
        got, want = torch.nextafter(x.npu(), y.npu()).cpu(), torch.nextafter(x, y)
        assert torch.equal(got.isnan(), want.isnan())
        assert torch.equal(got.view(torch.int16)[~got.isnan()], want.view(torch.int16)[~want.isnan()])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_integers_beside_halves_are_rounded_first(dtype, no_fallback):
    x = torch.tensor([1.0, -2.5, 300.0], dtype=dtype)
    n = torch.tensor([4097, 2049, 257])
    for op in (torch.add, torch.mul, torch.div, torch.maximum, torch.clamp_min):
        torch.testing.assert_close(op(x.npu(), n.npu()).cpu(), op(x, n), rtol=0, atol=0)
    for mode in ("trunc", "floor"):
        got = torch.div(n.to(dtype).npu(), x.npu(), rounding_mode=mode).cpu()
        assert torch.equal(got, torch.div(n.to(dtype), x, rounding_mode=mode))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_gcd_and_lcm_of_the_longest_sequences(dtype, no_fallback):
    limit = torch.iinfo(dtype).max
    fibonacci = [1, 2]
    while fibonacci[-1] + fibonacci[-2] <= limit:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    x, y = torch.tensor(fibonacci[:-1], dtype=dtype), torch.tensor(fibonacci[1:], dtype=dtype)
    assert torch.equal(torch.gcd(x.npu(), y.npu()).cpu(), torch.ones_like(x))
    zero = torch.zeros((), dtype=dtype)
    assert torch.equal(torch.gcd(x.npu(), zero.npu()).cpu(), x)
    assert torch.equal(torch.lcm(x.npu(), zero.npu()).cpu(), torch.zeros_like(x))


def test_unique_counts_every_nan(no_fallback):
    x = torch.tensor([2.0, math.nan, 1.0, 2.0, math.nan, -0.0, 0.0])
    got = torch.unique(x.npu(), return_inverse=True, return_counts=True)
    want = torch.unique(x, return_inverse=True, return_counts=True)
    torch.testing.assert_close(got[0].cpu(), want[0], equal_nan=True)
    assert torch.equal(got[2].cpu(), want[2])
    assert sorted(got[1].cpu().tolist()) == sorted(want[1].tolist())


def test_unique_rows_of_many_columns(no_fallback):
    torch.manual_seed(0)
    x = torch.randint(0, 2, (40, 4, 13))[torch.randint(0, 12, (60,))]
    for dim in (0, 1, 2):
        got = torch.unique(x.npu(), dim=dim, return_inverse=True, return_counts=True)
        want = torch.unique(x, dim=dim, return_inverse=True, return_counts=True)
        for a, b in zip(got, want, strict=True):
            assert torch.equal(a.cpu(), b)
    got = torch.unique_consecutive(x.npu(), dim=0, return_inverse=True, return_counts=True)
    want = torch.unique_consecutive(x, dim=0, return_inverse=True, return_counts=True)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(got, want, strict=True))


def test_searchsorted_by_a_sorter_strided_and_beyond_the_ends(no_fallback):
    torch.manual_seed(1)
    rows = torch.randn(3, 17)
    order = rows.argsort(1)
    values = torch.cat([torch.randn(5, 3), torch.full((1, 3), math.inf), torch.full((1, 3), math.nan)]).t()
    for right in (False, True):
        got = torch.searchsorted(rows.npu(), values.npu(), right=right, sorter=order.npu())
        assert torch.equal(got.cpu(), torch.searchsorted(rows, values.contiguous(), right=right, sorter=order))
    empty = torch.searchsorted(torch.empty(0).npu(), torch.ones(2).npu())
    assert empty.tolist() == [0, 0]


@pytest.mark.parametrize("tests", [1, 16, 17, 1000])
def test_isin_by_comparison_and_by_search(tests, no_fallback):
    torch.manual_seed(2)
    x, y = torch.randint(0, 500, (7, 30)), torch.randint(0, 500, (tests,))
    for invert in (False, True):
        got = torch.isin(x.npu(), y.npu(), invert=invert)
        assert torch.equal(got.cpu(), torch.isin(x, y, invert=invert))
    nans = torch.full((20,), math.nan)
    assert not torch.isin(nans.npu(), nans.npu()).any()


def test_triangle_indices_of_every_small_shape(no_fallback):
    for rows, columns, offset in itertools.product(range(5), range(5), range(-6, 7)):
        for make in (torch.tril_indices, torch.triu_indices):
            got = make(rows, columns, offset, device="npu").cpu()
            assert torch.equal(got, make(rows, columns, offset)), (make, rows, columns, offset)
    big = torch.tril_indices(3000, 3000, device="npu").cpu()
    assert torch.equal(big, torch.tril_indices(3000, 3000))


SAMPLERS = itertools.product(
    (2, 3), ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True)
)


@pytest.mark.parametrize(("n", "mode", "padding", "align"), [s for s in SAMPLERS if s[:2] != (3, "bicubic")])
def test_grid_sample_and_its_gradients(n, mode, padding, align, no_fallback):
    torch.manual_seed(3)
    x = torch.randn(2, 3, *(5, 6, 4)[:n], dtype=torch.float64)
    grid = torch.randn(2, *(3, 7, 2)[:n], n, dtype=torch.float64) * 1.5
    results = []
    for device in ("cpu", "npu"):
        leaves = [t.to(device).requires_grad_() for t in (x, grid)]
        out = F.grid_sample(*leaves, mode=mode, padding_mode=padding, align_corners=align)
        grads = torch.autograd.grad(out, leaves, torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(out))
        results.append([t.detach().cpu() for t in (out, *grads)])
    torch.testing.assert_close(results[1], results[0])


def test_ctc_with_empty_targets_short_inputs_and_impossible_ones(no_fallback):
    torch.manual_seed(4)
    logits = torch.randn(9, 4, 6, dtype=torch.float64)
    targets = torch.tensor([[1, 2, 2, 3], [5, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
    inputs, lengths = (9, 4, 7, 5), (4, 1, 0, 4)  # the last needs seven steps
    results = []
    for device in ("cpu", "npu"):
        x = logits.to(device).requires_grad_()
        loss = F.ctc_loss(x.log_softmax(2), targets.to(device), inputs, lengths, reduction="none", zero_infinity=True)
        (grad,) = torch.autograd.grad(loss.sum(), x)
        results.append([loss.detach().cpu(), grad.cpu()])
    assert results[0][0][3] == 0
    torch.testing.assert_close(results[1], results[0])


def test_embedding_bag_with_empty_bags_and_padding(no_fallback):
    torch.manual_seed(5)
    weight = torch.randn(10, 3)
    index = torch.tensor([1, 2, 2, 9, 4, 2])
    offsets = torch.tensor([0, 2, 2, 5])
    for mode in ("sum", "mean", "max"):
        results = []
        for device in ("cpu", "npu"):
            w = weight.to(device).requires_grad_()
            out = F.embedding_bag(index.to(device), w, offsets.to(device), mode=mode, padding_idx=2)
            (grad,) = torch.autograd.grad(out, w, torch.arange(12.0).reshape(4, 3).to(device))
            results.append([out.detach().cpu(), grad.cpu()])
        torch.testing.assert_close(results[1], results[0])


def test_channel_shuffle_keeps_channels_last(no_fallback):
    x = torch.arange(2 * 6 * 3 * 2.0).reshape(2, 6, 3, 2).contiguous(memory_format=torch.channels_last)
    got, want = F.channel_shuffle(x.npu(), 3), F.channel_shuffle(x, 3)
    assert got.stride() == want.stride()
    assert torch.equal(got.cpu(), want)


def test_wrong_calls_are_refused_as_on_the_cpu():
    calls = [
        lambda d: torch.bincount(torch.tensor([-1], device=d)),
        lambda d: torch.histc(torch.ones(3, device=d), min=2, max=1),
        lambda d: torch.searchsorted(torch.ones(2, 3, device=d), torch.ones(3, 3, device=d)),
        lambda d: F.ctc_loss(torch.zeros(2, 1, 3, device=d), torch.ones(1, 1, dtype=torch.long, device=d), (3,), (1,)),
        lambda d: F.channel_shuffle(torch.ones(1, 4, 2, device=d), 3),
        lambda d: torch.cross(torch.ones(2, device=d), torch.ones(2, device=d), dim=0),
        lambda d: F.max_unpool2d(torch.ones(1, 2, 2, device=d), torch.ones(1, 2, 2, device=d), 2),
        lambda d: torch.polygamma(-1, torch.ones(1, device=d)),
        lambda d: torch.cdist(torch.ones(2, 3, device=d), torch.ones(2, 4, device=d)),
    ]
    for call in calls:
        with pytest.raises(RuntimeError) as want:
            call("cpu")
        with pytest.raises(RuntimeError) as got:
            call("npu")
        assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]


def test_repeats_that_cannot_be_are_refused(cmodel):
    x = torch.arange(3, device="npu")

    def repeat(*counts, size=None):
        return torch.repeat_interleave(x, torch.tensor(counts, device="npu"), output_size=size).tolist()

    with pytest.raises(RuntimeError, match="repeats can not be negative"):
        repeat(3, -1, 2)
    for size in (3, 5, 7):
        with pytest.raises(IndexError, match="aten::repeat_interleave"):
            repeat(2, 2, 2, size=size)
    assert repeat(2, 0, 2, size=4) == repeat(2, 0, 2) == [0, 0, 2, 2]
