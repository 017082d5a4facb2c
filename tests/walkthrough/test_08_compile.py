"""8. torch.compile. Inductor's loops become programs: a chain of ops is one command."""

import re

import pytest
import torch
import torch._dynamo
from torch.nn import functional as F

import torch_npu
from tests.support.compiled import check


@pytest.fixture(autouse=True)
def compiled_anew():
    torch._dynamo.reset()
    torch_npu.fallback.reset()


def test_pointwise_chain_is_one_program():
    code = check(lambda a, b: torch.relu(a + b) * 2, torch.randn(64, 32), torch.randn(64, 32), kernels=1)
    assert "max" in code and "program npu_fused_" in code


def test_backend_by_name():
    a = torch.randn(5, 7)
    result = torch.compile(lambda x: x.sin() + 1, backend="npu")(a.npu())
    torch.testing.assert_close(result.cpu(), a.sin() + 1)


def test_explain_says_what_runs_and_what_breaks_a_graph():
    def model(x, w):
        y = F.gelu(F.linear(x, w)) * 2
        torch._dynamo.graph_break()
        return torch.softmax(y + 1, -1)

    found = torch_npu.compile.explain(model, torch.randn(8, 16).npu(), torch.randn(32, 16).npu())
    assert found.eager.total == 5 and found.compiled.total == 2
    (why,) = found.breaks
    assert found.graphs == 2 and re.search(r"\(.*test_08_compile\.py:\d+\)$", why), why
    assert found.compiled.total_bytes == 4 * (8 * 16 + 32 * 16 + 8 * 32) + 4 * (2 * 8 * 32)
    assert "eager:     5 commands" in str(found) and "aten::gelu" in str(found)
