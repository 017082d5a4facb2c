"""Types that the CPU has no kernel for: npu says so in the same words, or its result is right."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map_only

pytestmark = pytest.mark.filterwarnings("ignore")  # of deprecated ops
DTYPES = (torch.bool, torch.int64, torch.complex64)


class Sample:
    """The arguments of one call, their floats in another type."""

    def __init__(self, op):
        sample = next(iter(op.sample_inputs("cpu", torch.float32)))
        self.op, self.arguments = op, (sample.input, sample.args, sample.kwargs)

    def call(self, device: str, *types: torch.dtype):
        """Converts to one type after the other. Returns the result, or the exception."""

        def convert(tensor):
            tensor = tensor.detach().clone()
            if tensor.is_floating_point():
                for dtype in types:
                    tensor = tensor.to(dtype)
            return tensor.to(device)

        first, rest, named = tree_map_only(torch.Tensor, convert, self.arguments)
        named = {key: device if key == "device" else value for key, value in named.items()}
        try:
            result = self.op(first, *rest, **named)
            torch.npu.synchronize()
            return result
        except Exception as error:
            return error


def is_right(result, wide) -> bool:
    """A result in double precision, rounded to the type of this one. Other results of the op are positions, where equal
    elements may be taken for each other."""
    got, wanted = tree_leaves(result)[0].cpu(), tree_leaves(wide)[0]
    if got.dtype == torch.bool:
        wanted = wanted != 0
    elif not (got.is_floating_point() or got.is_complex()):
        if not bool(wanted.isfinite().all()):
            return False
    return torch.allclose(got, wanted.to(got.dtype), rtol=1e-4, atol=1e-4)


def fault(sample: Sample, dtype: torch.dtype) -> str:
    expected = sample.call("cpu", dtype)
    if not isinstance(expected, Exception):
        return ""
    result = sample.call("npu", dtype)
    if isinstance(result, torch.AcceleratorError) or isinstance(result, (SystemError, AssertionError)):
        return f"{type(result).__name__}: {result}"
    if isinstance(result, Exception):
        return ""
    wide = sample.call("cpu", dtype, torch.complex128 if dtype.is_complex else torch.float64)
    if isinstance(wide, Exception) or is_right(result, wide):
        return ""
    return f"{result} where the CPU raises {expected}"


def test_what_the_cpu_refuses_raises_too_or_is_right(cmodel):
    faults, calls = {}, 0
    for op in op_db:
        refused = [dtype for dtype in DTYPES if dtype not in op.supported_dtypes("cpu")]
        if torch.float32 not in op.supported_dtypes("cpu") or not refused:
            continue
        sample = Sample(op)
        for dtype in refused:
            calls += 1
            if found := fault(sample, dtype):
                faults[f"{op.full_name} {dtype}"] = found.splitlines()[0]
    assert not faults, "\n".join(f"{name}: {text}" for name, text in faults.items())
    assert calls > 500


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.softmax(x, -1),
        lambda x: F.log_softmax(x, -1),
        lambda x: F.cross_entropy(x, torch.zeros(2, dtype=torch.int64, device=x.device)),
        lambda x: F.layer_norm(x, (4,)),
        lambda x: F.group_norm(x, 2),
        lambda x: x.logcumsumexp(0),
        lambda x: F.dropout(x),
        lambda x: x.exponential_(),
        lambda x: x.normal_(),
        lambda x: x.log_normal_(),
        lambda x: x.cauchy_(),
        lambda x: x.uniform_(),
        lambda x: torch.igamma(x, x),
    ],
)
def test_integers_are_refused_in_the_words_of_the_cpu(call, dtype):
    x = torch.ones(2, 4, dtype=dtype)
    with pytest.raises((NotImplementedError, RuntimeError)) as on_cpu:
        call(x.clone())
    with pytest.raises((NotImplementedError, RuntimeError)) as on_npu:
        call(x.npu())
    assert (type(on_npu.value), str(on_npu.value)) == (type(on_cpu.value), str(on_cpu.value))


def test_geometric_numbers_may_be_integers(cmodel):
    x = torch.zeros(1000, dtype=torch.int64, device="npu").geometric_(0.5)
    assert x.min() == 1 and 1.7 < x.double().mean() < 2.3
    with pytest.raises(NotImplementedError, match="Bool"):
        x.bool().geometric_(0.5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_integers_beside_halves_are_rounded_first(dtype, native):
    x = torch.tensor([1.0, -2.5, 300.0], dtype=dtype)
    n = torch.tensor([4097, 2049, 257])
    for op in (torch.add, torch.mul, torch.div, torch.maximum, torch.clamp_min):
        torch.testing.assert_close(op(x.npu(), n.npu()).cpu(), op(x, n), rtol=0, atol=0)
    for mode in ("trunc", "floor"):
        got = torch.div(n.to(dtype).npu(), x.npu(), rounding_mode=mode).cpu()
        assert torch.equal(got, torch.div(n.to(dtype), x, rounding_mode=mode))
