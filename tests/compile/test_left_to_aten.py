"""What programs cannot express stays a call of aten."""

import pytest
import torch
import torch._dynamo
from torch.nn import functional as F

from tests.support.compiled import check


def test_scatters_of_complex_numbers_are_aten_calls():
    x, y = torch.randn(4, 4, dtype=torch.complex64), torch.randn(4, dtype=torch.complex64)
    check(lambda x, y: (torch.diagonal_scatter(x, y), torch.as_strided_scatter(x, y, (4,), (2,))), x, y)


def test_attention_is_an_aten_call_with_fused_neighbours():
    check(lambda q: F.scaled_dot_product_attention(q, q + 1, q * 2, is_causal=True), torch.randn(2, 4, 8, 16))


def test_what_programs_lack_stays_an_aten_call():
    code = check(lambda a: torch.special.bessel_j0(a).relu() + 1, torch.randn(10), kernels=1)
    assert "special_bessel_j0" in code
    check(lambda a: a.sort(1), torch.randn(10, 6))
    check(lambda a: torch.view_as_complex(a).abs() * 2, torch.randn(10, 2))


@pytest.mark.parametrize("how", ["max", "mean", "sum"])
def test_aten_calls_have_the_strides_that_were_promised(how):
    lengths = torch.tensor([[1, 1, 1, 2]]).expand(5, 4).contiguous()
    check(lambda x, n: torch.segment_reduce(x, how, lengths=n, axis=1, unsafe=True), torch.randn(5, 5), lengths)


def test_an_op_that_turns_out_to_be_impossible_is_left_to_aten(monkeypatch, caplog):
    from torch._inductor import lowering

    from torch_npu.compile.codegen import ops, program
    from torch_npu.compile.lowerings import left_to_aten

    def refuse(x):
        raise program.Unsupported("sinh")

    sinh = torch.ops.aten.sinh.default
    monkeypatch.setitem(lowering.lowerings, sinh, lowering.lowerings[sinh])
    monkeypatch.setattr(left_to_aten, "OPS", set(left_to_aten.OPS))
    monkeypatch.setattr(ops.NpuOverrides, "sinh", staticmethod(refuse))
    with torch._inductor.config.patch(fx_graph_cache=False):
        code = check(lambda x: (x + 1).sinh() * 2, torch.randn(7), kernels=2)
    assert "aten.sinh" in code
    assert [r.getMessage() for r in caplog.records if r.levelname in ("WARNING", "CRITICAL")] == [
        "torch.compile on npu runs aten.sinh.default as in eager mode: a program cannot express sinh"
    ]
