"""torch.nn.attention.flex_attention on npu, in eager and compiled mode, against products and a softmax on the CPU."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import torch_npu  # noqa: F401

WINDOW = 20


@pytest.fixture(params=["eager", "compiled"])
def attention(request):
    torch._dynamo.reset()
    return torch.compile(flex_attention, fullgraph=True) if request.param == "compiled" else flex_attention


def near(i, j):
    return (i >= j) & (i - j < WINDOW)


def heads(batch, count, length, size=16, grad=False):
    return torch.randn(batch, count, length, size, requires_grad=grad)


def dense(q, k, v, slope=None, window=True):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    row, column = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    if slope is not None:
        scores = scores + slope[:, None, None] * (row - column)
    if window:
        scores = scores.masked_fill(~near(row, column), -float("inf"))
    return scores.softmax(-1) @ v, scores


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_mask_bias_and_gradients(attention, kv_heads):
    inputs = heads(2, 4, 48, grad=True), *(heads(2, kv_heads, 48, grad=True) for _ in "kv")
    slope = torch.randn(4, requires_grad=True)
    expected, _ = dense(*inputs, slope)
    upstream = torch.randn_like(expected)
    gradients = torch.autograd.grad(expected, (*inputs, slope), upstream)
    q, k, v, s = (t.detach().npu().requires_grad_() for t in (*inputs, slope))
    mask = create_block_mask(lambda b, h, i, j: near(i, j), None, None, 48, 48, device="npu")
    out = attention(
        q, k, v, score_mod=lambda score, b, h, i, j: score + s[h] * (i - j), block_mask=mask, enable_gqa=True
    )
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-4)
    for got, wanted in zip(torch.autograd.grad(out, (q, k, v, s), upstream.npu()), gradients, strict=True):
        torch.testing.assert_close(got.cpu(), wanted, rtol=1e-3, atol=1e-3)


def test_log_sum_of_exponentials(attention):
    q, k, v = (heads(1, 2, 33) for _ in "qkv")
    expected, scores = dense(q, k, v, window=False)
    out, lse = attention(q.npu(), k.npu(), v.npu(), return_lse=True)
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(lse.cpu(), scores.logsumexp(-1), rtol=1e-4, atol=1e-4)


def test_autocast(attention):
    q, k, v = (heads(1, 2, 32).npu() for _ in "qkv")
    with torch.autocast("npu", torch.bfloat16):
        out = attention(q, k, v)
    assert out.dtype == torch.bfloat16
    expected, _ = dense(q.cpu(), k.cpu(), v.cpu(), window=False)
    torch.testing.assert_close(out.float().cpu(), expected, rtol=5e-2, atol=5e-2)


def test_gradient_in_autocast(attention):
    q, k, v = (heads(1, 2, 32, grad=True) for _ in "qkv")
    dense(q, k, v, window=False)[0].sum().backward()
    given = [t.detach().npu().requires_grad_() for t in (q, k, v)]
    with torch.autocast("npu", torch.bfloat16):
        attention(*given).sum().backward()
    torch.testing.assert_close(given[2].grad.cpu(), v.grad, rtol=5e-2, atol=5e-2)


def test_conditions_in_autocast():
    torch._dynamo.reset()
    weight = torch.randn(8, 8)
    x = torch.randn(4, 8)

    def choose(x, weight):
        return torch.cond(x.sum() > 0, lambda a: a @ weight, lambda a: (a @ weight) * 2, (x,))

    with torch.autocast("npu", torch.bfloat16):
        out = torch.compile(choose)(x.npu(), weight.npu())
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float().cpu(), choose(x, weight), rtol=5e-2, atol=5e-2)


def test_compiled_for_any_length_without_fallback():
    torch._dynamo.reset()
    torch_npu.fallback.reset()
    attention = torch.compile(flex_attention, dynamic=True)
    for length in (32, 48, 65):
        q, k, v = (heads(1, 2, length) for _ in "qkv")
        out = attention(q.npu(), k.npu(), v.npu())
        torch.testing.assert_close(out.cpu(), dense(q, k, v, window=False)[0], rtol=1e-4, atol=1e-4)
    assert not torch_npu.fallback.report()


def test_transformers_model():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch._dynamo.reset()
    torch.manual_seed(0)
    sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2)
    config = Qwen2Config(**sizes, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    tokens = torch.randint(64, (2, 24))
    losses = []
    for implementation, device in (("sdpa", "cpu"), ("flex_attention", "npu")):
        torch.manual_seed(0)
        config._attn_implementation = implementation
        model = Qwen2ForCausalLM(config).to(device)
        loss = model(tokens.to(device), labels=tokens.to(device)).loss
        loss.backward()
        losses.append((loss.detach().cpu(), model.model.layers[0].self_attn.q_proj.weight.grad.cpu()))
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-3, atol=1e-5)


def test_the_cpu_keeps_its_own_check():
    q = heads(1, 2, 32, grad=True)
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        flex_attention(q, q, q)
