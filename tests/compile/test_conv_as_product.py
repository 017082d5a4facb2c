"""torch.compile: convolutions whose windows do not overlap are products of patches."""

import pytest
import torch
import torch._dynamo
from torch._inductor.utils import run_and_get_code
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch._inductor.config.patch(force_disable_caches=True):
        yield


def run(fn, shapes, wanted=None):
    """Results and gradients, compiled and in float64 on the CPU; and the generated code."""
    wide = [torch.randn(s).double() for s in shapes]
    narrow = [t.float().npu() for t in wide]
    chosen = range(len(shapes)) if wanted is None else wanted
    for args in (wide, narrow):
        for k in chosen:
            args[k].requires_grad_()

    def step(fn, args):
        out = fn(*args)
        return [out, *torch.autograd.grad(out.square().sum(), [args[k] for k in chosen])]

    got, code = run_and_get_code(step, torch.compile(fn), narrow)
    for g, w in zip(got, step(fn, wide), strict=True):
        assert g.shape == w.shape and g.stride() == w.stride()
        torch.testing.assert_close(g.cpu().double() / w.abs().max(), w / w.abs().max(), rtol=1e-4, atol=1e-5)
    return "\n".join(line for text in code for line in text.splitlines() if not line.startswith("#"))


CASES = {
    "image": (F.conv2d, [(2, 3, 8, 24), (5, 3, 4, 8), (5,)], (4, 8)),
    "line": (F.conv1d, [(2, 3, 27), (5, 3, 9), (5,)], 9),
    "volume": (F.conv3d, [(2, 3, 4, 6, 16), (5, 3, 2, 3, 8), (5,)], (2, 3, 8)),
    "no bias": (F.conv2d, [(2, 3, 16, 16), (5, 3, 8, 8)], 8),
}


@pytest.mark.parametrize("name", CASES)
def test_patches_are_rows_of_a_product(name):
    op, shapes, stride = CASES[name]
    code = run(lambda x, w, *bias: op(x, w, *bias, stride=stride), shapes)
    assert "convolution(" not in code and "convolution_backward" not in code.replace(
        "npu_fused_convolution_backward", ""
    )
    assert code.count("'matmul'") == 3


def test_an_image_needs_no_gradient():
    code = run(lambda x, w, b: F.conv2d(x, w, b, stride=(4, 8)), CASES["image"][1], [1, 2])
    assert code.count("'matmul'") == 2


def test_what_follows_is_the_epilogue():
    def embed(x, w, b):
        return F.conv2d(x, w, b, stride=8).flatten(2).transpose(1, 2).contiguous().tanh()

    args = [torch.randn(s).npu() for s in ((2, 3, 16, 16), (16, 3, 8, 8), (16,))]
    result, (code,) = run_and_get_code(torch.compile(embed), *args)
    torch.testing.assert_close(result, embed(*args), rtol=1e-4, atol=1e-4)
    assert code.count(" = npu_kernel(") == 2


OTHERS = {
    "overlap": ([(2, 3, 16, 16), (5, 3, 8, 8)], {"stride": 4}),
    "padding": ([(2, 3, 8, 8), (5, 3, 8, 8)], {"stride": 8, "padding": 4}),
    "a rest": ([(2, 3, 17, 17), (5, 3, 8, 8)], {"stride": 8}),
    "groups": ([(2, 4, 16, 16), (6, 2, 8, 8)], {"stride": 8, "groups": 2}),
    "dilation": ([(2, 3, 16, 16), (5, 3, 8, 8)], {"stride": 8, "dilation": 2}),
    "narrow": ([(2, 3, 8, 8), (5, 3, 4, 4)], {"stride": 4}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_convolutions_stay_commands(name):
    shapes, options = OTHERS[name]
    assert "'matmul'" not in run(lambda x, w: F.conv2d(x, w, **options), shapes)


def test_channels_last():
    def embed(x, w, b):
        return F.conv2d(x, w, b, stride=8).relu()

    args = [torch.randn(s).npu() for s in ((2, 3, 16, 16), (16, 3, 8, 8), (16,))]
    args[:2] = [t.to(memory_format=torch.channels_last).requires_grad_() for t in args[:2]]
    got, want = torch.compile(embed)(*args), embed(*args)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert got.stride() == want.stride()
    for g, w in zip(*(torch.autograd.grad(r.square().sum(), args[:2]) for r in (got, want)), strict=True):
        torch.testing.assert_close(g, w, rtol=1e-3, atol=1e-3)
        assert g.stride() == w.stride()


@pytest.mark.parametrize("shape", [(0, 3, 16, 24), (2, 0, 16, 24)], ids=["no images", "no channels"])
def test_nothing_to_cut(shape):
    x, w = torch.randn(shape), torch.randn(4, shape[1], 8, 8)
    expected = torch.nn.functional.conv2d(x, w, stride=8)
    result = torch.compile(lambda x, w: torch.nn.functional.conv2d(x, w, stride=8))(x.npu(), w.npu())
    assert result.shape == expected.shape and result.stride() == expected.stride()
