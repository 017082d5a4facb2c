"""Views, windows and indices become addresses, for all sizes."""

import pytest
import torch
import torch._dynamo
from torch.nn import functional as F

from tests.support.compiled import check

ADDRESSES = {
    "broadcast": lambda a: a[:, None, :] + a[None, :, :] * 2,
    "transpose": lambda a: a.t() + a.reshape(6, 10),
    "reshape of a transpose": lambda a: (a.transpose(0, 1).reshape(-1) + 1).view(5, -1),
    "cat": lambda a: torch.cat([a, a[:, :3]], 1) + 1,
    "stack": lambda a: torch.stack([a, a * 2], 1).relu(),
    "pad": lambda a: F.pad(a, (1, 2, 3, 0), value=1.5) * 2,
    "reflect": lambda a: F.pad(a, (1, 2), mode="reflect") * 2,
    "roll and flip": lambda a: a.roll(2, 1) + a.flip(0, 1),
    "slices": lambda a: a[1:4, ::2] * 2 + a[0:3, 1::2],
    "triangle": lambda a: a.tril() + a.triu(1) * 2 + torch.arange(6, device=a.device),
    "repeat": lambda a: a.repeat(2, 3) + a.repeat_interleave(3, 1).repeat(2, 1),
    "pool": lambda a: F.avg_pool2d(a[None], 3, 2, 1) + F.max_pool2d(a[None], 2, 2)[:, :, :1],
    "interpolate": lambda a: F.interpolate(a[None, None], scale_factor=2, mode="bilinear"),
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_addresses(name):
    check(ADDRESSES[name], torch.randn(10, 6))


def test_padding_needs_no_division():
    """A range is cut where indices are, so that an operand is an offset and strides, and masks are comparisons."""
    code = check(lambda a: F.pad(a, (1, 2, 3, 0)), torch.randn(10, 6), kernels=1)
    assert "mask" in code and "load_at" not in code and "mod " not in code


def test_indirect_loads_wrap_and_check():
    code = check(lambda a, i: a[i] + 1, torch.randn(10, 6), torch.randint(-10, 10, (3, 4)), kernels=1)
    assert "check_index" in code and "wrap, check" in code
    gathered = torch.compile(lambda a, i: a[i] * 2)(torch.randn(10, 6).npu(), torch.tensor([3, 11]).npu())
    with pytest.raises(IndexError, match="index 11 is out of bounds"):
        gathered.cpu()


def test_gathers():
    index = torch.randint(0, 6, (10, 3))
    check(lambda a, i: a.gather(1, i) + F.embedding(i, a).sum(-1), torch.randn(10, 6), index)


def test_scatter_is_one_command_with_computed_stores():
    index, source = torch.randint(0, 10, (4, 6)), torch.randn(4, 6)
    code = check(lambda a, i, s: a.scatter_add(0, i, s * 2), torch.randn(10, 6), index, source)
    assert "store_at" in code and "'scatter'" in code
    check(lambda a, i, s: a.index_put((i[:, 0],), s, accumulate=True), torch.randn(10, 6), index, source)
    check(lambda a, i: a.scatter(1, i[:, :1], 2.0), torch.randn(10, 12), index)


@pytest.mark.parametrize("name", ["softmax", "reshape", "pad", "argmax"])
def test_one_program_for_all_sizes(name):
    functions = {
        "softmax": lambda x: torch.softmax(x, -1) + x.sum(0),
        "reshape": lambda x: x.t().reshape(-1) * x.shape[0],
        "pad": lambda x: F.pad(x, (1, 1)),
        "argmax": lambda x: x.t().argmax(),
    }
    compiled = torch.compile(functions[name], dynamic=True, fullgraph=True)
    compiled(torch.randn(6, 10).npu())
    with torch.compiler.set_stance("fail_on_recompile"):
        for shape in ((6, 10), (9, 14), (12, 3)):
            x = torch.randn(*shape)
            torch.testing.assert_close(compiled(x.npu()).cpu(), functions[name](x))


def test_sizes_that_are_quotients():
    """Loops name the ends of dimensions in other forms than their sizes have, all of them with divisions."""

    def fn(x):
        return F.avg_pool3d(x / (1 + x.square().sum(-1, keepdim=True)), 2)

    compiled = torch.compile(fn, dynamic=True)
    for size in (3, 5):
        x = torch.randn(3, 4, size, size, size, requires_grad=True)
        given = x.detach().npu().requires_grad_()
        got, want = compiled(given), fn(x)
        torch.testing.assert_close(got.cpu(), want)
        torch.testing.assert_close(
            torch.autograd.grad(got.square().sum(), given)[0].cpu(), torch.autograd.grad(want.square().sum(), x)[0]
        )
