"""npu_lora_linear, and optimize_lora on peft's own layers."""

import copy

import pytest
import torch

import torch_npu
from tests.support import small_models

devices = pytest.mark.parametrize("device", ["npu", "cpu"])
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def commands(function):
    with torch_npu.native.counting():
        result = function()
    return result, sum(torch_npu.native_report().values())


def tensors(dtype, adapter=None):
    torch.manual_seed(0)
    sizes = {"x": (2, 5, 24), "weight": (16, 24), "bias": (16,), "a": (4, 24), "b": (16, 4), "adapted": (2, 5, 24)}
    made = {name: torch.randn(size, dtype=torch.float64) for name, size in sizes.items()}
    return {name: t.to(adapter if adapter and name in "ab" else dtype) for name, t in made.items()}


def meaning(x, weight, bias, a, b, scaling, adapted=None):
    low = torch.nn.functional.linear(x if adapted is None else adapted, a)
    return torch.nn.functional.linear(x, weight, bias) + scaling * torch.nn.functional.linear(low, b)


@devices
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("left_out", [(), ("adapted",), ("adapted", "bias")])
def test_results_and_gradients(device, dtype, left_out):
    given = tensors(dtype)
    torch_npu.fallback.reset()
    results = []
    for wide, place, function in (
        (False, device, lambda *t: torch.ops.npu.npu_lora_linear(*t)[0]),
        (True, "cpu", meaning),
    ):
        own = {n: (t.double() if wide else t).detach().to(place).requires_grad_() for n, t in given.items()}
        x, weight, bias, a, b, adapted = (None if n in left_out else t for n, t in own.items())
        out = function(x, weight, bias, a, b, 0.5, adapted)
        leaves = [t for t in (x, weight, bias, a, b, adapted) if t is not None]
        torch.manual_seed(1)
        grad = torch.randn(out.shape, dtype=torch.float64).to(out)
        results.append([out, *torch.autograd.grad(out, leaves, grad)])
    assert torch_npu.fallback.report() == {}
    for got, right in zip(*results, strict=True):
        assert got.dtype == dtype and got.device.type == device
        limit = TOLERANCE[dtype] * (1 + right.abs().max().item())
        torch.testing.assert_close(got.detach().cpu().double(), right.detach(), rtol=0, atol=limit)


def test_float32_adapters_on_a_bfloat16_layer():
    own = {n: t.npu().requires_grad_(n in "xab") for n, t in tensors(torch.bfloat16, torch.float32).items()}
    x, weight, bias, a, b, _ = own.values()
    (out, _), count = commands(lambda: torch.ops.npu.npu_lora_linear(x, weight, bias, a, b, 0.5))
    assert count == 3 and out.dtype == torch.bfloat16
    grads, count = commands(lambda: torch.autograd.grad(out, (x, a, b), torch.ones_like(out)))
    assert count == 5 + 1  # and ones_like
    assert [g.dtype for g in grads] == [torch.bfloat16, torch.float32, torch.float32]


@devices
def test_opcheck(device):
    own = {n: t.to(device).requires_grad_() for n, t in tensors(torch.float32).items()}
    x, weight, bias, a, b, adapted = own.values()
    checks = ["test_schema", "test_faketensor", "test_aot_dispatch_dynamic"]
    checks += ["test_autograd_registration"] if device == "cpu" else []
    op = torch.ops.npu.npu_lora_linear.default
    torch.library.opcheck(op, (x, weight, bias, a, b, 0.5), test_utils=checks)
    torch.library.opcheck(op, (x, weight, None, a, b, 0.5, adapted), test_utils=checks)


def test_second_derivatives_and_torch_func():
    x, weight, bias, a, b, adapted = (t.npu().requires_grad_() for t in tensors(torch.float64).values())

    def layer(*inputs):
        return torch.ops.npu.npu_lora_linear(*inputs[:5], 0.5, *inputs[5:])[0]

    assert torch.autograd.gradgradcheck(layer, (x, weight, bias, a, b), fast_mode=True)
    assert torch.autograd.gradgradcheck(layer, (x, weight, bias, a, b, adapted), fast_mode=True)
    rest = [t.detach() for t in (weight, bias, a, b)]
    got = torch.func.vmap(torch.func.grad(lambda t: layer(t, *rest).sin().sum()))(x.detach())
    layer(x, *rest).sin().sum().backward()
    torch.testing.assert_close(got, x.grad)


def test_bad_arguments_are_named():
    x, weight, bias, a, b, _ = (t.npu() for t in tensors(torch.float32).values())
    lora = torch.ops.npu.npu_lora_linear
    with pytest.raises(RuntimeError, match=r"expected input \[..., k\].* and b \[n, r\], got .* and \[16, 3\]"):
        lora(x, weight, bias, a, b[:, 1:], 1.0)
    with pytest.raises(TypeError, match="expected weight of the type of input, Float, got Half"):
        lora(x, weight.half(), bias, a, b, 1.0)
    with pytest.raises(RuntimeError, match="same device"):
        lora(x, weight, bias, a.cpu(), b, 1.0)
    with pytest.raises(RuntimeError, match=r"expected bias of 16 elements, got \["):
        lora(x, weight, x, a, b, 1.0)
    with pytest.raises(TypeError, match="expected bias of a floating type, got Int"):
        lora(x, weight, bias.int(), a, b, 1.0)
    with pytest.raises(RuntimeError, match=r"expected adapted of input's shape .*, got \["):
        lora(x, weight, bias, a, b, 1.0, x[..., 1:])
    with pytest.raises(ValueError, match="expected a peft model with LoRA linear layers, got none in Linear"):
        torch_npu.optimize_lora(torch.nn.Linear(2, 2))


# -- peft --


def small_model(dropout=0.0):
    import peft

    torch.manual_seed(0)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    lora = peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=dropout, target_modules=targets, init_lora_weights=False)
    return peft.get_peft_model(small_models.qwen2_alone(vocab_size=64, intermediate_size=48), lora)


def losses(model, device, steps=4):
    model = model.to(device)
    torch.manual_seed(1)
    tokens = torch.randint(0, 64, (2, 12)).to(device)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    found = []
    for _ in range(steps):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


@devices
def test_a_peft_model_trains_the_same_with_fewer_commands(device):
    plain, optimized = small_model(), small_model()
    assert torch_npu.optimize_lora(optimized) == 14
    # The first attention of a process asks the driver what it can do, with commands.
    torch.nn.functional.scaled_dot_product_attention(*torch.ones(3, 1, 1, 1, 1, device=device))
    (want, many), (got, few) = (commands(lambda m=m: losses(m, device)) for m in (plain, optimized))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert want[-1] < want[0]
    if device == "npu":
        # Per step 8 commands instead of 12, and for the three layers whose input has no gradient 6 instead of 9.
        assert few == many - 4 * (11 * 4 + 3 * 3)
    assert torch_npu.optimize_lora(optimized, enable=False) == 14
    assert all("forward" not in layer.__dict__ for layer in optimized.modules())


def test_merging_disabling_and_copies_stay_pefts():
    model = small_model().npu().eval()
    tokens = torch.randint(0, 64, (1, 8)).npu()
    with torch.no_grad():
        want = model(tokens).logits
        torch_npu.optimize_lora(model)
        torch.testing.assert_close(model(tokens).logits, want, rtol=1e-4, atol=1e-5)
        with model.disable_adapter():
            without = model(tokens).logits
        assert (without - want).abs().max().item() > 1e-3
        twin = copy.deepcopy(model)
        for layer in twin.modules():
            if "forward" in layer.__dict__:
                assert layer.forward.__self__ is layer
        merged = model.merge_and_unload()
        torch.testing.assert_close(merged(tokens).logits, want, rtol=1e-3, atol=1e-4)


def test_dropout_is_applied_to_what_the_adapter_sees():
    layer = small_model(dropout=0.5).npu().train().base_model.model.model.layers[0].self_attn.q_proj
    torch_npu.optimize_lora(layer)
    x = torch.randn(3, 32, device="npu", requires_grad=True)
    torch.manual_seed(5)
    got = layer(x)
    got.sum().backward()
    grad, x.grad = x.grad, None
    torch_npu.optimize_lora(layer, enable=False)
    torch.manual_seed(5)
    want = layer(x)
    want.sum().backward()
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(grad, x.grad)
