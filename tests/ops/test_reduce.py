"""Everything that folds: reductions, scans, sorts, softmax, norms and losses run on the device, as the CPU does."""

import math

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import torch_npu
from torch_npu import native
from torch_npu.testing import compare

OPS = """
sum mean prod amax amin aminmax max.reduction_no_dim max.reduction_with_dim min.reduction_no_dim min.reduction_with_dim
argmax argmin any all var std var_mean std_mean linalg.vector_norm norm logsumexp nansum count_nonzero
cumsum cumprod cummax cummin logcumsumexp softmax log_softmax nn.functional.softmin
nn.functional.layer_norm native_layer_norm nn.functional.group_norm nn.functional.rms_norm
nn.functional.batch_norm native_batch_norm nn.functional.instance_norm
nn.functional.mse_loss nn.functional.smooth_l1_loss nn.functional.huber_loss nn.functional.binary_cross_entropy
nn.functional.nll_loss nn.functional.cross_entropy
dot vdot mv addmv trace equal sort argsort topk kthvalue msort median nanmedian
""".split()
BY_NAME = {op.full_name: op for op in op_db}
# Positions of equal keys are not defined without `stable`, and samples of few values are full of them.
UNSTABLE = {"topk", "kthvalue", "sort", "argsort", "nanmedian", "median"}
DTYPES = (torch.float32, torch.bfloat16, torch.int64)


def cases():
    for name in OPS:
        for dtype in DTYPES:
            op = BY_NAME[name]
            if dtype in op.supported_dtypes("cpu"):
                if not (name in UNSTABLE and dtype == torch.bfloat16):
                    yield pytest.param(op, dtype, id=f"{name}-{str(dtype).removeprefix('torch.')}")


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize(("op", "dtype"), list(cases()))
def test_as_on_the_cpu_and_without_fallback(op, dtype):
    with torch_npu.fallback.mode("error"):
        result = compare.check(op, dtype, device="npu", grad=False, limit=24)
    assert result.status == "passed", result.message


GRADIENTS = """
sum mean amax logsumexp var softmax log_softmax nn.functional.layer_norm nn.functional.group_norm
nn.functional.rms_norm nn.functional.batch_norm nn.functional.mse_loss nn.functional.smooth_l1_loss
nn.functional.huber_loss nn.functional.binary_cross_entropy nn.functional.nll_loss nn.functional.cross_entropy
""".split()


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient_as_on_the_cpu(name):
    result = compare.check(BY_NAME[name], torch.float32, device="npu", grad=True, limit=12)
    assert result.status == "passed", result.message


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


def test_batch_norm_updates_running_statistics():
    x = torch.randn(4, 3, 5, 5)

    def run(t):
        norm = torch.nn.BatchNorm2d(3).to(t.device)
        norm(t)
        return norm.running_mean, norm.running_var, norm.eval()(t)

    got, want = both(run, x)
    compare.assert_same(got, want, values=True, device="npu", rtol=1e-5, atol=1e-5)


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


def test_one_command_each():
    x = torch.randn(8, 16, device="npu")
    for function in (
        lambda: torch.softmax(x, 1),
        lambda: torch.var(x, 0),
        lambda: torch.logsumexp(x, 1),
        lambda: torch.nn.functional.layer_norm(x, (16,)),
    ):
        with native.counting():
            function()
        assert sum(native.report().values()) == 1
