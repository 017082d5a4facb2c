"""torch.compile on npu: every kernel of a graph becomes one command, and results are those of the CPU."""

import re

import pytest
import torch
import torch._dynamo
from torch._inductor.utils import run_and_get_code
from torch.nn import functional as F

import torch_npu
from tests.support import ROOT


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch_npu.fallback.reset()
    yield


def to_npu(x):
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.npu(), x)


def check(fn, *args, kernels=None, fallbacks=(), tolerance=None, dynamic=None):
    """Compiles for npu, compares with the CPU and returns the generated code. `kernels` is the number of programs."""
    expected = fn(*args)
    result, codes = run_and_get_code(torch.compile(fn, fullgraph=True, dynamic=dynamic), *to_npu(args))
    tolerance = tolerance or {"rtol": 2e-5, "atol": 2e-5}
    torch.testing.assert_close(to_cpu(result), expected, **tolerance)
    assert set(torch_npu.fallback.report()) == set(fallbacks)
    code = "\n".join(codes)
    if kernels is not None:
        assert code.count(" = npu_kernel(") == kernels, code
    return code


def to_cpu(x):
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.cpu(), x)


def test_pointwise_chain_is_one_program():
    code = check(lambda a, b: torch.relu(a + b) * 2, torch.randn(64, 32), torch.randn(64, 32), kernels=1)
    assert "max" in code and "program npu_fused_" in code


def test_backend_by_name():
    a = torch.randn(5, 7)
    result = torch.compile(lambda x: x.sin() + 1, backend="npu")(a.npu())
    torch.testing.assert_close(result.cpu(), a.sin() + 1)


REDUCTIONS = {
    "sums": (lambda x: (x.sum(), x.sum(0), x.mean((0, 2), keepdim=True), x.prod(1)), 4),
    "extremes": (lambda x: (x.amax(-1), x.amin(-1), x.argmax(-1), x.argmin(-1)), 1),
    "variance": (lambda x: torch.var_mean(x, -1), 1),
    "softmax": (lambda x: torch.softmax(x * 2, -1) + 1, 1),
    "log softmax": (lambda x: F.log_softmax(x, -1), 1),
    "layer norm": (lambda x: F.layer_norm(x.relu(), (9,)), 1),
    "rms norm": (lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5), 1),
    "truth": (lambda x: ((x > 1).any(-1), (x > -3).all(-1), (x > 0).sum(-1)), 1),
    "seven folds": (lambda x: (*((x * k).sum(-1) for k in range(1, 5)), x.amax(-1), x.amin(-1), x.prod(-1)), 1),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_over_one_range_are_one_command(name):
    fn, kernels = REDUCTIONS[name]
    check(fn, torch.randn(7, 5, 9), kernels=kernels)


def test_argmax_counts_in_the_order_of_dimensions():
    check(lambda x: (x.t().argmax(), (x + 1).t().argmin()), torch.randn(7, 5))


ADDRESSES = {
    "broadcast": lambda a: a[:, None, :] + a[None, :, :] * 2,
    "transpose": lambda a: a.t() + a.reshape(6, 10),
    "reshape of a transpose": lambda a: (a.transpose(0, 1).reshape(-1) + 1).view(5, -1),
    "cat": lambda a: torch.cat([a, a[:, :3]], 1) + 1,
    "stack": lambda a: torch.stack([a, a * 2], 1).relu(),
    "pad": lambda a: F.pad(a, (1, 2, 3, 0), value=1.5) * 2,
    "reflect": lambda a: F.pad(a, (1, 2), mode="reflect") * 2,
    "roll and flip": lambda a: a.roll(2, 1) + a.flip(0, 1),
    "slices": lambda a: a[1:4, ::2] * 2 + a[0:3, 1::2],
    "triangle": lambda a: a.tril() + a.triu(1) * 2 + torch.arange(6, device=a.device),
    "repeat": lambda a: a.repeat(2, 3) + a.repeat_interleave(3, 1).repeat(2, 1),
    "pool": lambda a: F.avg_pool2d(a[None], 3, 2, 1) + F.max_pool2d(a[None], 2, 2)[:, :, :1],
    "interpolate": lambda a: F.interpolate(a[None, None], scale_factor=2, mode="bilinear"),
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_addresses(name):
    check(ADDRESSES[name], torch.randn(10, 6))


def test_padding_needs_no_division():
    """A range is cut where indices are, so that an operand is an offset and strides, and masks are comparisons."""
    code = check(lambda a: F.pad(a, (1, 2, 3, 0)), torch.randn(10, 6), kernels=1)
    assert "mask" in code and "load_at" not in code and "mod " not in code


def test_indirect_loads_wrap_and_check():
    code = check(lambda a, i: a[i] + 1, torch.randn(10, 6), torch.randint(-10, 10, (3, 4)), kernels=1)
    assert "check_index" in code and "wrap, check" in code
    gathered = torch.compile(lambda a, i: a[i] * 2)(torch.randn(10, 6).npu(), torch.tensor([3, 11]).npu())
    with pytest.raises(IndexError, match="index 11 is out of bounds"):
        gathered.cpu()


def test_gathers():
    index = torch.randint(0, 6, (10, 3))
    check(lambda a, i: a.gather(1, i) + F.embedding(i, a).sum(-1), torch.randn(10, 6), index)


def test_scatter_is_one_command_with_computed_stores():
    index, source = torch.randint(0, 10, (4, 6)), torch.randn(4, 6)
    code = check(lambda a, i, s: a.scatter_add(0, i, s * 2), torch.randn(10, 6), index, source)
    assert "store_at" in code and "'scatter'" in code
    check(lambda a, i, s: a.index_put((i[:, 0],), s, accumulate=True), torch.randn(10, 6), index, source)
    check(lambda a, i: a.scatter(1, i[:, :1], 2.0), torch.randn(10, 12), index)


def test_types():
    a, b = torch.randint(-50, 50, (40,)), torch.randint(1, 9, (40,))
    check(lambda a, b: (a + b, a * b, a // b, a % b, a & b, a ^ b, ~a, a << 1, a >> 1, a / b, a > b), a, b, kernels=1)
    check(lambda a, b: (a + b, -a, (a * b).float(), (a + b) // 2), a.to(torch.uint8), b.to(torch.uint8), kernels=1)
    small = torch.randint(0, 256, (40,), dtype=torch.uint8)
    check(
        lambda a: (a.int() * a.int(), (255 - a) * 2 // 3, torch.where(a > 9, a, 3) * 99 // 2, a.amax() * 2 // 3), small
    )
    check(lambda a: (a.half(), a.bfloat16(), a.int(), a.double() / 3, a.bool()), torch.randn(40) * 10, kernels=1)
    exact = {"rtol": 0, "atol": 0}
    check(lambda a: (a.view(torch.int32) + 1, torch.frexp(a), a % 0.7), torch.randn(40), tolerance=exact)


@pytest.mark.parametrize("params", [torch.bfloat16, torch.float32])
def test_statistics_of_norms_have_the_types_of_eager_mode(params):
    def f(x, image, weight, mean, var):
        layer = torch.native_layer_norm(x, (8,), weight, weight, 1e-5)
        training = torch.native_batch_norm(image, weight, weight, mean.clone(), var.clone(), True, 0.1, 1e-5)
        return *layer, *training, *torch.native_batch_norm(image, weight, None, mean, var, False, 0.1, 1e-5)

    x, image = torch.randn(6, 8).bfloat16(), torch.randn(4, 8, 5).bfloat16()
    numbers = [t.to(params) for t in (torch.randn(8), torch.randn(8), torch.rand(8) + 1)]
    check(f, x, image, *numbers, tolerance={"rtol": 2e-2, "atol": 2e-2})


def test_any_of_bytes_is_a_byte():
    check(lambda x: (x.any(), x.any(1), x.all(1), x.bool().any(0)), torch.tensor([[0, 2], [0, 0]], dtype=torch.uint8))


def test_scatters_of_complex_numbers_are_aten_calls():
    x, y = torch.randn(4, 4, dtype=torch.complex64), torch.randn(4, dtype=torch.complex64)
    check(lambda x, y: (torch.diagonal_scatter(x, y), torch.as_strided_scatter(x, y, (4,), (2,))), x, y)


def test_cpu_numbers_travel_as_immediates():
    a, b = torch.randn(10), torch.tensor(2.5)
    result = torch.compile(lambda a, b: a * b + 1)(a.npu(), b)
    torch.testing.assert_close(result.cpu(), a * b + 1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_follows_a_product_is_its_epilogue(dynamic):
    a, b, c = torch.randn(3, 5, 6), torch.randn(7, 6), torch.randn(7)
    code = check(lambda a, b, c: F.gelu(F.linear(a, b, c)) * 2, a, b, c, kernels=1, dynamic=dynamic)
    assert "'matmul'" in code and "acc" in code
    code = check(lambda a, b, c: F.silu(F.linear(a, b)) * F.linear(a, b * 2), a, b, c, dynamic=dynamic)
    assert code.count("'matmul'") == 2 and code.count(" = npu_kernel(") == 3
    check(lambda a, b: torch.baddbmm(a[:, :, :1], a, b.t().expand(3, 6, 7), beta=2).relu(), a, b, kernels=1)


# What a product's command does at its end, row by row: loops and single kernels, results of other types, values per
# row and column, one tensor read and written.
EPILOGUES = {
    "a sum and its function": lambda y, row, column, other: (y + row, F.gelu(y + row)),
    "one kernel and the sum itself": lambda y, row, column, other: (y, y * other),
    "values per row": lambda y, row, column, other: F.silu(y) * column + torch.tanh(other),
    "comparison": lambda y, row, column, other: (y * 0 + other > row, torch.where(other > column, y.exp(), other)),
    "integers": lambda y, row, column, other: ((y * 0).int() + 1, y.sigmoid()),
    "wider": lambda y, row, column, other: (y.double() * 2, y.exp() + 1),
    "in place": lambda y, row, column, other: other.clone().add_(torch.tanh(y) * row).mul_(2),
    "by columns": lambda y, row, column, other: F.gelu(y + row) * other.t().contiguous().t(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues_of_long_rows(name, dtype):
    torch.manual_seed(0)
    a, b = torch.randn(37, 24, dtype=dtype) / 8, torch.randn(24, 150, dtype=dtype)
    rest = torch.randn(150, dtype=dtype), torch.randn(37, 1, dtype=dtype), torch.randn(37, 150, dtype=dtype)
    near = {"rtol": 2e-2, "atol": 5e-2} if dtype == torch.bfloat16 else {"rtol": 2e-5, "atol": 2e-5}
    check(lambda a, b, *rest: EPILOGUES[name](a @ b, *rest), a, b, *rest, tolerance=near)


def test_the_gradient_of_a_batch_norm_walks_its_rows_twice():
    def gradients(x, weight, bias):
        normed = F.batch_norm(x, None, None, weight, bias, True)
        return torch.autograd.grad((F.relu(normed) * normed.detach().cos()).sum(), (x, weight, bias))

    given = torch.randn(4, 6, 8, 8), torch.rand(6) + 0.5, torch.randn(6)
    expected = gradients(*(t.clone().requires_grad_() for t in given))
    ours = [t.npu().requires_grad_() for t in given]
    result, codes = run_and_get_code(torch.compile(gradients), *ours)
    torch.testing.assert_close(to_cpu(result), expected, rtol=1e-4, atol=1e-4)
    (kernel,) = [k for k in codes[-1].split("npu_kernel(") if "batch_norm_backward" in k and "fold" in k]
    assert kernel.count("each:") == 2 and kernel.count("fold sum") == 2, kernel


@pytest.mark.parametrize("special", [None, float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_chain_of_norms_walks_over_one_tensor(dtype, special):
    def norms(x):
        for k in range(3):
            x = torch.tanh(x + k) * x
            x = (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-2)
        return x

    given = torch.randn(33, 100, dtype=dtype)
    if special is not None:
        given[3, 5] = special
    near = 1e-4 if dtype == torch.float32 else 1e-1
    code = check(norms, given, kernels=1, tolerance={"rtol": near, "atol": near, "equal_nan": True})
    if dtype == torch.float32:  # else what is stored is not what was computed
        assert code.count("fold sum") == 6 and "welford" not in code
    assert len(set(re.findall(r"store (\w+)", code))) == 1, code


def test_a_sum_beside_moments_is_what_it_is_alone():
    """Exact where the sum is, and infinite where one element is."""
    ones = (torch.rand(200, 1000) < torch.rand(200, 1)).float()
    long = torch.ones(4, 5000)
    long[:, 2500] = float("inf")
    both = torch.compile(lambda x: (x.sum(-1), x.mean(-1), x.var(-1)))
    for x in (ones, long):
        total, mean, _ = to_cpu(both(x.npu()))
        assert total.equal(x.sum(-1)) and mean.allclose(x.mean(-1))


def _two_moments(x, y):
    a = x + y
    return a, (a * 2).var(1), a.var(1)


def _moments_of_a_result_in_place(x, y):
    a = x + 1
    y.copy_(a - a.mean(1, keepdim=True))
    return y.var(1), (y * 3).var(1)


def _moments_of_a_norm_in_place(x, y):
    a = x + y
    y.copy_(F.layer_norm(a, (64,)))
    return (y * 2).var(1)


@pytest.mark.parametrize("fn", [_two_moments, _moments_of_a_result_in_place, _moments_of_a_norm_in_place])
def test_second_passes_find_what_they_load(fn):
    check(fn, torch.randn(32, 64), torch.randn(32, 64))


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


def layers_and_code(*modules):
    """The code of the forward and the backward pass of `modules`."""
    model, x = torch.nn.Sequential(*modules).npu(), torch.randn(24, 48).npu().requires_grad_()
    _, codes = run_and_get_code(lambda: torch.compile(model)(x).square().sum().backward())
    return codes


def test_gradients_of_weights_come_before_the_gradient_that_goes_on():
    _, backward = layers_and_code(*(torch.nn.Linear(48, 48) for _ in range(3)))
    calls = re.findall(r"^        (npu_fused\w+)\(", backward, re.MULTILINE)
    kinds = ["sum" if "_sum_" in name else "mm" for name in calls]
    assert kinds == ["sum", "mm", "mm"] * 3, calls


def test_a_norm_keeps_its_input_for_the_backward_pass():
    """What it makes of it besides its result is not stored: the backward pass computes it again."""
    forward, _ = layers_and_code(torch.nn.Linear(48, 48), torch.nn.LayerNorm(48), torch.nn.Linear(48, 48))
    (norm,) = [k for k in forward.split("npu_kernel(") if "fold welford" in k]
    each = norm.split("each:")[-1].split("'''")[0]
    assert each.count("store") == 1, norm


def test_what_only_a_reduction_reads_is_no_epilogue():
    """The gradient of a norm folds its own products of the gradient that comes in, which the product before it stores
    for others anyway."""

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.linear = torch.nn.LayerNorm(48), torch.nn.Linear(48, 48)

        def forward(self, x):
            normed = self.norm(x)
            return normed + self.linear(normed)

    _, backward = layers_and_code(Block())
    stores = [k.count("store ") for k in backward.split("npu_kernel(") if "'matmul'" in k and "acc : f32" in k]
    assert stores == [1], backward
    (norm,) = [k for k in backward.split("npu_kernel(") if k.count("each:") == 2]
    assert norm.count("fold sum") == 2 and norm.count("store ") == 1, norm


def test_a_gated_unit_stores_no_silu():
    """Nor does its gradient compute the sigmoid twice: silu is made of the one that its own gradient uses."""

    class Gated(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.up = torch.nn.Linear(48, 32, bias=False), torch.nn.Linear(48, 32, bias=False)

        def forward(self, x):
            return F.silu(self.gate(x)) * self.up(x)

    codes = layers_and_code(Gated(), torch.nn.Linear(32, 48))
    assert [code.count(" = sigmoid ") for code in codes] == [1, 1]
    (gated,) = [k for k in codes[0].split("npu_kernel(") if " = sigmoid " in k]
    assert gated.count("  store ") == 2, gated  # what `up` yields, and the product
    x = torch.randn(5, 7)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        check(F.silu, x.to(dtype), kernels=1)


def test_functions_are_kept_for_the_backward_pass():
    def gradient(x):
        y = torch.tanh(x * 0.5) * torch.sigmoid(x)
        return torch.autograd.grad((y * y).sum(), x)[0]

    x = torch.randn(32, 64, requires_grad=True)
    again = x.detach().npu().requires_grad_()

    def step():
        y = torch.compile(lambda x: torch.tanh(x * 0.5) * torch.sigmoid(x))(again)
        return torch.autograd.grad((y * y).sum(), again)[0]

    result, codes = run_and_get_code(step)
    torch.testing.assert_close(result.cpu(), gradient(x), rtol=1e-5, atol=1e-5)
    assert len(codes) == 2 and [sum(code.count(f" = {f} ") for code in codes) for f in ("tanh", "sigmoid")] == [1, 1]


def test_a_product_alone_needs_no_program():
    code = check(lambda a, b: a @ b, torch.randn(5, 6), torch.randn(6, 7), kernels=1)
    assert "program=''" in code
    check(lambda a, b: (a @ b, a.int() @ b.int()), torch.randn(5, 6).double(), torch.randn(6, 7).double(), kernels=3)


def test_products_without_elements():
    check(lambda a, b, c: (a @ b) @ c + 1, torch.randn(3, 4), torch.randn(4, 0), torch.randn(0, 2), kernels=1)
    batches = torch.randn(2, 3, 4), torch.randn(2, 4, 0), torch.randn(2, 0, 5)
    check(lambda a, b, c: ((a @ b).relu() @ c, (a @ b).sum(-1)), *batches)
    heads = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 4, 0), torch.randn(2, 3, 0, 5)
    check(lambda a, b, c: ((a @ b) @ c).transpose(1, 2).reshape(2, 5, 15), *heads)


def test_moments_of_nothing_are_nan():
    def moments(x):
        return torch.var_mean(x), torch.std_mean(x, 0, keepdim=True), torch.var_mean(x, (0, 1), correction=0)

    check(moments, torch.randn(0, 3), tolerance={"rtol": 0, "atol": 0, "equal_nan": True})


def test_loops_that_do_not_fit_a_product_stay_outside():
    a, b, table = torch.randn(6, 8), torch.randn(8, 12), torch.randn(3, 4)
    check(lambda a, b, t: (a @ b).view(2, 3, 3, 4).transpose(1, 2) * t, a, b, table, kernels=2)
    check(lambda a, b: torch.softmax(a @ b, -1), a, b, kernels=2)


def test_attention_is_an_aten_call_with_fused_neighbours():
    check(lambda q: F.scaled_dot_product_attention(q, q + 1, q * 2, is_causal=True), torch.randn(2, 4, 8, 16))


def test_conditions_and_loops_stay_in_the_graph():
    def fn(x):
        x = torch.cond(x.sum() > 0, lambda t: t.sin() + 1, lambda t: t.cos() * 2, (x * 3,))
        start = torch.zeros((), dtype=torch.int64, device=x.device)
        return torch._higher_order_ops.while_loop(lambda k, t: k < 3, lambda k, t: (k + 1, t * 2), (start, x))[1]

    for sign in (1, -1):
        check(fn, sign * torch.rand(4, 6))


def test_mutation():
    def step(a, b):
        a.add_(b).mul_(2)
        return a.sum()

    a, b = torch.randn(10, 3), torch.randn(3)
    on_npu = a.npu()
    result = torch.compile(step)(on_npu, b.npu())
    torch.testing.assert_close(result.cpu(), step(a, b))
    torch.testing.assert_close(on_npu.cpu(), a)


def test_what_programs_lack_stays_an_aten_call():
    code = check(lambda a: torch.special.bessel_j0(a).relu() + 1, torch.randn(10), kernels=1)
    assert "special_bessel_j0" in code
    check(lambda a: a.sort(1), torch.randn(10, 6))
    check(lambda a: torch.view_as_complex(a).abs() * 2, torch.randn(10, 2))


@pytest.mark.parametrize("how", ["max", "mean", "sum"])
def test_aten_calls_have_the_strides_that_were_promised(how):
    lengths = torch.tensor([[1, 1, 1, 2]]).expand(5, 4).contiguous()
    check(lambda x, n: torch.segment_reduce(x, how, lengths=n, axis=1, unsafe=True), torch.randn(5, 5), lengths)


def test_an_op_that_turns_out_to_be_impossible_is_left_to_aten(monkeypatch, caplog):
    from torch._inductor import lowering

    from torch_npu.compile.codegen import ops, program
    from torch_npu.compile.lowerings import left_to_aten

    def refuse(x):
        raise program.Unsupported("sinh")

    sinh = torch.ops.aten.sinh.default
    monkeypatch.setitem(lowering.lowerings, sinh, lowering.lowerings[sinh])
    monkeypatch.setattr(left_to_aten, "OPS", set(left_to_aten.OPS))
    monkeypatch.setattr(ops.NpuOverrides, "sinh", staticmethod(refuse))
    with torch._inductor.config.patch(fx_graph_cache=False):
        code = check(lambda x: (x + 1).sinh() * 2, torch.randn(7), kernels=2)
    assert "aten.sinh" in code
    assert [r.getMessage() for r in caplog.records if r.levelname in ("WARNING", "CRITICAL")] == [
        "torch.compile on npu runs aten.sinh.default as in eager mode: a program cannot express sinh"
    ]


def test_kernels_beyond_the_limits_are_cut():
    inputs = [torch.randn(5, 3) for _ in range(80)]
    code = check(lambda *a: sum(x.sin() for x in a), *inputs)
    assert code.count(" = npu_kernel(") > 1


@pytest.mark.parametrize("name", ["softmax", "reshape", "pad", "argmax"])
def test_one_program_for_all_sizes(name):
    functions = {
        "softmax": lambda x: torch.softmax(x, -1) + x.sum(0),
        "reshape": lambda x: x.t().reshape(-1) * x.shape[0],
        "pad": lambda x: F.pad(x, (1, 1)),
        "argmax": lambda x: x.t().argmax(),
    }
    compiled = torch.compile(functions[name], dynamic=True, fullgraph=True)
    compiled(torch.randn(6, 10).npu())
    with torch.compiler.set_stance("fail_on_recompile"):
        for shape in ((6, 10), (9, 14), (12, 3)):
            x = torch.randn(*shape)
            torch.testing.assert_close(compiled(x.npu()).cpu(), functions[name](x))


def test_random_numbers_follow_the_seed():
    def draw(x):
        return (
            torch.rand_like(x),
            torch.randn_like(x),
            F.dropout(x, 0.3),
            torch.randint(0, 10, (1000,), device=x.device),
        )

    compiled = torch.compile(draw, fullgraph=True)
    x = torch.ones(100000, device="npu")
    torch.npu.manual_seed(1)
    first, second = to_cpu(compiled(x)), to_cpu(compiled(x))
    torch.npu.manual_seed(1)
    again = to_cpu(compiled(x))
    for a, b, c in zip(first, second, again):
        assert not a.equal(b) and a.equal(c)
    uniform, normal, dropped, integers = first
    assert 0 <= uniform.min() and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.01
    assert abs(normal.mean()) < 0.02 and abs(normal.std() - 1) < 0.02
    assert abs((dropped == 0).float().mean() - 0.3) < 0.01
    assert sorted(integers.unique().tolist()) == list(range(10))


def test_dropout_drops_the_same_in_backward():
    w = torch.ones(1000, requires_grad=True, device="npu")
    out = torch.compile(lambda w: F.dropout(w, 0.3))(w)
    out.sum().backward()
    torch.testing.assert_close(w.grad.cpu(), out.detach().cpu())


CACHED = """
import torch
from torch._dynamo.utils import counters
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.GELU()).npu()
torch.compile(model)(torch.randn(8, 16).npu()).sum().backward()
torch.npu.synchronize()
print(counters["inductor"]["fxgraph_cache_miss"], counters["inductor"]["fxgraph_cache_hit"])
"""


def test_second_process_compiles_nothing(python, tmp_path):
    assert python(CACHED, timeout=300, TORCHINDUCTOR_CACHE_DIR=str(tmp_path)).lines()[-1] == "2 0"
    assert python(CACHED, timeout=300, TORCHINDUCTOR_CACHE_DIR=str(tmp_path)).lines()[-1] == "0 2"


def test_questions_about_the_device_are_constants_of_a_graph():
    def asked(x):
        if torch.npu.is_available() and torch.npu.is_initialized():
            x = x * 2
        return x + torch.npu.current_device() * 10 + torch.npu.device_count()

    compiled = torch.compile(asked, fullgraph=True)
    x = torch.ones(4).npu()
    assert torch.equal(compiled(x), asked(x))


def test_functions_of_torch_npu_are_no_graphs_of_their_own():
    from torch.utils._mode_utils import no_dispatch

    def shaken(x):
        before = torch.npu.get_rng_state()
        torch._dynamo.graph_break()
        x = F.dropout(x, 0.5)
        with no_dispatch():  # where nothing can be traced
            torch.npu.set_rng_state(before)
        return x

    before = torch.npu.get_rng_state()
    assert set(torch.compile(shaken)(torch.ones(4).npu()).cpu().tolist()) <= {0.0, 2.0}
    assert torch.equal(torch.npu.get_rng_state(), before)


def test_importing_torch_imports_no_compiler(python):
    code = "import sys, torch, torch_npu; print([m for m in sys.modules if m in ('torch._inductor', 'torch._dynamo')])"
    assert python(code).lines() == ["[]"]


def test_explain_says_what_runs_and_what_breaks_a_graph():
    def model(x, w):
        y = F.gelu(F.linear(x, w)) * 2
        torch._dynamo.graph_break()
        return torch.softmax(y + 1, -1)

    found = torch_npu.compile.explain(model, torch.randn(8, 16).npu(), torch.randn(32, 16).npu())
    assert found.eager.total == 5 and found.compiled.total == 2
    (why,) = found.breaks
    assert found.graphs == 2 and re.search(r"\(.*test_compile\.py:\d+\)$", why), why
    assert found.compiled.total_bytes == 4 * (8 * 16 + 32 * 16 + 8 * 32) + 4 * (2 * 8 * 32)
    assert "eager:     5 commands" in str(found) and "aten::gelu" in str(found)


def test_sizes_that_are_quotients():
    """Loops name the ends of dimensions in other forms than their sizes have, all of them with divisions."""

    def fn(x):
        return F.avg_pool3d(x / (1 + x.square().sum(-1, keepdim=True)), 2)

    compiled = torch.compile(fn, dynamic=True)
    for size in (3, 5):
        x = torch.randn(3, 4, size, size, size, requires_grad=True)
        given = x.detach().npu().requires_grad_()
        got, want = compiled(given), fn(x)
        torch.testing.assert_close(got.cpu(), want)
        torch.testing.assert_close(
            torch.autograd.grad(got.square().sum(), given)[0].cpu(), torch.autograd.grad(want.square().sum(), x)[0]
        )


def test_the_page_for_users_runs():
    page = (ROOT / "docs" / "compile.md").read_text()
    names: dict = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), names)
    with torch.no_grad():
        torch.testing.assert_close(names["y"], names["model"](names["x"]))
