"""Operands of every type and layout: broadcasting, promotion, numbers, results in place and in `out`."""

import itertools

import pytest
import torch

from tests.support.tensors import FLOATS, INTS, assert_same, layouts, values

pytestmark = pytest.mark.usefixtures("native")


BINARY = {
    "add": torch.add,
    "add_alpha": lambda a, b: torch.add(a, b, alpha=3),
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
}


@pytest.mark.parametrize("dtype", FLOATS + INTS + [torch.bool], ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary_matches_cpu(name, dtype):
    op = BINARY[name]
    a, b = values((5, 7), dtype, 1), values((5, 7), dtype, 2)
    try:
        expected = op(a, b)
    except RuntimeError as cpu_error:
        with pytest.raises(RuntimeError) as npu_error:
            op(a.to("npu"), b.to("npu"))
        assert str(npu_error.value).split("\n")[0] == str(cpu_error).split("\n")[0]
        return
    for x, y in itertools.product(layouts(a.to("npu")), layouts(b.to("npu"))):
        assert_same(op(x, y), expected)


@pytest.mark.parametrize("name", BINARY)
def test_binary_broadcasts_and_promotes(name):
    op = BINARY[name]
    for da, db in [(torch.int32, torch.float32), (torch.uint8, torch.int8), (torch.float32, torch.float64)]:
        a, b = values((4, 1, 3), da, 3), values((2, 1), db, 4)
        assert_same(op(a.to("npu"), b.to("npu")), op(a, b))


@pytest.mark.parametrize("number", [2, 0.3, True, -7])
@pytest.mark.parametrize("name", BINARY)
def test_numbers_need_no_memory(name, number):
    op = BINARY[name]
    if name == "sub" and number is True:
        pytest.skip("PyTorch has no subtraction of booleans")
    for dtype in [torch.float32, torch.bfloat16, torch.int64, torch.int8]:
        a = values((9,), dtype, 5)
        assert_same(op(a.to("npu"), number), op(a, number))
        assert_same(op(a.to("npu"), torch.tensor(number)), op(a, torch.tensor(number)))


def test_in_place_shape_error_is_pytorchs_own():
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.ones(3, device="npu").add_(torch.ones(2, 3, device="npu"))


def test_more_than_eight_dimensions():
    a = values((2,) * 10, torch.float32)
    b = a.permute(9, 7, 5, 3, 1, 0, 2, 4, 6, 8)
    x = a.to("npu")
    assert_same(x + x.permute(9, 7, 5, 3, 1, 0, 2, 4, 6, 8), a + b)


@pytest.mark.parametrize("dtype", FLOATS + INTS + [torch.bool, torch.complex64, torch.complex128], ids=str)
def test_fill(dtype):
    x = torch.zeros(4, 6, dtype=dtype, device="npu")
    x[:, ::2].fill_(1)
    expected = torch.zeros(4, 6, dtype=dtype)
    expected[:, ::2] = 1
    assert_same(x, expected)
    x.zero_()
    assert_same(x, torch.zeros(4, 6, dtype=dtype))


def test_fill_overflow_is_pytorchs_own_error():
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.zeros(2, dtype=torch.int8, device="npu").fill_(300)
