"""What torch.nn's transformer modules call for inference, and in training, against the CPU and without fallback."""

import copy

import pytest
import torch
from torch import nn

import torch_npu


def padding(batch, length):
    mask = torch.zeros(batch, length, dtype=torch.bool)
    mask[1, length - 2 :] = True
    return mask


MASKS = {
    "none": {},
    "padding": {"src_key_padding_mask": padding(2, 6)},
    "causal": {"mask": nn.Transformer.generate_square_subsequent_mask(6), "is_causal": True},
    "bool": {"mask": torch.ones(6, 6, dtype=torch.bool).triu(1)},
    "both": {"mask": torch.ones(6, 6, dtype=torch.bool).triu(1), "src_key_padding_mask": padding(2, 6)},
}


def on_npu(options):
    return {name: value.npu() if isinstance(value, torch.Tensor) else value for name, value in options.items()}


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"activation": "gelu"}], ids=["post", "pre", "gelu"])
def test_encoder_for_inference(masks, options):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, **options)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not options.get("norm_first")).eval()
    x = torch.randn(2, 6, 16)
    with torch.no_grad():
        want = model(x, **MASKS[masks])
        mine = copy.deepcopy(model).npu()
        torch_npu.fallback.reset()
        got = mine(x.npu(), **on_npu(MASKS[masks]))
        assert torch_npu.fallback.report() == {}
    seen = ~padding(2, 6) if "src_key_padding_mask" in MASKS[masks] else torch.ones(2, 6, dtype=torch.bool)
    torch.testing.assert_close(got.cpu()[seen], want[seen], rtol=1e-4, atol=1e-5)


def test_layer_takes_the_inference_path():
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval().npu()
    with torch.no_grad(), torch.profiler.profile() as profile:
        layer(torch.randn(2, 6, 16, device="npu"))
    assert "aten::_transformer_encoder_layer_fwd" in {event.key for event in profile.key_averages()}


@pytest.mark.parametrize("average", [True, False])
def test_multi_head_attention_returns_the_weights_of_the_cpu(average):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 6, 16)
    with torch.no_grad():
        want = module(x, x, x, key_padding_mask=padding(2, 6), average_attn_weights=average)
        y = x.npu()
        torch_npu.fallback.reset()
        got = module.npu()(y, y, y, key_padding_mask=padding(2, 6).npu(), average_attn_weights=average)
    assert torch_npu.fallback.report() == {}
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_transformer_trains(dropout):
    torch.manual_seed(0)
    model = nn.Transformer(16, 2, 1, 1, 32, dropout=dropout, batch_first=True)
    source, target = torch.randn(2, 5, 16), torch.randn(2, 4, 16)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    mine = copy.deepcopy(model).npu()
    torch_npu.fallback.reset()
    got = mine(source.npu(), target.npu(), tgt_mask=mask.npu(), tgt_is_causal=True).square().mean()
    got.backward()
    assert torch_npu.fallback.report() == {}
    if dropout:
        assert all(p.grad.isfinite().all().item() for p in mine.parameters())
        return
    want = model(source, target, tgt_mask=mask, tgt_is_causal=True).square().mean()
    want.backward()
    torch.testing.assert_close(got.detach().cpu(), want.detach())
    for p, q in zip(mine.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "kind, shape, dim", [(0, (5, 5), -1), (1, (2, 5), 3), (2, (2, 3, 5, 5), 2), (None, (2, 3, 5, 5), None)]
)
def test_masked_softmax(dtype, kind, shape, dim):
    torch.manual_seed(0)
    x, mask = torch.randn(2, 3, 5, 5).to(dtype), torch.rand(shape) > 0.6
    mask.view(-1)[:5] = True  # a row in which nothing takes part is NaN
    kind = 2 if kind is None else kind
    want = torch._masked_softmax(x, mask, 3 if dim == -1 else dim, kind)
    torch_npu.fallback.reset()
    got = torch._masked_softmax(x.npu(), mask.npu(), 3 if dim == -1 else dim, kind)
    assert torch_npu.fallback.report() == {}
    torch.testing.assert_close(got.cpu(), want, equal_nan=True)


def test_gradient_of_masked_softmax():
    torch.manual_seed(0)
    mask, grad = torch.rand(3, 7) > 0.5, torch.randn(3, 7)
    start, results = torch.randn(3, 7), []
    for device in ("cpu", "npu"):
        x = start.detach().to(device, copy=True).requires_grad_()
        torch._masked_softmax(x, mask.to(device), 1, 2).backward(grad.to(device))
        results.append(x.grad.cpu())
    torch.testing.assert_close(results[1], results[0])


def test_addmm_activation():
    torch.manual_seed(0)
    bias, a, b = torch.randn(5), torch.randn(3, 4), torch.randn(4, 5)
    for gelu in (False, True):
        want = torch._addmm_activation(bias, a, b, use_gelu=gelu)
        torch_npu.fallback.reset()
        got = torch._addmm_activation(bias.npu(), a.npu(), b.npu(), use_gelu=gelu)
        assert torch_npu.fallback.report() == {}
        torch.testing.assert_close(got.cpu(), want)
