"""What looks for values among others: unique, searchsorted, isin."""

import math

import pytest
import torch


def test_unique_counts_every_nan(native):
    x = torch.tensor([2.0, math.nan, 1.0, 2.0, math.nan, -0.0, 0.0])
    got = torch.unique(x.npu(), return_inverse=True, return_counts=True)
    want = torch.unique(x, return_inverse=True, return_counts=True)
    torch.testing.assert_close(got[0].cpu(), want[0], equal_nan=True)
    assert torch.equal(got[2].cpu(), want[2])
    assert sorted(got[1].cpu().tolist()) == sorted(want[1].tolist())


def test_unique_rows_of_many_columns(native):
    torch.manual_seed(0)
    x = torch.randint(0, 2, (40, 4, 13))[torch.randint(0, 12, (60,))]
    for dim in (0, 1, 2):
        got = torch.unique(x.npu(), dim=dim, return_inverse=True, return_counts=True)
        want = torch.unique(x, dim=dim, return_inverse=True, return_counts=True)
        for a, b in zip(got, want, strict=True):
            assert torch.equal(a.cpu(), b)
    got = torch.unique_consecutive(x.npu(), dim=0, return_inverse=True, return_counts=True)
    want = torch.unique_consecutive(x, dim=0, return_inverse=True, return_counts=True)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(got, want, strict=True))


def test_searchsorted_by_a_sorter_strided_and_beyond_the_ends(native):
    torch.manual_seed(1)
    rows = torch.randn(3, 17)
    order = rows.argsort(1)
    values = torch.cat([torch.randn(5, 3), torch.full((1, 3), math.inf), torch.full((1, 3), math.nan)]).t()
    for right in (False, True):
        got = torch.searchsorted(rows.npu(), values.npu(), right=right, sorter=order.npu())
        assert torch.equal(got.cpu(), torch.searchsorted(rows, values.contiguous(), right=right, sorter=order))
    empty = torch.searchsorted(torch.empty(0).npu(), torch.ones(2).npu())
    assert empty.tolist() == [0, 0]


@pytest.mark.parametrize("tests", [1, 16, 17, 1000])
def test_isin_by_comparison_and_by_search(tests, native):
    torch.manual_seed(2)
    x, y = torch.randint(0, 500, (7, 30)), torch.randint(0, 500, (tests,))
    for invert in (False, True):
        got = torch.isin(x.npu(), y.npu(), invert=invert)
        assert torch.equal(got.cpu(), torch.isin(x, y, invert=invert))
    nans = torch.full((20,), math.nan)
    assert not torch.isin(nans.npu(), nans.npu()).any()
