"""Compiled convolutions give results and gradients in the layouts of eager mode."""

import copy

import pytest
import torch
from torch import nn


def run(model, x):
    y = model(x)
    y.square().sum().backward()
    return [y.detach(), *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("weights_last", [False, True])
@pytest.mark.parametrize("image_last", [False, True])
def test_channels_last(weights_last, image_last):
    torch._dynamo.reset()
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
