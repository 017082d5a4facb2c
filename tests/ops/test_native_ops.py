"""The first native ops: right for every dtype and layout, and really native."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import torch_npu

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.fixture(autouse=True)
def no_fallback():
    """Every test in this file must be served by the device."""
    torch_npu.fallback.reset()
    yield
    assert torch_npu.fallback.report() == {}


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


def same(npu, cpu, **kw):
    assert npu.device.type == "npu"
    torch.testing.assert_close(npu.cpu(), cpu, equal_nan=True, **kw)


BINARY = {
    "add": torch.add,
    "add_alpha": lambda a, b: torch.add(a, b, alpha=3),
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
}


@pytest.mark.parametrize("dtype", FLOATS + INTS + [torch.bool], ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary_matches_cpu(name, dtype):
    op = BINARY[name]
    a, b = values((5, 7), dtype, 1), values((5, 7), dtype, 2)
    try:
        expected = op(a, b)
    except RuntimeError as cpu_error:
        with pytest.raises(RuntimeError) as npu_error:
            op(a.to("npu"), b.to("npu"))
        assert str(npu_error.value).split("\n")[0] == str(cpu_error).split("\n")[0]
        return
    for x, y in itertools.product(layouts(a.to("npu")), layouts(b.to("npu"))):
        same(op(x, y), expected)


@pytest.mark.parametrize("name", BINARY)
def test_binary_broadcasts_and_promotes(name):
    op = BINARY[name]
    for da, db in [(torch.int32, torch.float32), (torch.uint8, torch.int8), (torch.float32, torch.float64)]:
        a, b = values((4, 1, 3), da, 3), values((2, 1), db, 4)
        same(op(a.to("npu"), b.to("npu")), op(a, b))


@pytest.mark.parametrize("number", [2, 0.3, True, -7])
@pytest.mark.parametrize("name", BINARY)
def test_numbers_need_no_memory(name, number):
    op = BINARY[name]
    if name == "sub" and number is True:
        pytest.skip("PyTorch has no subtraction of booleans")
    for dtype in [torch.float32, torch.bfloat16, torch.int64, torch.int8]:
        a = values((9,), dtype, 5)
        same(op(a.to("npu"), number), op(a, number))
        same(op(a.to("npu"), torch.tensor(number)), op(a, torch.tensor(number)))


def test_number_on_the_left_stays_on_the_device():
    a = values((6,), torch.float32)
    same(1 - a.to("npu"), 1 - a)
    same(torch.tensor(2.0) * a.to("npu"), torch.tensor(2.0) * a)


@pytest.mark.parametrize("dtype", FLOATS + INTS, ids=str)
def test_in_place_and_out(dtype):
    a, b = values((3, 4), dtype, 6), values((3, 4), dtype, 7)
    x = a.to("npu")
    pointer = x.data_ptr()
    x += b.to("npu")
    assert x.data_ptr() == pointer
    same(x, a + b)
    out = torch.empty(0, dtype=dtype, device="npu")
    torch.mul(a.to("npu"), b.to("npu"), out=out)
    same(out, a * b)


def test_in_place_shape_error_is_pytorchs_own():
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.ones(3, device="npu").add_(torch.ones(2, 3, device="npu"))


def test_partial_overlap_is_refused():
    x = torch.zeros(10, device="npu")
    with pytest.raises(RuntimeError, match="overlap|single memory location"):
        torch.add(x[:9], 1, out=x[1:])


def test_more_than_eight_dimensions():
    a = values((2,) * 10, torch.float32)
    b = a.permute(9, 7, 5, 3, 1, 0, 2, 4, 6, 8)
    x = a.to("npu")
    same(x + x.permute(9, 7, 5, 3, 1, 0, 2, 4, 6, 8), a + b)


@pytest.mark.parametrize("dtype", FLOATS + INTS, ids=str)
def test_relu_and_its_gradient(dtype):
    a = values((8, 9), dtype)
    if dtype.is_floating_point:
        a[0, 0] = float("nan")
        x = a.to("npu").requires_grad_()
        y = a.clone().requires_grad_()
        for t in (x, y):
            t.relu().sum().backward()
        same(x.grad, y.grad)
    same(a.to("npu").relu(), a.relu())
    same(a.to("npu").relu_(), a.relu())


@pytest.mark.parametrize("dtype", FLOATS + INTS + [torch.bool], ids=str)
@pytest.mark.parametrize("dim", [None, 0, 1, -1, (0, 2), (1, 2), (0, 1, 2)])
def test_sum(dtype, dim):
    a = values((3, 70, 33), dtype)
    x = a.to("npu")
    for t, u in zip(layouts(x), layouts(a)):
        for keepdim in (False, True):
            same(
                t.sum(dim, keepdim=keepdim),
                u.sum(dim, keepdim=keepdim),
                rtol=2e-2 if dtype.itemsize == 2 else 1e-5,
                atol=1e-4,
            )


def test_sum_of_nothing_and_of_other_dtype():
    same(torch.ones(0, 3, device="npu").sum(0), torch.zeros(3))
    a = values((100,), torch.bfloat16)
    same(a.to("npu").sum(dtype=torch.float64), a.sum(dtype=torch.float64))


@pytest.mark.parametrize("dtype", FLOATS + [torch.int64, torch.int8], ids=str)
@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (3, 5, 7), (64, 1, 64), (33, 65, 17), (1, 128, 9), (5, 0, 4)])
def test_products(dtype, m, k, n):
    a, b = values((m, k), dtype, 1), values((k, n), dtype, 2)
    tol = {"rtol": 3e-2, "atol": 1e-1} if dtype.itemsize == 2 else {"rtol": 1e-4, "atol": 1e-4}
    for x, y in itertools.product(layouts(a.to("npu")), layouts(b.to("npu"))):
        same(x @ y, a @ b, **tol)
    bias = values((n,), dtype, 3)
    for beta, alpha in [(1, 1), (2, 3), (0, 1)]:
        expected = torch.addmm(bias, a, b, beta=beta, alpha=alpha)
        same(torch.addmm(bias.to("npu"), a.to("npu"), b.to("npu"), beta=beta, alpha=alpha), expected, **tol)


def test_products_of_different_dtypes_are_refused():
    a, b = torch.ones(2, 2, device="npu"), torch.ones(2, 2, dtype=torch.float16, device="npu")
    for product in (torch.mm, torch.nn.functional.linear, lambda x, y: torch.bmm(x[None], y[None])):
        with pytest.raises(RuntimeError, match="m1 and m2 to have the same dtype, but got: float != c10::Half"):
            product(a, b)


def test_beta_zero_ignores_nan():
    nan = torch.full((2, 2), float("nan"), device="npu")
    one = torch.ones(2, 2, device="npu")
    same(torch.addmm(nan, one, one, beta=0), torch.full((2, 2), 2.0))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_batched_products(dtype):
    a, b, c = values((4, 5, 6), dtype, 1), values((4, 6, 3), dtype, 2), values((4, 5, 3), dtype, 3)
    tol = {"rtol": 3e-2, "atol": 1e-1} if dtype.itemsize == 2 else {}
    same(torch.bmm(a.to("npu"), b.to("npu")), torch.bmm(a, b), **tol)
    same(torch.baddbmm(c.to("npu"), a.to("npu"), b.to("npu"), beta=0.5), torch.baddbmm(c, a, b, beta=0.5), **tol)
    same(a.to("npu") @ b.to("npu")[0], a @ b[0], **tol)


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
        same(npu, cpu, rtol=1e-4, atol=1e-3)


def test_convolution_keeps_channels_last():
    x = values((2, 4, 8, 8), torch.float32).contiguous(memory_format=torch.channels_last)
    w = values((6, 4, 3, 3), torch.float32)
    y = torch.nn.functional.conv2d(x.to("npu"), w.to("npu"))
    assert y.is_contiguous(memory_format=torch.channels_last)
    same(y, torch.nn.functional.conv2d(x, w), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", FLOATS + INTS + [torch.bool, torch.complex64, torch.complex128], ids=str)
def test_fill(dtype):
    x = torch.zeros(4, 6, dtype=dtype, device="npu")
    x[:, ::2].fill_(1)
    expected = torch.zeros(4, 6, dtype=dtype)
    expected[:, ::2] = 1
    same(x, expected)
    x.zero_()
    same(x, torch.zeros(4, 6, dtype=dtype))


def test_fill_overflow_is_pytorchs_own_error():
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.zeros(2, dtype=torch.int8, device="npu").fill_(300)


def test_mixed_devices_are_refused():
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(3, device="npu") + torch.ones(3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", ["scatter_add", "index_add", "scatter_reduce"])
def test_many_small_additions_to_one_element_are_not_lost(op, dtype):
    """1 + 1000 * 2**-12: rounding after each addition would stay at 1."""
    start, small = torch.ones(1, dtype=dtype), torch.full((1000,), 2.0**-12, dtype=dtype)
    index = torch.zeros(1000, dtype=torch.int64)
    arguments = ("sum",) if op == "scatter_reduce" else ()
    got = getattr(start.npu(), op)(0, index.npu(), small.npu(), *arguments)
    assert got.item() == pytest.approx(1 + 1000 * 2.0**-12, rel=2.0**-8)


def test_addr_rounds_once_and_a_beta_of_zero_does_not_read():
    x, a, b = (values(shape, torch.bfloat16, seed) for seed, shape in enumerate([(5, 7), (5,), (7,)]))
    exact = torch.addr(x.double(), a.double(), b.double(), beta=0.2, alpha=0.6)
    same(torch.addr(x.npu(), a.npu(), b.npu(), beta=0.2, alpha=0.6), exact.bfloat16(), rtol=2.0**-7, atol=0)
    nothing = torch.full((5, 7), torch.nan, dtype=torch.bfloat16, device="npu")
    same(torch.addr(nothing, a.npu(), b.npu(), beta=0), torch.outer(a, b), rtol=2.0**-7, atol=0)


def test_conj_physical_in_place():
    x = torch.complex(values((3, 4), torch.float32), values((3, 4), torch.float32, 1))
    same(x.npu().conj_physical_(), x.conj().resolve_conj())
    same(x.npu().t().conj_physical_(), x.t().conj().resolve_conj())


@pytest.mark.parametrize("shared", [0, 1])
@pytest.mark.parametrize(("m", "n"), [(75, 3), (3, 75), (75, 84), (84, 75)])
@pytest.mark.parametrize("across", [False, True])
def test_bmm_with_one_matrix_for_all_batches(m, n, shared, across):
    """One operand is the same in every batch, whichever way round the product is computed."""
    sides = [torch.randn(4, m, 33), torch.randn(4, 33, n)]
    sides[shared] = sides[shared][:1].expand_as(sides[shared])
    a, b = (side.npu() if i != shared else side[:1].npu().expand_as(side) for i, side in enumerate(sides))
    out = torch.empty(4, n, m, device="npu").mT if across else torch.empty(4, m, n, device="npu")
    torch.testing.assert_close(torch.bmm(a, b, out=out).cpu(), torch.bmm(*sides), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(3, 4), (5, 64), (2, 3, 300)])
def test_gradients_of_norms_with_statistics_in_16_bits(dtype, shape):
    torch.manual_seed(0)
    tensors = [torch.randn(shape), torch.randn(shape[-1]), torch.randn(shape[-1])]
    grad = torch.randn(shape)

    def gradients(device, dtype):
        x, weight, bias = (t.to(dtype).to(device).requires_grad_() for t in tensors)
        F.layer_norm(x, shape[-1:], weight, bias).backward(grad.to(dtype).to(device))
        return [t.grad.cpu().double() for t in (x, weight, bias)]

    for mine, exact in zip(gradients("npu", dtype), gradients("cpu", torch.float64), strict=True):
        torch.testing.assert_close(mine, exact, rtol=0.05, atol=0.05)
