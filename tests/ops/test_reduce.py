"""Everything that folds: reductions, scans, sorts, softmax, norms and losses run on the device, as the CPU does."""

import math

import pytest
import torch
import torch.nn.functional as F

import torch_npu
from tests.support.tensors import FLOATS, INTS, assert_same, layouts, values
from torch_npu.testing import compare


def both(function, *tensors):
    """The results on the device, without fallback, and on the CPU."""
    with torch_npu.fallback.mode("error"):
        got = function(*[t.to("npu") for t in tensors])
    return got, function(*tensors)


def same(function, *tensors):
    got, want = both(function, *tensors)
    compare.assert_same(got, want, values=True, device="npu", rtol=0.0, atol=0.0)


NAN = math.nan


@pytest.mark.parametrize(
    "row", [[1.0, 3.0, 3.0, 2.0], [1.0, NAN, 3.0, NAN], [-math.inf, -math.inf], [NAN, NAN], [0.0, -0.0]]
)
def test_first_of_equals_and_first_nan(row):
    x = torch.tensor(row)
    for function in (torch.argmax, torch.argmin, lambda t: torch.max(t, 0), lambda t: torch.min(t, 0)):
        same(function, x)


def test_argmax_counts_in_logical_order():
    x = torch.randn(5, 7, 3)
    same(lambda t: t.transpose(0, 2).argmax(), x)
    same(lambda t: t.transpose(0, 2).argmax(1, keepdim=True), x)


def test_cummax_takes_the_later_of_equals_and_keeps_a_nan():
    x = torch.tensor([1.0, 3.0, 3.0, 2.0, NAN, 9.0, NAN, 1.0])
    same(lambda t: torch.cummax(t, 0), x)
    same(lambda t: torch.cummin(t, 0), x)


@pytest.mark.parametrize("row", [[3.0, 1.0, 2.0, 4.0], [3.0, NAN, 2.0, NAN], [NAN, NAN], [5.0]])
def test_median_with_nan(row):
    x = torch.tensor(row)
    for function in (torch.median, torch.nanmedian, lambda t: torch.median(t, 0), lambda t: torch.nanmedian(t, 0)):
        same(function, x)


def test_stable_sort_keeps_equals_in_order_both_ways():
    x = torch.randint(0, 4, (3, 50))
    same(lambda t: torch.sort(t, dim=1, stable=True), x)
    same(lambda t: torch.sort(t, dim=0, stable=True, descending=True), x)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "any", "all", "logsumexp", "nansum", "var"])
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_fold_over_no_elements(name):
    x = torch.empty(3, 0)
    same(lambda t: getattr(torch, name)(t, dim=1), x)


@pytest.mark.parametrize("name", ["amax", "argmax", "max"])
def test_fold_without_identity_over_no_elements_is_an_error(name):
    x = torch.empty(3, 0)
    errors = []
    for device in ("cpu", "npu"):
        with pytest.raises((IndexError, RuntimeError)) as caught:
            getattr(torch, name)(x.to(device), dim=1)
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]


def test_integer_sums_are_64_bits_wide():
    x = torch.full((1000,), 120, dtype=torch.int8)
    same(torch.sum, x)
    same(lambda t: torch.prod(t[:9]), x)


def test_half_sums_accumulate_in_float():
    x = torch.full((4096,), 0.1, dtype=torch.bfloat16)
    got = torch.sum(x.to("npu"))
    assert abs(got.item() - 409.6) < 2


def test_nll_loss_ignores_an_index_and_checks_the_others():
    x = torch.randn(4, 5)
    target = torch.tensor([1, -100, 4, 0])
    got, want = both(lambda a, b: torch.nn.functional.cross_entropy(a, b), x, target)
    torch.testing.assert_close(got.cpu(), want)
    with pytest.raises(IndexError, match="out of bounds"):
        torch.nn.functional.nll_loss(x.to("npu"), torch.tensor([0, 9, 1, 1]).to("npu")).item()


def test_softmax_of_a_masked_row_is_nan_as_on_the_cpu():
    x = torch.full((2, 3), -math.inf)
    same(lambda t: torch.softmax(t, 1), x)


@pytest.mark.parametrize("dtype", FLOATS + INTS + [torch.bool], ids=str)
@pytest.mark.parametrize("dim", [None, 0, 1, -1, (0, 2), (1, 2), (0, 1, 2)])
def test_sum(dtype, dim):
    a = values((3, 70, 33), dtype)
    x = a.to("npu")
    for t, u in zip(layouts(x), layouts(a)):
        for keepdim in (False, True):
            assert_same(
                t.sum(dim, keepdim=keepdim),
                u.sum(dim, keepdim=keepdim),
                rtol=2e-2 if dtype.itemsize == 2 else 1e-5,
                atol=1e-4,
            )


def test_sum_of_nothing_and_of_other_dtype():
    assert_same(torch.ones(0, 3, device="npu").sum(0), torch.zeros(3))
    a = values((100,), torch.bfloat16)
    assert_same(a.to("npu").sum(dtype=torch.float64), a.sum(dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(3, 4), (5, 64), (2, 3, 300)])
def test_gradients_of_norms_with_statistics_in_16_bits(dtype, shape):
    torch.manual_seed(0)
    tensors = [torch.randn(shape), torch.randn(shape[-1]), torch.randn(shape[-1])]
    grad = torch.randn(shape)

    def gradients(device, dtype):
        x, weight, bias = (t.to(dtype).to(device).requires_grad_() for t in tensors)
        F.layer_norm(x, shape[-1:], weight, bias).backward(grad.to(dtype).to(device))
        return [t.grad.cpu().double() for t in (x, weight, bias)]

    for mine, exact in zip(gradients("npu", dtype), gradients("cpu", torch.float64), strict=True):
        torch.testing.assert_close(mine, exact, rtol=0.05, atol=0.05)


def test_ctc_with_empty_targets_short_inputs_and_impossible_ones(native):
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
