"""torch_npu.npu_*: each fused op against its meaning in double precision, on npu and on the CPU, with gradients."""

import re

import pytest
import torch
from torch.nn import functional as F

import torch_npu
from tests.support import ROOT

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def device_works() -> bool:
    return (torch.ones(4, device="npu") + 1).sum().item() == 8


# -- what the ops mean --


def rms_norm(x, gamma, epsilon=1e-6):
    dims = tuple(range(-gamma.dim(), 0))
    rstd = (x.pow(2).mean(dims, keepdim=True) + epsilon).rsqrt()
    return x * rstd * gamma, rstd.detach()


def add_rms_norm(x1, x2, gamma, epsilon=1e-6):
    x = x1 + x2
    out, rstd = rms_norm(x, gamma, epsilon)
    return out, rstd, x


def rotary_mul(x, r1, r2, rotary_mode="half"):
    if rotary_mode == "half":
        first, second = x.chunk(2, -1)
        turned = torch.cat((-second, first), -1)
    else:
        turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * r1 + turned * r2


def swiglu(x, dim=-1):
    gate, line = x.chunk(2, dim)
    return F.silu(gate) * line


def geglu(x, dim=-1, approximate=1, activate_left=False):
    first, second = x.chunk(2, dim)
    gate, line = (first, second) if activate_left else (second, first)
    gelu = F.gelu(gate, approximate="tanh" if approximate == 1 else "none")
    return line * gelu, gelu.detach()


def randn(*sizes):
    return torch.randn(*sizes, dtype=torch.float64)


# Op, its meaning, its tensors, its other arguments; commands forward and backward.
CASES = {
    "rms_norm": ("npu_rms_norm", rms_norm, lambda: (randn(3, 5, 16), randn(16)), {}, 1, 2),
    "rms_norm_2d": ("npu_rms_norm", rms_norm, lambda: (randn(3, 4, 6), randn(4, 6)), {"epsilon": 0.1}, 1, 2),
    "add_rms_norm": ("npu_add_rms_norm", add_rms_norm, lambda: (randn(2, 7, 24), randn(2, 7, 24), randn(24)), {}, 1, 2),
    "rotary": (
        "npu_rotary_mul",
        rotary_mul,
        lambda: (randn(2, 3, 5, 8), randn(1, 1, 5, 8), randn(1, 1, 5, 8)),
        {},
        1,
        2,
    ),
    "rotary_per_batch": (
        "npu_rotary_mul",
        rotary_mul,
        lambda: (randn(2, 5, 3, 8), randn(2, 5, 1, 8), randn(2, 5, 1, 8)),
        {},
        1,
        2,
    ),
    "rotary_interleave": (
        "npu_rotary_mul",
        rotary_mul,
        lambda: (randn(2, 3, 5, 8), randn(5, 8), randn(5, 8)),
        {"rotary_mode": "interleave"},
        1,
        2,
    ),
    "swiglu": ("npu_swiglu", swiglu, lambda: (randn(3, 5, 32),), {}, 1, 1),
    "swiglu_dim": ("npu_swiglu", swiglu, lambda: (randn(3, 6, 5).transpose(0, 2),), {"dim": 1}, 1, 1),
    "geglu": ("npu_geglu", geglu, lambda: (randn(3, 5, 32),), {}, 1, 1),
    "geglu_exact_left": (
        "npu_geglu",
        geglu,
        lambda: (randn(4, 3, 6),),
        {"dim": 0, "approximate": 0, "activate_left": True},
        1,
        1,
    ),
}
cases = pytest.mark.parametrize("case", CASES)


def tuple_of(result):
    return result if isinstance(result, tuple) else (result,)


def run(function, tensors, options):
    """Results, and gradients of all tensors for a fixed weighting of the differentiable results."""
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    results = tuple_of(function(*leaves, **options))
    asked = [r for r in results if r.requires_grad]
    torch.manual_seed(1)
    weights = [torch.randn(r.shape, dtype=torch.float64).to(r) for r in asked]
    return results, torch.autograd.grad(asked, leaves, weights)


@cases
@pytest.mark.parametrize("device", ["npu", "cpu"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_results_and_gradients(case, device, dtype):
    torch.manual_seed(0)
    name, meaning, make, options, _, _ = CASES[case]
    tensors = [t.to(dtype) for t in make()]
    torch_npu.fallback.reset()
    results, grads = run(getattr(torch_npu, name), [t.to(device) for t in tensors], options)
    assert torch_npu.fallback.report() == {}
    want, want_grads = run(meaning, [t.double() for t in tensors], options)
    for got, right in zip((*results, *grads), (*want, *want_grads), strict=True):
        assert got.device.type == device and got.shape == right.shape
        limit = TOLERANCE[dtype] * (1 + right.abs().max().item())
        torch.testing.assert_close(got.detach().cpu().double(), right.detach(), rtol=0, atol=limit)
    assert results[0].dtype == dtype and all(g.dtype == dtype for g in grads)
    assert [r.requires_grad for r in results] == [r.requires_grad for r in want]


@cases
def test_commands(case):
    name, _, make, options, forward, backward = CASES[case]
    leaves = [t.float().npu().requires_grad_() for t in make()]

    def commands(function):
        with torch_npu.native.counting():
            result = function()
        return result, sum(torch_npu.native_report().values())

    results, count = commands(lambda: getattr(torch.ops.npu, name)(*leaves, **options))
    assert count == forward
    out = tuple_of(results)[0]
    grad = torch.ones_like(out)
    _, count = commands(lambda: torch.autograd.grad(out, leaves, grad))
    assert count == backward


@cases
@pytest.mark.parametrize("device", ["npu", "cpu"])
def test_opcheck(case, device):
    name, _, make, options, _, _ = CASES[case]
    tensors = tuple(t.float().to(device).requires_grad_() for t in make())
    # How a gradient is registered is looked at for PyTorch's own devices only.
    checks = ["test_schema", "test_faketensor", "test_aot_dispatch_dynamic"]
    checks += ["test_autograd_registration"] if device == "cpu" else []
    torch.library.opcheck(getattr(torch.ops.npu, name).default, tensors, options, test_utils=checks)


@cases
def test_second_derivatives(case):
    name, _, make, options, _, _ = CASES[case]
    tensors = [t.npu().requires_grad_() for t in make()]

    def differentiable(*inputs):
        return tuple(r for r in tuple_of(getattr(torch_npu, name)(*inputs, **options)) if r.requires_grad)

    assert torch.autograd.gradgradcheck(differentiable, tensors, fast_mode=True)


@cases
@pytest.mark.parametrize("device", ["npu", "cpu"])
def test_transforms_of_torch_func(case, device):
    name, meaning, make, options, _, _ = CASES[case]
    tensors = make()

    def grads(function, place):
        def loss(*inputs):
            return tuple_of(function(*inputs, **options))[0].sin().sum()

        batches = [torch.stack([t, t * 0.5]).to(place) for t in tensors]
        return torch.func.vmap(torch.func.grad(loss, argnums=tuple(range(len(tensors)))))(*batches)

    got = [g.cpu() for g in grads(getattr(torch_npu, name), device)]
    torch.testing.assert_close(got, list(grads(meaning, "cpu")))


@cases
@pytest.mark.parametrize("device", ["npu", "cpu"])
def test_forward_mode_derivatives(case, device):
    name, meaning, make, options, _, _ = CASES[case]
    tensors = make()
    tangents = [torch.randn_like(t) for t in tensors]

    def tangent(function, place):
        with torch.autograd.forward_ad.dual_level():
            duals = [
                torch.autograd.forward_ad.make_dual(t.to(place), d.to(place))
                for t, d in zip(tensors, tangents, strict=True)
            ]
            return torch.autograd.forward_ad.unpack_dual(tuple_of(function(*duals, **options))[0]).tangent.cpu()

    torch.testing.assert_close(tangent(getattr(torch_npu, name), device), tangent(meaning, "cpu"))


def test_a_gradient_keeps_what_it_needs_and_frees_it():
    x = torch.randn(2, 3, 8, device="npu", requires_grad=True)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t):
        y = torch_npu.npu_rotary_mul(x, x.detach()[0], x.detach()[0])
        assert packed == [(3, 8), (3, 8)]  # r1 and r2, and not the input
        packed.clear()
        torch_npu.npu_rotary_mul(x, x[0], x.detach()[0])
        assert packed == [(2, 3, 8), (3, 8), (3, 8)]
    assert y.grad_fn.name() == "NpuRotaryMulBackward" and "NpuRotaryMulBackward" in str(y)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.sum().backward()
    gate = torch_npu.npu_swiglu(x)
    with torch.no_grad():
        x.zero_()
        assert not torch_npu.npu_swiglu(x).requires_grad
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gate.sum().backward()


def test_a_driver_without_commands_computes_the_same(python):
    code = """
        import torch, torch_npu
        torch.manual_seed(0)
        x, r = torch.randn(2, 3, 8), torch.randn(3, 8)
        for name, rest in (("npu_swiglu", ()), ("npu_geglu", ()), ("npu_rms_norm", (r[0],)),
                           ("npu_add_rms_norm", (x * 2, r[0])), ("npu_rotary_mul", (r, r))):
            got = []
            for device in ("cpu", "npu"):
                y = x.detach().to(device).requires_grad_()
                out = getattr(torch_npu, name)(y, *(t.to(device) for t in rest))
                out = out[0] if isinstance(out, tuple) else out
                out.sin().sum().backward()
                got += [out.detach().cpu(), y.grad.cpu()]
            torch.testing.assert_close(got[:2], got[2:])
            print(name)
    """
    assert len(python(code, TORCH_NPU_DRIVER="template", TORCH_NPU_FALLBACK="quiet").lines()) == 5


# -- mixed precision --


def test_types_that_meet_in_mixed_precision():
    x = torch.randn(2, 3, 5, 8, dtype=torch.bfloat16, device="npu")
    angle = torch.randn(5, 8, device="npu")
    assert torch_npu.npu_rotary_mul(x, angle, angle).dtype == torch.bfloat16
    gamma = torch.randn(8, device="npu")
    assert torch_npu.npu_rms_norm(x, gamma)[0].dtype == torch.bfloat16
    assert torch_npu.npu_add_rms_norm(x, x, gamma)[0].dtype == torch.bfloat16


def test_under_autocast_ops_take_what_the_matrix_products_made():
    layer = torch.nn.Linear(8, 16, device="npu")
    x = torch.randn(4, 8, device="npu")
    with torch.autocast("npu", dtype=torch.bfloat16):
        out = torch_npu.npu_swiglu(layer(x))
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert layer.weight.grad.dtype == torch.float32 and layer.weight.grad.abs().sum().item() > 0


# -- bad input --

FLOATS = torch.ones(2, 3, 8)
BAD = {
    "swiglu_type": ("npu_swiglu", (FLOATS.int(),), TypeError, "expected input of a floating type, got Int"),
    "swiglu_odd": (
        "npu_swiglu",
        (FLOATS, 1),
        RuntimeError,
        r"expected an even size in dimension 1, got 3 of \[2, 3, 8\]",
    ),
    "swiglu_dim": ("npu_swiglu", (FLOATS, 3), IndexError, r"expected to be in range of \[-3, 2\], but got 3"),
    "geglu_mode": ("npu_geglu", (FLOATS, -1, 2), ValueError, "expected approximate 0 .* or 1 .*, got 2"),
    "rms_shape": (
        "npu_rms_norm",
        (FLOATS, torch.ones(3)),
        RuntimeError,
        r"expected gamma of the last .*8\], got \[3\]",
    ),
    "rms_type": (
        "npu_rms_norm",
        (FLOATS.long(), torch.ones(8)),
        TypeError,
        "expected input of a floating type, got Long",
    ),
    "rms_none": ("npu_rms_norm", (FLOATS, None), TypeError, "expected gamma to be a tensor, got None"),
    "add_shape": (
        "npu_add_rms_norm",
        (FLOATS, FLOATS[0], torch.ones(8)),
        RuntimeError,
        r"expected x2 of the shape of x1, \[2, 3, 8\], got \[3, 8\]",
    ),
    "add_type": (
        "npu_add_rms_norm",
        (FLOATS, FLOATS.half(), torch.ones(8)),
        TypeError,
        "expected x2 of the type of x1, Float, got Half",
    ),
    "rotary_mode": (
        "npu_rotary_mul",
        (FLOATS, FLOATS, FLOATS, "both"),
        ValueError,
        "'half' or 'interleave', got 'both'",
    ),
    "rotary_shape": (
        "npu_rotary_mul",
        (FLOATS, torch.ones(4, 8), torch.ones(4, 8)),
        RuntimeError,
        r"expected r1 and r2 of one shape that broadcasts to input \[2, 3, 8\], got \[4, 8\] and \[4, 8\]",
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("device", ["npu", "cpu", "meta"])
def test_bad_arguments_are_named(case, device):
    name, arguments, error, message = BAD[case]
    arguments = [a.to(device) if isinstance(a, torch.Tensor) else a for a in arguments]
    with pytest.raises(error, match=message):
        getattr(torch_npu, name)(*arguments)
    assert device_works()


@pytest.mark.parametrize(("name", "count"), [("npu_rms_norm", 2), ("npu_add_rms_norm", 3), ("npu_rotary_mul", 3)])
def test_tensors_of_two_devices_are_refused(name, count):
    x = torch.ones(3, 8)
    for far in range(count):
        arguments = [x[0] if i == count - 1 and "norm" in name else x for i in range(count)]
        arguments = [a.npu() if i != far else a for i, a in enumerate(arguments)]
        with pytest.raises(RuntimeError, match="same device.*npu:0.*cpu|same device.*cpu.*npu:0"):
            getattr(torch_npu, name)(*arguments)
    assert device_works()


@pytest.mark.parametrize("index", [7, -1, 1 << 40])
def test_a_token_outside_the_vocabulary_is_named(index):
    table = torch.nn.Embedding(7, 4).npu()
    tokens = torch.tensor([[1, 2], [3, index]]).npu()
    with pytest.raises(IndexError, match=rf"index {index} is out of bounds for dimension with size 7"):
        table(tokens)
        torch.npu.synchronize()
    assert device_works()
    with pytest.raises(IndexError, match=rf"index {index} is out of bounds for dimension with size 7"):
        torch.ops.aten.embedding_dense_backward(torch.ones(2, 2, 4, device="npu"), tokens, 7, -100, False)
        torch.npu.synchronize()
    assert device_works()


# -- the optimizer --


@pytest.mark.parametrize("device", ["npu", "cpu"])
def test_npu_fused_adamw_is_adamw(device):
    torch.manual_seed(0)
    start, grad = torch.randn(50), torch.randn(50) * 10
    params = []
    for kind in (torch_npu.optim.NpuFusedAdamW, torch.optim.AdamW):
        param = start.clone().to(device if kind is torch_npu.optim.NpuFusedAdamW else "cpu").requires_grad_()
        optimizer = kind([param], 0.01, (0.8, 0.99), 1e-7, 0.1)
        for step in range(3):
            param.grad = (grad * (step + 1)).to(param.device)
            if kind is torch_npu.optim.NpuFusedAdamW:
                norm = optimizer.clip_grad_norm_fused_(max_norm=2.0)
            else:
                norm = torch.nn.utils.clip_grad_norm_([param], 2.0)
            optimizer.step()
        params.append((param.detach().cpu(), norm.cpu()))
    torch.testing.assert_close(params[0], params[1])


# -- docs/fused-ops.md --

EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "fused-ops.md").read_text(), re.S)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_examples_of_the_page_run(number):
    torch.manual_seed(0)
    exec(EXAMPLES[number], {})
