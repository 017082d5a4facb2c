"""Ops that move data: indexing, gather, scatter, pooling, interpolation, padding, random numbers. On the device."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import torch_npu


def both(function, *tensors):
    """The results on the device, without fallback, and on the CPU."""
    with torch_npu.fallback.mode("error"):
        got = function(*(tensor.to("npu") for tensor in tensors))
    return got.cpu(), function(*tensors)


def assert_equal(function, *tensors):
    got, want = both(function, *tensors)
    assert torch.equal(got, want)


def test_indices_of_all_kinds_mix():
    x = torch.randn(4, 5, 6)
    rows, mask = torch.tensor([3, -1, 0]), torch.tensor([True, False, True, True, False])
    assert_equal(lambda x, rows, mask: x[rows, mask], x, rows, mask)
    assert_equal(lambda x, rows: x[rows[:, None], :, rows], x, rows)
    assert_equal(lambda x, rows: x[..., rows.int()], x, rows)


def test_equal_indices_accumulate():
    x, index = torch.zeros(3, 2), torch.tensor([1, 1, -1, 1])
    assert_equal(lambda x, i: x.index_put((i,), torch.ones(2, device=x.device), accumulate=True), x, index)


def test_complex_numbers_move_as_they_are():
    x = torch.randn(3, 4, dtype=torch.complex64)
    assert_equal(lambda x, i: x[i], x, torch.tensor([2, 0]))
    assert_equal(lambda x: torch.cat([x, x], 1), x)
    assert_equal(lambda x: x.flip(0), x)


@pytest.mark.parametrize("ask", ["index", "gather", "index_select"])
def test_a_bad_index_is_named(ask, cmodel):
    x, index = torch.zeros(4, device="npu"), torch.tensor([1, 7], device="npu")
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension with size 4"):
        {
            "index": lambda: x[index],
            "gather": lambda: x.gather(0, index),
            "index_select": lambda: x.index_select(0, index),
        }[ask]()
        torch.npu.synchronize()


def test_pooling_with_padding_and_ceil_mode():
    x = torch.randn(2, 3, 9, 11)
    assert_equal(lambda x: F.max_pool2d(x, 3, 2, 1, dilation=2, ceil_mode=True), x)
    for pad in (True, False):
        got, want = both(lambda x, p=pad: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=p), x)
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64])
def test_max_pooling_takes_the_first_of_equals_and_the_last_nan(dtype):
    x = torch.randint(-2, 3, (2, 3, 5, 12, 14)).to(dtype)
    if dtype.is_floating_point:
        x[torch.rand(x.shape) < 0.3] = float("nan")
        x[0, 0] = float("-inf")
    plane, line, nan_matters = x[:, :, 0], x[:, :, 0, 0], dtype.is_floating_point
    pools = [
        (lambda x: F.max_pool1d(x, 4, 3, 2, return_indices=True), line),
        (lambda x: F.max_pool2d(x, 3, 2, return_indices=True), plane),
        (lambda x: F.max_pool2d(x, (3, 5), 2, (1, 2), ceil_mode=True, return_indices=True), plane),
        (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), plane.to(memory_format=torch.channels_last)),
        (lambda x: F.max_pool3d(x, (2, 3, 4), (1, 2, 3), 1, return_indices=True), x),
    ]
    if nan_matters:  # on integers PyTorch has no adaptive pooling
        pools += [
            (lambda x: F.adaptive_max_pool1d(x, 5, return_indices=True), line),
            (lambda x: F.adaptive_max_pool2d(x, (5, 1), return_indices=True), plane),
            (lambda x: F.adaptive_max_pool2d(x, (4, 7), return_indices=True), plane),  # divides 12 x 14 evenly
            (lambda x: F.adaptive_max_pool3d(x, (2, 5, 4), return_indices=True), x),
        ]
        samples = torch.rand(2, 3, 2, dtype=dtype)
        fractional = F.fractional_max_pool2d_with_indices
        pools.append((lambda x: fractional(x, 3, 4, _random_samples=samples.to(x.device)), plane))
    for pool, data in pools:
        got, want = pool(data.npu()), pool(data)
        torch.testing.assert_close(got[0].cpu(), want[0], equal_nan=True, rtol=0, atol=0)
        assert torch.equal(got[1].cpu(), want[1])


@pytest.mark.parametrize("sizes", [(4, 7), (5, 3), (12, 14), (1, 1), (24, 28), (4, 3)])
def test_adaptive_averages_and_their_gradients(sizes):
    x = torch.randn(2, 3, 12, 14)
    results = []
    for device in ("npu", "cpu"):
        leaf = x.to(device).requires_grad_()
        out = F.adaptive_avg_pool2d(leaf, sizes)
        out.square().sum().backward()
        results.append((out.detach().cpu(), leaf.grad.cpu()))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_fractional_pooling_takes_the_windows_of_the_cpu(dtype):
    """Where they begin is rounded in the type of the samples, step by step."""
    generator = torch.Generator().manual_seed(1)
    pools = {
        F.fractional_max_pool2d_with_indices: ((23, 31), (9, 13)),
        F.fractional_max_pool3d_with_indices: ((7, 9, 11), (4, 5, 7)),
    }
    for pool, (sizes, output) in pools.items():
        x = torch.rand(40, 20, *sizes, generator=generator).to(dtype)
        samples = torch.rand(40, 20, len(sizes), generator=generator).to(dtype)
        got, want = (pool(x.to(d), 2, output, _random_samples=samples.to(d)) for d in ("npu", "cpu"))
        assert torch.equal(got[0].cpu(), want[0]) and torch.equal(got[1].cpu(), want[1])


def test_positions_of_ones_lie_as_on_the_cpu():
    for x in (torch.eye(3, 4), torch.zeros(3, 4), torch.ones(5), torch.ones(())):
        assert torch.nonzero(x.npu()).stride() == torch.nonzero(x).stride()
        static = torch.nonzero_static(x.npu(), size=4)  # as on cuda: torch.compile expects it
        assert static.stride() == (1, 4) and torch.equal(static.cpu(), torch.nonzero_static(x, size=4))
    for out in (torch.empty(0, dtype=torch.int64), torch.empty(3, 2, dtype=torch.int64)):
        on_npu = torch.nonzero(torch.eye(3).npu(), out=out.npu())
        expected = torch.nonzero(torch.eye(3), out=out)
        assert on_npu.stride() == expected.stride() and torch.equal(on_npu.cpu(), expected)


def test_channels_last_stays_channels_last():
    x = torch.randn(2, 3, 8, 8, device="npu").to(memory_format=torch.channels_last)
    assert F.max_pool2d(x, 2).is_contiguous(memory_format=torch.channels_last)


def test_random_numbers_do_not_depend_on_the_shape():
    torch.npu.manual_seed(7)
    flat = torch.rand(24, device="npu")
    torch.npu.manual_seed(7)
    assert torch.equal(torch.rand(2, 3, 4, device="npu").view(-1), flat)
    assert not torch.equal(torch.rand(24, device="npu"), flat)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_moments_of_distributions(dtype):
    with torch_npu.fallback.mode("error"):
        x = torch.empty(40000, device="npu", dtype=dtype)
        uniform = x.uniform_(2, 4).double().cpu()
        normal = x.normal_(1, 3).double().cpu()
        exponential = x.exponential_(2).double().cpu()
        coin = x.bernoulli_(0.25).double().cpu()
    assert uniform.min() >= 2 and uniform.max() <= 4 and abs(uniform.mean() - 3) < 0.02
    assert abs(normal.mean() - 1) < 0.1 and abs(normal.std() - 3) < 0.1
    assert exponential.min() > 0 and abs(exponential.mean() - 0.5) < 0.02
    assert set(coin.tolist()) == {0, 1} and abs(coin.mean() - 0.25) < 0.02


def test_integers_and_permutations():
    with torch_npu.fallback.mode("error"):
        drawn = torch.randint(-3, 5, (4000,), device="npu").cpu()
        order = torch.randperm(1000, device="npu").cpu()
    assert set(drawn.tolist()) == set(range(-3, 5))
    assert not torch.equal(order, torch.arange(1000)) and torch.equal(order.sort().values, torch.arange(1000))


def test_dropout_keeps_and_scales():
    x = torch.ones(10000, device="npu", requires_grad=True)
    with torch_npu.fallback.mode("error"):
        y = F.dropout(x, 0.2)
        y.backward(torch.ones_like(y))
    kept = y.detach().cpu()
    assert set(kept.unique().tolist()) == {0.0, 1.25} and abs(kept.mean() - 1) < 0.05
    assert torch.equal(x.grad.cpu(), kept)


def test_windows_at_the_edge_of_memory(python):
    """The image is the device's first memory: there is nothing before it for the padding to lie in."""
    result = python("""
        import torch, torch_npu
        image = torch.empty(1, 1, 2048, 2048, device="npu")
        columns = torch.ones(1, 9, 2048 * 2048)
        arguments = ([2048, 2048], [3, 3], [1, 1], [1, 1], [1, 1])
        torch.ops.aten.col2im.out(columns.npu(), *arguments, out=image)
        assert torch.equal(image.cpu(), torch.ops.aten.col2im(columns, *arguments))
        unfolded = torch.nn.functional.unfold(image[:, :, :64], 3, padding=1).cpu()
        assert torch.equal(unfolded, torch.nn.functional.unfold(image[:, :, :64].cpu(), 3, padding=1))
    """)
    assert result.status == 0, result.err


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", ["scatter_add", "index_add", "scatter_reduce"])
def test_many_small_additions_to_one_element_are_not_lost(op, dtype):
    """1 + 1000 * 2**-12: rounding after each addition would stay at 1."""
    start, small = torch.ones(1, dtype=dtype), torch.full((1000,), 2.0**-12, dtype=dtype)
    index = torch.zeros(1000, dtype=torch.int64)
    arguments = ("sum",) if op == "scatter_reduce" else ()
    got = getattr(start.npu(), op)(0, index.npu(), small.npu(), *arguments)
    assert got.item() == pytest.approx(1 + 1000 * 2.0**-12, rel=2.0**-8)


def test_triangle_indices_of_every_small_shape(native):
    for rows, columns, offset in itertools.product(range(5), range(5), range(-6, 7)):
        for make in (torch.tril_indices, torch.triu_indices):
            got = make(rows, columns, offset, device="npu").cpu()
            assert torch.equal(got, make(rows, columns, offset)), (make, rows, columns, offset)
    big = torch.tril_indices(3000, 3000, device="npu").cpu()
    assert torch.equal(big, torch.tril_indices(3000, 3000))


SAMPLERS = itertools.product(
    (2, 3), ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True)
)


@pytest.mark.parametrize(("n", "mode", "padding", "align"), [s for s in SAMPLERS if s[:2] != (3, "bicubic")])
def test_grid_sample_and_its_gradients(n, mode, padding, align, native):
    torch.manual_seed(3)
    x = torch.randn(2, 3, *(5, 6, 4)[:n], dtype=torch.float64)
    grid = torch.randn(2, *(3, 7, 2)[:n], n, dtype=torch.float64) * 1.5
    results = []
    for device in ("cpu", "npu"):
        leaves = [t.to(device).requires_grad_() for t in (x, grid)]
        out = F.grid_sample(*leaves, mode=mode, padding_mode=padding, align_corners=align)
        grads = torch.autograd.grad(out, leaves, torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(out))
        results.append([t.detach().cpu() for t in (out, *grads)])
    torch.testing.assert_close(results[1], results[0])


def test_embedding_bag_with_empty_bags_and_padding(native):
    torch.manual_seed(5)
    weight = torch.randn(10, 3)
    index = torch.tensor([1, 2, 2, 9, 4, 2])
    offsets = torch.tensor([0, 2, 2, 5])
    for mode in ("sum", "mean", "max"):
        results = []
        for device in ("cpu", "npu"):
            w = weight.to(device).requires_grad_()
            out = F.embedding_bag(index.to(device), w, offsets.to(device), mode=mode, padding_idx=2)
            (grad,) = torch.autograd.grad(out, w, torch.arange(12.0).reshape(4, 3).to(device))
            results.append([out.detach().cpu(), grad.cpu()])
        torch.testing.assert_close(results[1], results[0])


def test_channel_shuffle_keeps_channels_last(native):
    x = torch.arange(2 * 6 * 3 * 2.0).reshape(2, 6, 3, 2).contiguous(memory_format=torch.channels_last)
    got, want = F.channel_shuffle(x.npu(), 3), F.channel_shuffle(x, 3)
    assert got.stride() == want.stride()
    assert torch.equal(got.cpu(), want)


def test_repeats_that_cannot_be_are_refused(cmodel):
    x = torch.arange(3, device="npu")

    def repeat(*counts, size=None):
        return torch.repeat_interleave(x, torch.tensor(counts, device="npu"), output_size=size).tolist()

    with pytest.raises(RuntimeError, match="repeats can not be negative"):
        repeat(3, -1, 2)
    for size in (3, 5, 7):
        with pytest.raises(IndexError, match="aten::repeat_interleave"):
            repeat(2, 2, 2, size=size)
    assert repeat(2, 0, 2, size=4) == repeat(2, 0, 2) == [0, 0, 2, 2]
