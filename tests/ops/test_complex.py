"""Complex tensors run on the device: PyTorch's samples with fallback forbidden, and what samples do not reach."""

import itertools
import math

import pytest
import torch

import torch_npu
from tests.support.tensors import assert_same, same, values

BOTH = [torch.complex64, torch.complex128]


@pytest.mark.parametrize("dtype", BOTH)
def test_truth_in_place_and_into_complex(native, dtype):
    """A truth value becomes a complex number: the real part is stored, the other one zero."""
    x, y = torch.randn(2, 4, 6, dtype=dtype)
    x[0], x[1, 2:] = 0, y[1, 2:]
    for name in ("eq", "ne", "logical_and", "logical_or", "logical_xor"):
        same(lambda a, b, name=name: getattr(a.clone(), name + "_")(b), x, y)
        same(lambda a, b, name=name: getattr(a.clone().t(), name + "_")(b.t()), x, y)
        same(lambda a, b, name=name: getattr(torch, name)(a, b, out=torch.full_like(a, 7 + 7j)), x, y)
    same(lambda a: a.clone()[:, ::2].logical_not_(), x)
    same(lambda a: torch.eq(a, 0, out=torch.full_like(a, 1j)), x)


PARTS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 30.0, -30.0, 1e-5, 3.0]
GRID = torch.tensor([complex(a, b) for a, b in itertools.product(PARTS, PARTS)], dtype=torch.complex128)


@pytest.mark.parametrize(
    "name", "exp expm1 log log1p sqrt rsqrt sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh sigmoid".split()
)
def test_functions_and_their_branch_cuts(native, name):
    """Both zeros on either side of a cut; parts far apart in size."""
    function = getattr(torch, name)
    same(function, GRID, rtol=1e-11, atol=1e-13)
    same(function, GRID.to(torch.complex64), rtol=2e-5, atol=1e-6)


def test_quotients_and_powers_of_every_pair(native):
    x, y = GRID[:, None], GRID[None, :]
    same(torch.mul, x, y, rtol=1e-12, atol=0.0)
    same(torch.div, x, y, rtol=1e-12, atol=1e-15)
    same(torch.pow, x, y, rtol=1e-9, atol=1e-12)


def test_quotients_do_not_overflow_early(native):
    x = torch.tensor([3e38 + 3e38j, 1e-38 + 1e-38j, 2e38 + 1j], dtype=torch.complex64)
    same(torch.div, x, x, rtol=1e-5, atol=1e-6)
    same(torch.abs, x * 0.5)


def test_infinities(native):
    x = torch.tensor([complex(a, b) for a in (math.inf, -math.inf, 2.0) for b in (0.0, math.inf, 1.0)])
    same(torch.exp, x[:1])
    same(torch.sqrt, x)
    same(torch.isinf, x)
    same(torch.abs, x)
    same(torch.angle, x)
    same(lambda t: t == t, x)


@pytest.mark.parametrize("dtype", BOTH)
def test_real_tensors_and_numbers_beside_complex_ones(native, dtype):
    x = torch.randn(3, 4, dtype=dtype)
    real = torch.randn(4)
    whole = torch.arange(12).view(3, 4)
    same(torch.add, x, real)
    same(torch.mul, whole, x)
    same(torch.div, x, whole + 1)
    same(lambda t: t * (2 - 3j), x)
    same(lambda t: 1 / t + 0.5j, x)
    same(lambda t: t.add(t, alpha=1.5 - 2j), x)
    same(lambda t: torch.where(t.real > 0, t, 1j), x)
    same(lambda t, r: torch.where(t.real > 0, t, r), x, real)
    same(lambda r: r + 1j, real)
    same(lambda t: t * torch.tensor(2 - 1j), x)
    same(lambda t: t == 1, torch.tensor([1 + 0j, 1 + 1j, 0], dtype=dtype))


@pytest.mark.parametrize("dtype", BOTH)
def test_strides_and_bits(native, dtype):
    x, y = torch.randn(6, 8, dtype=dtype), torch.randn(8, 6, dtype=dtype)
    same(lambda a, b: a.t() * b, x, y)
    same(lambda a, b: a[::2, 1::3] + b.t()[1::2, ::3].conj(), x, y)
    same(lambda a: a.conj() + 1, x)
    same(lambda a: a.conj().resolve_conj(), x)
    same(lambda a: a.conj().imag + 1, x)  # the neg bit
    same(lambda a: a.flip(1).exp_(), x)
    same(lambda a: a.expand(3, 6, 8).clone().mul_(2j), x)
    wide = (
        torch.randn(*(2,) * 9, dtype=dtype).transpose(0, 8).transpose(1, 7).transpose(2, 6)
    )  # more than a command has
    same(torch.mul, wide, torch.randn(*(2,) * 9, dtype=dtype))


def test_one_command_per_op(native):
    x = torch.randn(8, 8, dtype=torch.complex64, device="npu")
    with torch_npu.native.counting():
        x * x + x
    assert torch_npu.native.report() == {"aten::mul": 1, "aten::add": 1}


@pytest.mark.parametrize("dtype", BOTH)
def test_matrix_products(native, dtype):
    a, b, c = (torch.randn(*shape, dtype=dtype) for shape in ((5, 7), (7, 3), (5, 3)))
    same(torch.mm, a, b)
    same(lambda x, y: x.conj() @ y.conj(), a, b)
    same(lambda x, y: y.mH @ x.mH, a, b)
    same(lambda x, y: y.t() @ x.t(), a, b)
    same(lambda x, y, z: torch.addmm(z, x, y, alpha=2, beta=0.5), a, b, c)
    same(lambda x, y, z: torch.addmm(z, x, y, alpha=2 - 1j, beta=0.5j), a, b, c)
    same(lambda x, y, z: torch.addmm(z[0], x, y, beta=0), a, b, c)
    same(lambda x, y, z: z.clone().addmm_(x, y), a, b, c)
    same(lambda x, y, z: torch.mm(x, y, out=z.new_zeros(3, 5).t()), a, b, c)
    same(lambda x, y: torch.mm(x[:, :0], y[:0]), a, b)
    same(lambda x, y: x @ y[:, 0], a, b)
    same(lambda x, y: torch.einsum("ij,jk->ki", x, y), a, b)
    same(lambda x, y: torch.bmm(x.expand(2, 5, 7), y.repeat(2, 1, 1).conj()), a, b)
    same(lambda x: torch.vdot(x[0], x[1]), a)
    same(lambda x: torch.dot(x[0].conj(), x[1]), a)


@pytest.mark.parametrize("dtype", BOTH)
def test_reductions(native, dtype):
    x = torch.randn(4, 5, 6, dtype=dtype)
    same(lambda t: t.sum((0, 2)), x)
    same(lambda t: t.transpose(0, 2).mean(1, keepdim=True), x)
    same(lambda t: t.real.sum(dtype=dtype), x)
    same(lambda t: t.prod(1), x)
    same(lambda t: t[:0].prod(0), x)
    same(lambda t: t.var(), x)
    same(lambda t: t.std((0, 1), correction=0), x)
    same(lambda t: torch.linalg.vector_norm(t, dim=(0, 2)), x)
    same(lambda t: torch.linalg.vector_norm(t, 3, dim=1, keepdim=True), x)
    same(lambda t: torch.logsumexp(t, (0, 1)), x)
    same(lambda t: (t * 0).any(), x)
    assert torch.equal(x.to("npu"), x.to("npu")) and not torch.equal(x.to("npu"), x.to("npu") * 1j)


@pytest.mark.parametrize("dtype", BOTH)
def test_moving_and_adding_up(native, dtype):
    x, y = torch.randn(5, 6, dtype=dtype), torch.randn(3, 6, dtype=dtype)
    at = torch.tensor([4, 0, 4])
    mask = torch.rand(5, 6) > 0.5
    same(lambda t, s, i: t.clone().index_put_((i,), s, accumulate=True), x, y, at)
    same(lambda t, s, i: t.index_add(0, i, s, alpha=1j), x, y, at)
    same(lambda t, s, i: t.scatter_add(0, i[:, None].expand(3, 6), s), x, y, at)
    same(lambda t, i: t[i, i] + t[:, i][0], x, at)
    same(lambda t, i: t.gather(0, i[:, None].expand(3, 6)), x, at)
    same(lambda t, i: t.index_fill(1, i, 2 - 1j), x, at)
    same(lambda t, i: t.t().take(i), x, at)
    same(lambda t, i: t.t().contiguous().put_(i, t[0, :3], accumulate=True), x, at)
    same(lambda t, m: t[m], x, mask)
    same(lambda t, m: t.masked_fill(m, 1j), x, mask)
    same(lambda t, m: t.masked_scatter(m, t.t().contiguous()), x, mask)
    same(lambda t: torch.cat([t, t.conj(), t.real], 1), x)
    same(lambda t: t.roll((1, 2), (0, 1)).flip(0).tril(1), x)
    same(lambda t: torch.nn.functional.pad(t, (2, 1), mode="reflect"), x)
    same(lambda t: t.nonzero(), x * mask)


def test_casts(native):
    x = torch.tensor([0, 1 + 2j, -3j, 2.5], dtype=torch.complex64)
    for target in (torch.bool, torch.complex128):
        same(lambda t, target=target: t.to(target), x)
    same(lambda t: t.real.to(torch.complex64), x)
    torch.set_warn_always(True)  # another test may have been warned already
    try:
        with pytest.warns(UserWarning, match="discards the imaginary part"):
            same(lambda t: t.to(torch.float64), x)
    finally:
        torch.set_warn_always(False)
    same(lambda t: torch.complex(t.real, t.imag * 2), x)
    same(lambda t: torch.polar(t.abs(), t.angle()), x)


def test_random_numbers(native):
    x = torch.randn(20000, dtype=torch.complex64, device="npu")
    assert x.real.std().item() == pytest.approx(math.sqrt(0.5), rel=0.05)
    assert x.imag.mean().item() == pytest.approx(0, abs=0.05)
    assert torch.rand(10, dtype=torch.complex128, device="npu").abs().max().item() <= math.sqrt(2)


def test_training_a_complex_layer(native):
    """Gradients, with conj in every formula, and an optimizer step."""
    results = {}
    for device in ("cpu", "npu"):
        torch.manual_seed(0)
        weight = torch.randn(4, 3, dtype=torch.complex64).to(device).requires_grad_(True)
        x = torch.randn(8, 3, dtype=torch.complex64).to(device)
        for _ in range(3):
            loss = (torch.nn.functional.linear(x, weight).tanh().abs() ** 2).mean()
            (grad,) = torch.autograd.grad(loss, weight)
            weight = (weight - 0.1 * grad).detach().requires_grad_(True)
        results[device] = weight.detach().cpu()
    torch.testing.assert_close(results["npu"], results["cpu"])


def test_abs_in_place_is_refused_as_on_the_cpu():
    with pytest.raises(RuntimeError, match="In-place abs is not supported for complex tensors"):
        torch.ones(2, dtype=torch.complex64, device="npu").abs_()


def test_conj_physical_in_place():
    x = torch.complex(values((3, 4), torch.float32), values((3, 4), torch.float32, 1))
    assert_same(x.npu().conj_physical_(), x.conj().resolve_conj())
    assert_same(x.npu().t().conj_physical_(), x.t().conj().resolve_conj())
