"""Matrix products, and what follows them as their epilogue."""

import pytest
import torch
import torch._dynamo
from torch.nn import functional as F

from tests.support.compiled import check


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_follows_a_product_is_its_epilogue(dynamic):
    a, b, c = torch.randn(3, 5, 6), torch.randn(7, 6), torch.randn(7)
    code = check(lambda a, b, c: F.gelu(F.linear(a, b, c)) * 2, a, b, c, kernels=1, dynamic=dynamic)
    assert "'matmul'" in code and "acc" in code
    code = check(lambda a, b, c: F.silu(F.linear(a, b)) * F.linear(a, b * 2), a, b, c, dynamic=dynamic)
    assert code.count("'matmul'") == 2 and code.count(" = npu_kernel(") == 3
    check(lambda a, b: torch.baddbmm(a[:, :, :1], a, b.t().expand(3, 6, 7), beta=2).relu(), a, b, kernels=1)


# What a product's command does at its end, row by row: loops and single kernels, results of other types, values per
# row and column, one tensor read and written.
EPILOGUES = {
    "a sum and its function": lambda y, row, column, other: (y + row, F.gelu(y + row)),
    "one kernel and the sum itself": lambda y, row, column, other: (y, y * other),
    "values per row": lambda y, row, column, other: F.silu(y) * column + torch.tanh(other),
    "comparison": lambda y, row, column, other: (y * 0 + other > row, torch.where(other > column, y.exp(), other)),
    "integers": lambda y, row, column, other: ((y * 0).int() + 1, y.sigmoid()),
    "wider": lambda y, row, column, other: (y.double() * 2, y.exp() + 1),
    "in place": lambda y, row, column, other: other.clone().add_(torch.tanh(y) * row).mul_(2),
    "by columns": lambda y, row, column, other: F.gelu(y + row) * other.t().contiguous().t(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues_of_long_rows(name, dtype):
    torch.manual_seed(0)
    a, b = torch.randn(37, 24, dtype=dtype) / 8, torch.randn(24, 150, dtype=dtype)
    rest = torch.randn(150, dtype=dtype), torch.randn(37, 1, dtype=dtype), torch.randn(37, 150, dtype=dtype)
    near = {"rtol": 2e-2, "atol": 5e-2} if dtype == torch.bfloat16 else {"rtol": 2e-5, "atol": 2e-5}
    check(lambda a, b, *rest: EPILOGUES[name](a @ b, *rest), a, b, *rest, tolerance=near)


def test_a_product_alone_needs_no_program():
    code = check(lambda a, b: a @ b, torch.randn(5, 6), torch.randn(6, 7), kernels=1)
    assert "program=''" in code
    check(lambda a, b: (a @ b, a.int() @ b.int()), torch.randn(5, 6).double(), torch.randn(6, 7).double(), kernels=3)


def test_products_without_elements():
    check(lambda a, b, c: (a @ b) @ c + 1, torch.randn(3, 4), torch.randn(4, 0), torch.randn(0, 2), kernels=1)
    batches = torch.randn(2, 3, 4), torch.randn(2, 4, 0), torch.randn(2, 0, 5)
    check(lambda a, b, c: ((a @ b).relu() @ c, (a @ b).sum(-1)), *batches)
    heads = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 4, 0), torch.randn(2, 3, 0, 5)
    check(lambda a, b, c: ((a @ b) @ c).transpose(1, 2).reshape(2, 5, 15), *heads)


def test_loops_that_do_not_fit_a_product_stay_outside():
    a, b, table = torch.randn(6, 8), torch.randn(8, 12), torch.randn(3, 4)
    check(lambda a, b, t: (a @ b).view(2, 3, 3, 4).transpose(1, 2) * t, a, b, table, kernels=2)
    check(lambda a, b: torch.softmax(a @ b, -1), a, b, kernels=2)
