"""int8: PyTorch's products, quantisation and its inverse, linear layers, and a small Qwen2 with them."""

import copy
import io

import pytest
import torch

import torch_npu
from tests.support import small_models
from torch_npu.quantization import Int8Linear, quantize_

npu = torch.ops.npu
devices = pytest.mark.parametrize("device", ["npu", "cpu"])
floats = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])


@pytest.fixture(autouse=True)
def no_fallback():
    torch.manual_seed(0)
    torch_npu.fallback.reset()
    yield
    assert torch_npu.fallback.report() == {}


def int8(*sizes):
    return torch.randint(-128, 128, sizes, dtype=torch.int8)


def commands(function):
    with torch_npu.native.counting():
        result = function()
    return result, sum(torch_npu.native_report().values())


# -- PyTorch's ops --


@pytest.mark.parametrize("shape", [(17, 32, 8), (1, 64, 48), (100, 257, 33), (64, 16, 1), (3, 1, 5)])
def test_int_mm_is_exact(shape):
    m, k, n = shape
    a, b = int8(m, k), int8(n, k).t()
    got, count = commands(lambda: torch._int_mm(a.npu(), b.npu()))
    assert got.dtype == torch.int32 and count == 1
    want = (a.long() @ b.long()).int()
    assert torch.equal(got.cpu(), want)
    out = torch.empty(m, n, dtype=torch.int32, device="npu")
    assert torch._int_mm(a.npu(), b.npu(), out=out) is out and torch.equal(out.cpu(), want)


@floats
@pytest.mark.parametrize("shape", [(17, 64, 48), (1, 64, 48), (5, 100, 33)])
def test_weight_int8pack_mm(shape, dtype):
    m, k, n = shape
    x, weight, scales = torch.randn(m, k).to(dtype), int8(n, k), torch.rand(n).to(dtype)
    got, count = commands(lambda: torch._weight_int8pack_mm(x.npu(), weight.npu(), scales.npu()))
    want = (x.double() @ weight.double().t()) * scales.double()
    assert got.dtype == dtype and count == 1
    limit = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 1e-3}[dtype] * want.abs().max().item()
    torch.testing.assert_close(got.cpu().double(), want, rtol=0, atol=limit)


# -- quantisation --

SCALES = {
    "numbers": lambda: (0.05, 3),
    "tensor": lambda: (torch.tensor(0.05), torch.tensor(3)),
    "channels": lambda: (torch.rand(16) * 0.1 + 0.01, torch.randint(-9, 9, (16,))),
    "rows": lambda: (torch.rand(5, 1) * 0.1 + 0.01, torch.randint(-9, 9, (5, 1), dtype=torch.int8)),
}


def placed(values, device):
    return [v.to(device) if isinstance(v, torch.Tensor) else v for v in values]


@devices
@floats
@pytest.mark.parametrize("form", SCALES)
def test_quantize_and_back(device, dtype, form):
    x = (torch.randn(5, 16) * 5).to(dtype)
    scale, zero = SCALES[form]()
    q = npu.custom_quantize(x.to(device), *placed((scale, zero), device))
    right = ((x.float() / scale).round() + zero).clamp(-128, 127).to(torch.int8)
    assert q.dtype == torch.int8 and torch.equal(q.cpu(), right)
    back = npu.custom_dequantize(q, *placed((scale, zero), device), dtype=dtype)
    torch.testing.assert_close(back.cpu(), ((right.float() - zero) * scale).to(dtype))
    assert npu.custom_dequantize(q, *placed((scale, zero), device)).dtype == torch.float32


@devices
def test_numbers_in_range_come_back_within_half_a_step(device):
    x = torch.rand(1000, device=device) * 2 - 1
    back = npu.custom_dequantize(npu.custom_quantize(x, 1 / 127, 0), 1 / 127, 0)
    assert (back - x).abs().max().item() <= 0.5 / 127 + 1e-6


def test_each_is_one_command():
    x, s, z = torch.randn(5, 16, device="npu"), torch.rand(16, device="npu") + 0.1, torch.zeros(16, device="npu").long()
    q, count = commands(lambda: npu.custom_quantize(x, s, z))
    assert count == 1 and commands(lambda: npu.custom_quantize(x, 0.1, 0))[1] == 1
    assert commands(lambda: npu.custom_dequantize(q, s, z))[1] == 1
    assert commands(lambda: npu.npu_dynamic_quant(x))[1] == 1


@devices
def test_fake_quantize_passes_the_gradient_where_nothing_was_cut_off(device):
    x = torch.tensor([-100.0, -1.0, 0.26, 1.0, 100.0], device=device, requires_grad=True)
    y = npu.custom_fake_quantize(x, 0.1, 5)
    torch.testing.assert_close(y.detach().cpu(), torch.tensor([-13.3, -1.0, 0.3, 1.0, 12.2]))
    y.backward(torch.arange(1.0, 6.0, device=device))
    assert x.grad.cpu().tolist() == [0, 2, 3, 4, 0]
    derivatives = torch.func.vmap(torch.func.grad(lambda one: npu.custom_fake_quantize(one, 0.1, 5)))(x.detach())
    assert derivatives.cpu().tolist() == [0, 1, 1, 1, 0]


@devices
def test_the_parts_of_fake_quantize_add_up_to_the_last_bit(device):
    x = torch.randn(4000, device=device) * 20
    scale, zero = torch.tensor(0.1, device=device), torch.tensor(5, device=device)
    there_and_back = npu.custom_dequantize(npu.custom_quantize(x, scale, zero), scale, zero)
    assert torch.equal(npu.custom_fake_quantize(x, scale, zero), there_and_back)


@devices
def test_dequantize_is_differentiable_in_the_scale(device):
    q, zero = int8(3, 4).to(device), torch.tensor(2, device=device)
    scale = torch.rand(4, device=device, requires_grad=True)
    npu.custom_dequantize(q, scale, zero).sum().backward()
    torch.testing.assert_close(scale.grad.cpu(), (q.cpu().float() - 2).sum(0))


@devices
@floats
def test_dynamic_quantisation_of_rows(device, dtype):
    x = torch.randn(4, 7, 64).to(dtype)
    x[1, 2] = 0
    q, scale = torch_npu.npu_dynamic_quant(x.to(device))
    assert q.shape == x.shape and q.dtype == torch.int8 and scale.shape == (4, 7) and scale.dtype == torch.float32
    torch.testing.assert_close(scale.cpu(), x.float().abs().amax(-1) / 127)
    assert q.abs().amax(-1).cpu().flatten().tolist() == [127] * 9 + [0] + [127] * 18
    error = (q.cpu().float() * scale.cpu().unsqueeze(-1) - x.float()).abs()
    assert (error <= scale.cpu().unsqueeze(-1) * 0.5001).all()


# -- linear layers --


@devices
@floats
@pytest.mark.parametrize("mode", ["weight_only", "dynamic"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_the_linear_layer_of_its_dequantised_weight(device, dtype, mode, bias):
    linear = torch.nn.Linear(64, 48, bias=bias).to(dtype)
    layer = Int8Linear.from_linear(linear, mode).to(device)
    x = torch.randn(3, 5, 64).to(dtype)
    y = x.to(device).requires_grad_()
    (out, count) = commands(lambda: layer(y))
    weight, b = layer.dequantized().cpu().double(), None if not bias else linear.bias.detach().cpu().double()
    seen = x.double()
    if mode == "dynamic":
        q, scale = torch_npu.npu_dynamic_quant(x)
        seen = q.double() * scale.unsqueeze(-1).double()
    want = torch.nn.functional.linear(seen, weight, b)
    limit = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}[dtype] * want.abs().max().item()
    assert out.dtype == dtype
    torch.testing.assert_close(out.detach().cpu().double(), want, rtol=0, atol=limit)
    if device == "npu":
        assert count == (2 if mode == "dynamic" else 1)
    grad = torch.randn(3, 5, 48).to(dtype)
    out.backward(grad.to(device))
    right = grad.double() @ weight
    limit = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype] * right.abs().max().item()
    torch.testing.assert_close(y.grad.cpu().double(), right, rtol=0, atol=limit)
    if bias:
        assert layer.bias.grad.dtype == dtype
        torch.testing.assert_close(layer.bias.grad.cpu().float(), grad.float().sum((0, 1)), rtol=2e-2, atol=5e-2)


def test_under_autocast_a_layer_works_in_the_lower_precision():
    layer = Int8Linear.from_linear(torch.nn.Linear(8, 8).npu())
    with torch.autocast("npu", dtype=torch.bfloat16):
        assert layer(torch.randn(2, 8, device="npu")).dtype == torch.bfloat16


@devices
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_model_in_another_type_keeps_its_scales(device, dtype):
    model = quantize_(torch.nn.Sequential(torch.nn.Linear(64, 48)).to(device))
    scale, weight = model[0].scale.clone(), model[0].dequantized()
    model.to(dtype)
    assert model[0].bias.dtype == dtype and model[0].weight.dtype == torch.int8
    assert torch.equal(model[0].scale, scale) and model[0].scale.dtype == torch.float32
    assert torch.equal(model[0].dequantized(), weight)
    assert model(torch.randn(2, 64, dtype=dtype, device=device)).dtype == dtype
    model.to("cpu").float()
    assert model[0].scale.device.type == "cpu" and torch.equal(model[0].scale, scale.cpu())


def linear_arguments(device):
    return torch.randn(2, 3, 8).to(device).requires_grad_(), int8(4, 8).to(device), torch.rand(4).to(device)


@devices
@pytest.mark.parametrize(
    ("op", "arguments"),
    [
        (npu.npu_int8_linear, lambda d: (*linear_arguments(d), torch.randn(4).to(d).requires_grad_())),
        (npu.npu_int8_linear, lambda d: (*linear_arguments(d), None, True)),
        (npu.npu_dynamic_quant, lambda d: (torch.randn(3, 8).to(d),)),
        (npu.custom_quantize, lambda d: (torch.randn(3, 8).to(d), torch.rand(8).to(d), torch.zeros(8).int().to(d))),
        (npu.custom_dequantize, lambda d: (int8(3, 8).to(d), torch.rand(8).to(d), torch.zeros(8).int().to(d))),
        (
            npu.custom_fake_quantize,
            lambda d: (torch.randn(3, 8).to(d), torch.rand(8).to(d), torch.zeros(8).int().to(d)),
        ),
    ],
    ids=["linear", "linear_dynamic", "dynamic_quant", "quantize", "dequantize", "fake_quantize"],
)
def test_opcheck(op, arguments, device):
    checks = ["test_schema", "test_faketensor", "test_aot_dispatch_dynamic"]
    checks += ["test_autograd_registration"] if device == "cpu" else []
    torch.library.opcheck(op.default, arguments(device), test_utils=checks)


# -- a model --


def small_qwen2():
    torch.manual_seed(0)
    sizes = {"vocab_size": 256, "hidden_size": 128, "num_hidden_layers": 3, "intermediate_size": 256}
    return small_models.qwen2_alone(max_position_embeddings=128, **sizes).eval()


# Of the largest logit. A weight is off by up to 1 / 254 of the largest in its row, an activation likewise.
BOUNDS = {"weight_only": 0.02, "dynamic": 0.03}


@pytest.mark.parametrize("mode", BOUNDS)
@torch.no_grad()
def test_qwen2_with_int8_layers_follows_the_float_model(mode):
    model = small_qwen2()
    tokens = torch.randint(0, 256, (2, 40))
    want = model(tokens).logits
    quantized = quantize_(copy.deepcopy(model).npu(), mode, lambda name, _: name != "lm_head")
    names = [name for name, layer in quantized.named_modules() if isinstance(layer, Int8Linear)]
    assert len(names) == 3 * 7 and "lm_head" not in names
    got = quantized(tokens.npu()).logits.cpu()
    error = (got - want).abs().max() / want.abs().max()
    assert 1e-4 < error.item() < BOUNDS[mode]
    generated = quantized.generate(tokens.npu(), max_new_tokens=8, do_sample=False, pad_token_id=0)
    assert generated.shape == (2, 48)


@torch.no_grad()
def test_a_quantised_model_is_saved_and_loaded_on_any_device():
    quantized = quantize_(small_qwen2().npu(), "dynamic")
    file = io.BytesIO()
    torch.save(quantized.state_dict(), file)
    file.seek(0)
    loaded = quantize_(small_qwen2(), "dynamic")
    for layer in loaded.modules():
        if isinstance(layer, Int8Linear):
            layer.weight.zero_()
    loaded.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    tokens = torch.randint(0, 256, (2, 10))
    torch.testing.assert_close(loaded(tokens).logits, quantized(tokens.npu()).logits.cpu(), rtol=1e-3, atol=2e-3)


def test_a_layer_that_stands_at_two_places_stays_one():
    shared = torch.nn.Linear(4, 4)
    model = torch.nn.Sequential(shared, torch.nn.ReLU(), torch.nn.Sequential(shared), torch.nn.Linear(4, 2))
    quantize_(model.npu(), "dynamic")
    assert model[0] is model[2][0] and {type(model[i]).__name__ for i in (0, 3)} == {"Int8Linear"}
    assert model(torch.randn(3, 4, device="npu")).shape == (3, 2)


# -- bad input --


@pytest.mark.parametrize("device", ["npu", "cpu", "meta"])
def test_bad_arguments_are_named(device):
    x, weight, scale = torch.ones(2, 8, device=device), int8(4, 8).to(device), torch.ones(4, device=device)
    for call, error, message in (
        (lambda: npu.npu_int8_linear(x.int(), weight, scale), TypeError, "expected input of a floating type, got Int"),
        (lambda: npu.npu_int8_linear(x, weight.float(), scale), TypeError, r"weight of type Char \(int8\), got Float"),
        (lambda: npu.npu_int8_linear(x[:, 1:], weight, scale), RuntimeError, r"got \[2, 7\] and \[4, 8\]"),
        (lambda: npu.npu_int8_linear(x, weight, scale[1:]), RuntimeError, r"expected scale of 4 elements.*got \[3\]"),
        (lambda: npu.npu_int8_linear(x, weight, scale, scale[1:]), RuntimeError, r"bias of 4 elements, got \[3\]"),
        (lambda: npu.custom_quantize(x, 0.0, 0), ValueError, "expected scale above 0, got 0"),
        (lambda: npu.custom_quantize(x, 1.0, 200), ValueError, "expected zero_point from -128 to 127, got 200"),
        (lambda: npu.custom_quantize(x.int(), 1.0, 0), TypeError, "expected input of a floating type, got Int"),
        (lambda: npu.custom_quantize(x, scale, scale.int()), RuntimeError, r"broadcast to input \[2, 8\], got \[4\]"),
        (lambda: npu.custom_dequantize(x, 1.0, 0), TypeError, "expected input of an integer type, got Float"),
        (lambda: npu.npu_dynamic_quant(weight), TypeError, "expected x of a floating type, got Char"),
    ):
        with pytest.raises(error, match=message):
            call()
    assert (torch.ones(4, device="npu") + 1).sum().item() == 8


def test_tensors_of_two_devices_and_unknown_modes_are_refused():
    x, weight, scale = torch.ones(2, 8), int8(4, 8).npu(), torch.ones(4).npu()
    with pytest.raises(RuntimeError, match="same device"):
        npu.npu_int8_linear(x, weight, scale)
    with pytest.raises(RuntimeError, match="same device"):
        npu.custom_quantize(x.npu(), torch.ones(8), torch.zeros(8).int())
    with pytest.raises(ValueError, match=r"expected mode in .*, got 'int4'"):
        quantize_(torch.nn.Sequential(torch.nn.Linear(2, 2)), "int4")
    with pytest.raises(ValueError, match="nn.Linear layers to replace, got none in ReLU"):
        quantize_(torch.nn.ReLU())
