"""Gradients of convolutions whose channels are whole vectors, which the C model cuts into blocks and parts."""

import pytest
import torch

SHAPES = {  # batch, channels of input and output, image, kernel, stride, padding, groups
    "few positions": (4, 64, 64, (2, 2), 3, 1, 1, 1),
    "one piece for each image": (5, 64, 64, (6, 6), 3, 1, 1, 1),
    "channels that fill no block": (3, 21, 48, (5, 4), 3, 1, 1, 1),
    "two products": (4, 64, 64, (16, 16), 3, 1, 1, 1),
    "pieces of different heights": (3, 64, 64, (25, 21), 3, 1, 1, 1),
    "parts of the batch": (9, 16, 32, (24, 24), 3, 1, 1, 1),
    "groups": (4, 64, 64, (6, 6), 3, 1, 1, 2),
    "strides": (4, 40, 64, (9, 9), 3, 2, 1, 1),
    "two dimensions of a kernel": (4, 32, 32, (7, 9), (1, 5), 1, 0, 1),
}


def gradients(x, weight, grad, stride, padding, groups):
    sides, both = [1, 1], (False, True, False)
    ours = (grad, x, weight, None, [stride] * 2, [padding] * 2, sides, False, [0, 0], groups, both)
    return torch.ops.aten.convolution_backward(*ours)[1]


@pytest.mark.parametrize("last", ["", "images", "images and weights"])
@pytest.mark.parametrize("name", SHAPES)
def test_gradient_of_the_weight(name, last):
    batch, inputs, outputs, image, kernel, stride, padding, groups = SHAPES[name]
    size = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    x, weight = torch.randn(batch, inputs, *image), torch.randn(outputs, inputs // groups, *size)
    grad = torch.randn_like(torch.nn.functional.conv2d(x, weight, None, stride, padding, 1, groups))
    if last:
        x, grad = (t.contiguous(memory_format=torch.channels_last) for t in (x, grad))
    if last == "images and weights":
        weight = weight.contiguous(memory_format=torch.channels_last)
    expected = gradients(x.double(), weight.double(), grad.double(), stride, padding, groups).float()
    result = gradients(x.npu(), weight.npu(), grad.npu(), stride, padding, groups)
    assert result.stride() == weight.stride()  # whatever the layout of the images
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-3)
