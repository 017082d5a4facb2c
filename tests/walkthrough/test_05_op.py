"""5. An op. One op of PyTorch is one command, or a few, with a program that says what is done to each number."""

import pytest
import torch

from tests.support.tensors import FLOATS, INTS, assert_same, values
from torch_npu import native


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


def test_number_on_the_left_stays_on_the_device():
    a = values((6,), torch.float32)
    assert_same(1 - a.to("npu"), 1 - a)
    assert_same(torch.tensor(2.0) * a.to("npu"), torch.tensor(2.0) * a)


@pytest.mark.parametrize("dtype", FLOATS + INTS, ids=str)
def test_in_place_and_out(dtype):
    a, b = values((3, 4), dtype, 6), values((3, 4), dtype, 7)
    x = a.to("npu")
    pointer = x.data_ptr()
    x += b.to("npu")
    assert x.data_ptr() == pointer
    assert_same(x, a + b)
    out = torch.empty(0, dtype=dtype, device="npu")
    torch.mul(a.to("npu"), b.to("npu"), out=out)
    assert_same(out, a * b)
