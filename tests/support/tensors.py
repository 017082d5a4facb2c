"""Tensors of every type and layout, how a result of the device is compared with the CPU's, and work that takes time."""

import torch

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def values(shape, dtype, seed=0):
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=g) > 0.5
    if dtype.is_floating_point:
        return torch.randn(shape, generator=g).to(dtype)
    return torch.randint(0 if dtype == torch.uint8 else -20, 20, shape, generator=g).to(dtype)


def layouts(t):
    """The same values in different memory layouts."""
    yield t
    if t.dim() >= 2:
        yield torch.empty_like(t.transpose(0, 1), memory_format=torch.contiguous_format).transpose(0, 1).copy_(t)
        yield torch.empty(*t.shape, 2, dtype=t.dtype, device=t.device)[..., 1].copy_(t)


def assert_same(npu, cpu, **limits):
    assert npu.device.type == "npu"
    torch.testing.assert_close(npu.cpu(), cpu, equal_nan=True, **limits)


def same(function, *inputs, **limits):
    """The function gives on the device what it gives on the CPU: values, type and shape."""
    expected = function(*inputs)
    got = function(*(x.to("npu") if isinstance(x, torch.Tensor) else x for x in inputs))
    assert got.dtype == expected.dtype and got.shape == expected.shape
    assert_same(got, expected, **limits)


def slow_work(stream, products: int = 20) -> torch.Tensor:
    """Enough matrix products to keep a stream busy while the host goes on."""
    with torch.npu.stream(stream):
        x = torch.full((512, 512), 1 / 512, device="npu")
        for _ in range(products):
            x = x @ x
    return x
