"""torch.compile: max pooling takes the maxima of rows that windows share, then of windows; gradients of pooling."""

import pytest
import torch
import torch._dynamo
from torch._inductor.utils import run_and_get_code
from torch.nn import functional as F


@pytest.mark.parametrize("special", [None, float("nan"), float("-inf")])
def test_pooling_over_a_border_with_positions(special):
    image = torch.randn(2, 3, 9, 13)
    if special is not None:
        image[:, 1] = float("-inf")
        image[0, image[0] > 0.5] = special

    def pooled(*window, kernels, positions=True):
        def fn(x):
            return F.max_pool2d(x, *window, return_indices=positions)

        result, codes = run_and_get_code(torch.compile(fn, fullgraph=True), image.npu())
        torch.testing.assert_close(
            torch.utils._pytree.tree_map(torch.Tensor.cpu, result), fn(image), rtol=0, atol=0, equal_nan=True
        )
        code = "\n".join(codes)
        assert code.count(" = npu_kernel(") == kernels, code

    for window in ((3, 2, 1), ((3, 5), (1, 3), (1, 2)), ((5, 3), 4, (2, 1), 1, True), (3, 2)):
        pooled(*window, kernels=2)  # rows that windows share, then windows
    for window in ((2, 2), (3, 4), ((2, 5), (2, 6)), (2, 2, 1, 1, True), ((2, 3), (4, 1), (1, 1)), ((3, 1), 2, (1, 0))):
        pooled(*window, kernels=1)
    pooled(3, 2, 1, 2, kernels=0)  # with holes: the op
    pooled((3, 5), 2, (1, 2), 1, True, kernels=2, positions=False)
    pooled(3, 3, 1, kernels=1, positions=False)
    pooled((2, 3), (4, 2), (1, 1), kernels=1, positions=False)


def check_gradient(fn, x, dynamic=None):
    """Gradients of compiled `fn` on npu are those of the CPU."""
    x.requires_grad_()
    given = x.detach().npu().requires_grad_()
    (expected,) = torch.autograd.grad(fn(x).square().sum(), x)
    (got,) = torch.autograd.grad(torch.compile(fn, dynamic=dynamic)(given).square().sum(), given)
    torch.testing.assert_close(got.cpu(), expected)


@pytest.mark.parametrize("pad", [0, 1])
def test_gradient_of_windows_that_overlap(pad):
    check_gradient(lambda x: F.max_pool2d(x, 3, 2, pad), torch.randn(2, 3, 9, 9))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("kernel, dynamic", [(2, None), (2, True), (9, None)])
def test_gradient_without_a_stride(dtype, kernel, dynamic):
    check_gradient(lambda x: F.max_pool2d(x, kernel), torch.randn(2, 3, 18, 18, dtype=dtype), dynamic)


@pytest.mark.parametrize("pool, dims", [(F.avg_pool1d, 1), (F.avg_pool2d, 2), (F.avg_pool3d, 3)])
@pytest.mark.parametrize("size, padded", [(6, True), (7, True), (6, False)])
def test_gradient_of_averages_whose_windows_reach_beyond_the_padding(pool, dims, size, padded):
    options = {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": padded}
    check_gradient(lambda x: pool(x, **options), torch.randn(2, 3, *(size,) * dims))
