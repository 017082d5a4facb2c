"""Convolutions and their gradients; those whose channels are whole vectors the C model cuts into blocks and parts."""

import pytest
import torch

from tests.support.tensors import assert_same, values

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


CONVS = [
    # dims, in, out, groups, kernel, stride, padding, dilation
    (1, 4, 6, 1, 3, 1, 1, 1),
    (2, 3, 8, 1, 3, 2, 1, 1),
    (2, 4, 8, 2, 3, 1, 2, 2),
    (2, 6, 6, 6, 5, 1, 2, 1),
    (2, 8, 4, 1, 1, 1, 0, 1),
    (3, 2, 4, 1, 2, 1, 0, 1),
]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dims, cin, cout, groups, kernel, stride, padding, dilation", CONVS)
def test_convolution_and_both_gradients(transposed, dims, cin, cout, groups, kernel, stride, padding, dilation):
    name = f"conv{'_transpose' if transposed else ''}{dims}d"
    conv = getattr(torch.nn.functional, name)
    w_shape = (cin, cout // groups) if transposed else (cout, cin // groups)
    tensors = [
        values((2, cin) + (9,) * dims, torch.float32, 1),
        values(w_shape + (kernel,) * dims, torch.float32, 2),
        values((cout,), torch.float32, 3),
    ]
    results = []
    for device in ("cpu", "npu"):
        args = [t.clone().to(device).detach().requires_grad_() for t in tensors]
        out = conv(*args, stride=stride, padding=padding, dilation=dilation, groups=groups)
        (out * out).sum().backward()
        results.append([out.detach()] + [t.grad for t in args])
    for cpu, npu in zip(*results):
        assert_same(npu, cpu, rtol=1e-4, atol=1e-3)


def test_convolution_keeps_channels_last():
    x = values((2, 4, 8, 8), torch.float32).contiguous(memory_format=torch.channels_last)
    w = values((6, 4, 3, 3), torch.float32)
    y = torch.nn.functional.conv2d(x.to("npu"), w.to("npu"))
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert_same(y, torch.nn.functional.conv2d(x, w), rtol=1e-4, atol=1e-4)
