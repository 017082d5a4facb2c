"""Layouts in compiled graphs: convolutions give those of eager mode, and another one than was traced is refused."""

import copy

import pytest
import torch
from torch import nn
from torch._inductor.codecache import PyCodeCache
from torch._inductor.utils import run_and_get_code

from torch_npu import _C


def run(model, x):
    y = model(x)
    y.square().sum().backward()
    return [y.detach(), *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("weights_last", [False, True])
@pytest.mark.parametrize("image_last", [False, True])
def test_channels_last(weights_last, image_last):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)).npu()
    x = torch.randn(2, 6, 8, 8).npu()
    if weights_last:
        model = model.to(memory_format=torch.channels_last)
    if image_last:
        x = x.contiguous(memory_format=torch.channels_last)
    expected = run(copy.deepcopy(model), x)
    result = run(torch.compile(model), x)
    assert [t.stride() for t in result] == [t.stride() for t in expected]
    for got, wanted in zip(result, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def test_layouts_are_compared_exactly():
    x = torch.empty_strided((2, 3), (4, 1), device="npu")
    assert _C.has_layout(x, (2, 3), (4, 1))
    others = ((2, 3), (3, 1)), ((2, 4), (4, 1)), ((2,), (4,)), ([2, 3], (4, 1)), ((2, 3 + 2**64), (4, 1))
    for sizes, strides in others:
        assert not _C.has_layout(x, sizes, strides)
    with pytest.raises(TypeError, match="expected a tensor, sizes and strides"):
        _C.has_layout(1, (), ())


def test_generated_code_refuses_another_layout_than_was_traced():
    x = torch.randn(4, 6).npu()
    _, (code,) = run_and_get_code(torch.compile(lambda x: x + 1), x)
    module = PyCodeCache.load(code)
    call = getattr(module, "call", None) or module.runner.call
    assert torch.equal(call([x])[0], x + 1)
    with pytest.raises(AssertionError, match="expected size 6==4|stride"):
        call([x.t()])


@pytest.mark.parametrize(
    "find",
    [
        torch.nonzero,
        torch.argwhere,
        lambda x: torch.where(x > 0),
        lambda x: torch.nonzero_static(x, size=4),
        lambda x: torch.nonzero_static(x, size=20, fill_value=7),
    ],
)
@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_positions_of_ones(find):
    """Traced with columns behind each other, as on cuda."""
    x = torch.eye(3, 4).npu()
    compiled = torch.compile(lambda x: (find(x + 0), x * 2), fullgraph=True)
    for ones in (x, x[:2], torch.zeros_like(x)):
        torch.testing.assert_close(compiled(ones)[0], find(ones), check_stride=True)
