"""torch.compile on npu: every kernel of a graph becomes one command, and results are those of the CPU."""

import pytest
import torch
import torch._dynamo
from torch._inductor.utils import run_and_get_code

import torch_npu


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch_npu.fallback.reset()
    yield


def to_npu(x):
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.npu(), x)


def check(fn, *args, kernels=None, fallbacks=(), tolerance=None, dynamic=None):
    """Compiles for npu, compares with the CPU and returns the generated code. `kernels` is the number of programs."""
    expected = fn(*args)
    result, codes = run_and_get_code(torch.compile(fn, fullgraph=True, dynamic=dynamic), *to_npu(args))
    tolerance = tolerance or {"rtol": 2e-5, "atol": 2e-5}
    torch.testing.assert_close(to_cpu(result), expected, **tolerance)
    assert set(torch_npu.fallback.report()) == set(fallbacks)
    code = "\n".join(codes)
    if kernels is not None:
        assert code.count(" = npu_kernel(") == kernels, code
    return code


def to_cpu(x):
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.cpu(), x)


def test_pointwise_chain_is_one_program():
    code = check(lambda a, b: torch.relu(a + b) * 2, torch.randn(64, 32), torch.randn(64, 32), kernels=1)
    assert "max" in code and "program npu_fused_" in code


def test_backend_by_name():
    a = torch.randn(5, 7)
    result = torch.compile(lambda x: x.sin() + 1, backend="npu")(a.npu())
    torch.testing.assert_close(result.cpu(), a.sin() + 1)
