"""Matrix products of every type, size and layout."""

import itertools

import pytest
import torch

from tests.support.tensors import FLOATS, assert_same, layouts, values

pytestmark = pytest.mark.usefixtures("native")


@pytest.mark.parametrize("dtype", FLOATS + [torch.int64, torch.int8], ids=str)
@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (3, 5, 7), (64, 1, 64), (33, 65, 17), (1, 128, 9), (5, 0, 4)])
def test_products(dtype, m, k, n):
    a, b = values((m, k), dtype, 1), values((k, n), dtype, 2)
    tol = {"rtol": 3e-2, "atol": 1e-1} if dtype.itemsize == 2 else {"rtol": 1e-4, "atol": 1e-4}
    for x, y in itertools.product(layouts(a.to("npu")), layouts(b.to("npu"))):
        assert_same(x @ y, a @ b, **tol)
    bias = values((n,), dtype, 3)
    for beta, alpha in [(1, 1), (2, 3), (0, 1)]:
        expected = torch.addmm(bias, a, b, beta=beta, alpha=alpha)
        assert_same(torch.addmm(bias.to("npu"), a.to("npu"), b.to("npu"), beta=beta, alpha=alpha), expected, **tol)


def test_products_of_different_dtypes_are_refused():
    a, b = torch.ones(2, 2, device="npu"), torch.ones(2, 2, dtype=torch.float16, device="npu")
    for product in (torch.mm, torch.nn.functional.linear, lambda x, y: torch.bmm(x[None], y[None])):
        with pytest.raises(RuntimeError, match="m1 and m2 to have the same dtype, but got: float != c10::Half"):
            product(a, b)


def test_beta_zero_ignores_nan():
    nan = torch.full((2, 2), float("nan"), device="npu")
    one = torch.ones(2, 2, device="npu")
    assert_same(torch.addmm(nan, one, one, beta=0), torch.full((2, 2), 2.0))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_batched_products(dtype):
    a, b, c = values((4, 5, 6), dtype, 1), values((4, 6, 3), dtype, 2), values((4, 5, 3), dtype, 3)
    tol = {"rtol": 3e-2, "atol": 1e-1} if dtype.itemsize == 2 else {}
    assert_same(torch.bmm(a.to("npu"), b.to("npu")), torch.bmm(a, b), **tol)
    assert_same(torch.baddbmm(c.to("npu"), a.to("npu"), b.to("npu"), beta=0.5), torch.baddbmm(c, a, b, beta=0.5), **tol)
    assert_same(a.to("npu") @ b.to("npu")[0], a @ b[0], **tol)


def test_addr_rounds_once_and_a_beta_of_zero_does_not_read():
    x, a, b = (values(shape, torch.bfloat16, seed) for seed, shape in enumerate([(5, 7), (5,), (7,)]))
    exact = torch.addr(x.double(), a.double(), b.double(), beta=0.2, alpha=0.6)
    assert_same(torch.addr(x.npu(), a.npu(), b.npu(), beta=0.2, alpha=0.6), exact.bfloat16(), rtol=2.0**-7, atol=0)
    nothing = torch.full((5, 7), torch.nan, dtype=torch.bfloat16, device="npu")
    assert_same(torch.addr(nothing, a.npu(), b.npu(), beta=0), torch.outer(a, b), rtol=2.0**-7, atol=0)


@pytest.mark.parametrize("shared", [0, 1])
@pytest.mark.parametrize(("m", "n"), [(75, 3), (3, 75), (75, 84), (84, 75)])
@pytest.mark.parametrize("across", [False, True])
def test_bmm_with_one_matrix_for_all_batches(m, n, shared, across):
    """One operand is the same in every batch, whichever way round the product is computed."""
    sides = [torch.randn(4, m, 33), torch.randn(4, 33, n)]
    sides[shared] = sides[shared][:1].expand_as(sides[shared])
    a, b = (side.npu() if i != shared else side[:1].npu().expand_as(side) for i, side in enumerate(sides))
    out = torch.empty(4, n, m, device="npu").mT if across else torch.empty(4, m, n, device="npu")
    torch.testing.assert_close(torch.bmm(a, b, out=out).cpu(), torch.bmm(*sides), rtol=1e-5, atol=1e-5)
