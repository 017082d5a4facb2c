"""Tensors that a compiled function changes."""

import torch
import torch._dynamo


def test_a_tensor_that_only_a_mutation_reads_gives_no_place():
    """Inductor removes it, since the mutation is of the same kernel."""

    def softmax_onto(x, y):
        e = torch.exp(x - x.amax(-1, keepdim=True))
        result = e / e.sum(-1, keepdim=True)
        y.add_(result)
        return result.sum(-1)

    x, y = torch.randn(33, 100), torch.randn(33, 100)
    ours = y.npu()
    total = torch.compile(softmax_onto)(x.npu(), ours)
    torch.testing.assert_close(total.cpu(), softmax_onto(x, y))
    torch.testing.assert_close(ours.cpu(), y)


def test_what_a_kernel_overwrites_is_read_before():
    def step(a, b, c, low, scale, high):
        top = b.amax((-2, -1), keepdim=True)
        wave, above = torch.sin(b * scale), b + top
        low.copy_(low * 0.5 - top)
        ratio = high / (low.abs() + 1)
        b.mul_(0.5).add_((above - (ratio.abs() + 0.5).rsqrt()) * 0.5)
        mean, other = b.mean((-2, -1), keepdim=True), a.mean((-2, -1), keepdim=True)
        c.mul_(0.5).add_((wave - other) * 0.5)
        high.copy_(torch.where(mean > 0, high * 0.5, high * 0.25))
        return torch.where(ratio > 0, c, c * 0.5) * 1, mean * 1

    inputs = [torch.randn(3, 4, 16, 8) for _ in range(3)] + [torch.randn(3, 4, 1, 1) for _ in range(3)]
    ours = [t.npu() for t in inputs]
    results = torch.compile(step)(*ours)
    expected = step(*inputs)
    for got, wanted in zip((*results, *ours), (*expected, *inputs), strict=True):
        torch.testing.assert_close(got.cpu(), wanted)


def test_mutation():
    def step(a, b):
        a.add_(b).mul_(2)
        return a.sum()

    a, b = torch.randn(10, 3), torch.randn(3)
    on_npu = a.npu()
    result = torch.compile(step)(on_npu, b.npu())
    torch.testing.assert_close(result.cpu(), step(a, b))
    torch.testing.assert_close(on_npu.cpu(), a)
