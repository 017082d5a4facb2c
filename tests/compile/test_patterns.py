"""Patterns of torch.compile on npu: where they fire, where they must not, and that nothing changes but the speed."""

import copy

import pytest
import torch
import torch._dynamo
import torch._inductor.compile_fx  # brings torch_npu.compile.backend.inductor
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code
from torch.nn import functional as F

import torch_npu
from torch_npu.compile.graph import attention, patterns
from torch_npu.compile.graph.nodes import arguments, is_in_place, name_of

transformers = pytest.importorskip("transformers")

SIZES = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 96}
EAGER = {"attn_implementation": "eager"}


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    torch._dynamo.reset()
    counters.clear()
    torch_npu.fallback.reset()
    torch.manual_seed(0)
    for name in ("WITHOUT_GRADIENT", "CAUSAL_WITH_GRADIENT", "MANY", "FEW_KEYS"):  # also where it would not pay
        monkeypatch.setattr(attention, name, 0)
    with torch._inductor.config.patch(force_disable_caches=True):  # what is cached is not rewritten again
        yield


def fired() -> dict[str, int]:
    return {k.removeprefix("npu_"): v for k, v in counters["inductor"].items() if k.startswith("npu_")}


def rewritten(fn):
    """`fn` as the patterns leave it, run op by op: no code is generated."""

    def backend(gm, _):
        patterns.rewrite(gm.graph)
        gm.graph.lint()
        gm.recompile()
        seen.extend(gm.graph.nodes)
        return gm

    seen: list = []
    run = torch.compile(fn, backend=backend, fullgraph=True, dynamic=False)
    run.nodes = seen
    return run


def names(run) -> list[str]:
    return [name_of(n) for n in run.nodes]


def tokens():
    return torch.randint(100, (2, 16)).npu()


def bert(dropout=0.0):
    options = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": dropout}
    config = transformers.BertConfig(vocab_size=100, **options, **SIZES, **EAGER)
    padding = torch.arange(16)[None] < torch.tensor([[16], [11]])
    return transformers.BertModel(config, add_pooling_layer=False), {
        "input_ids": tokens(),
        "attention_mask": padding.long().npu(),
    }


def vit():
    config = transformers.ViTConfig(image_size=32, patch_size=8, hidden_dropout_prob=0.0, **SIZES, **EAGER)
    return transformers.ViTModel(config, add_pooling_layer=False), {"pixel_values": torch.randn(2, 3, 32, 32).npu()}


def t5():
    options = {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 1, "num_heads": 4, "dropout_rate": 0.0}
    return transformers.T5EncoderModel(transformers.T5Config(vocab_size=100, **options, **EAGER)), {
        "input_ids": tokens()
    }


def llama():
    config = transformers.LlamaConfig(vocab_size=100, num_key_value_heads=2, **SIZES, **EAGER)
    return transformers.LlamaModel(config), {"input_ids": tokens(), "use_cache": False}


def qwen2(**sizes):
    config = transformers.Qwen2Config(vocab_size=100, num_key_value_heads=2, **{**SIZES, **sizes})
    return transformers.Qwen2Model(config), {"input_ids": tokens(), "use_cache": False}


# What fires, and what attention is left with: its mask and is_causal. Whether there was a mask to take away is the
# library's choice, and differs between its versions.
MODELS = {
    "bert": (bert, {"attention": 1}, (True, False)),  # with padding, which no pattern may take for a constant
    "vit": (vit, {"attention": 1}, (False, False)),
    "t5": (t5, {"attention": 1}, (True, False)),
    "llama": (llama, {"attention": 1, "shared_heads": 1, "rotary": 2}, (False, True)),
    "qwen2": (qwen2, {"shared_heads": 1, "rotary": 2}, (False, True)),
}


def fired_but_mask() -> dict[str, int]:
    return {k: v for k, v in fired().items() if k != "mask"}


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    """Values and gradients stay what they are, in training and without gradients."""
    make, expected, attends = MODELS[name]
    model, inputs = make()
    model = model.npu().train()
    plain = copy.deepcopy(model)
    run = rewritten(model)
    got, want = run(**inputs)[0], plain(**inputs)[0]
    assert fired_but_mask() == expected
    assert "softmax" not in names(run)
    (attention,) = (n for n in run.nodes if name_of(n) == "scaled_dot_product_attention")
    _, _, _, mask, _, causal = arguments(attention, "query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    assert (mask is not None, bool(causal)) == attends
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    weights = torch.randn_like(want)
    (got * weights).sum().backward()
    (want * weights).sum().backward()
    for (parameter, p), q in zip(model.named_parameters(), plain.parameters()):
        if q.grad is not None:
            scale = q.grad.abs().max().clamp(min=1e-3)
            torch.testing.assert_close(p.grad / scale, q.grad / scale, rtol=1e-3, atol=1e-4, msg=parameter)
    counters.clear()
    with torch.no_grad():
        torch.testing.assert_close(run(**inputs)[0], want, rtol=1e-4, atol=1e-5)
    assert fired_but_mask() == expected
    assert not torch_npu.fallback.report()


def test_an_operator_called_by_its_method_is_that_operator():
    """As Dynamo of torch 2.12 writes comparisons of masks."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    written = {n: graph.call_method(n, (x, x)) for n in ("__eq__", "__and__", "__iadd__", "__setitem__", "__rsub__")}
    assert [name_of(n) for n in written.values()] == ["eq", "and_", "add", "setitem", "__rsub__"]
    assert [n for n, node in written.items() if is_in_place(node)] == ["__iadd__", "__setitem__"]


def test_dropout_drops_the_same_in_backward():
    """With dropout the result is still linear in the values, by the matrix that the gradient is transposed by."""

    def attention(q, k, v):
        return F.dropout((q @ k.transpose(-1, -2)).softmax(-1), 0.3) @ v

    q, k, v = (torch.randn(2, 4, 16, 8).npu().requires_grad_() for _ in range(3))
    out = torch.compile(attention)(q, k, v)
    assert fired() == {"attention": 1}
    assert not torch.equal(out, (q @ k.transpose(-1, -2)).softmax(-1) @ v)
    weights = torch.randn_like(out)
    (out * weights).sum().backward()
    torch.testing.assert_close((v.grad * v).sum(), (out * weights).sum(), rtol=1e-4, atol=1e-4)


def scores(q, k):
    return (q @ k.transpose(-1, -2)) * 0.25


BY_HAND = {
    "divided": lambda q, k, v: ((q @ k.mT) / 4.0).softmax(-1) @ v,
    "scaled before": lambda q, k, v: torch.matmul(F.softmax(torch.matmul(q * 0.25, k.transpose(2, 3)), dim=3), v),
    "in place": lambda q, k, v: torch.matmul(
        F.softmax((q @ k.mT).mul_(0.25).add_(v[:1, :1, :, 0]).float(), -1).type_as(q), v
    ),
    "masked_fill": lambda q, k, v: scores(q, k).masked_fill(v[:1, :1, :, 0] > 0, float("-inf")).softmax(-1) @ v,
    "lowest": lambda q, k, v: scores(q, k).masked_fill(q[..., :1] > 0, torch.finfo(q.dtype).min).softmax(-1) @ v,
    "three dimensions": lambda q, k, v: torch.bmm(torch.bmm(q[0], k[0].mT).softmax(-1), v[0]),
    "two biases": lambda q, k, v: (v[:1, :1, :, 0] + scores(q, k) + q[:, :1, :, :1]).softmax(-1) @ v,
}


@pytest.mark.parametrize("name", BY_HAND)
def test_attention_by_hand(name):
    q, k, v = (torch.randn(2, 4, 16, 16).npu() for _ in range(3))
    torch.testing.assert_close(rewritten(BY_HAND[name])(q, k, v), BY_HAND[name](q, k, v), rtol=1e-4, atol=1e-5)
    assert fired() == {"attention": 1}


def _writes_between(q, k, v):
    weights = scores(q, k).softmax(-1)
    v.mul_(2)
    q.zero_()
    return weights @ v


def _weights_are_wanted(q, k, v):
    weights = scores(q, k).softmax(-1)
    return weights @ v, weights


def _autocast(q, k, v):
    with torch.autocast("npu", dtype=torch.bfloat16):
        return scores(q, k).softmax(-1) @ v


NOT_ATTENTION = {
    "other dimension": lambda q, k, v: scores(q, k).softmax(-2) @ v,
    "scaled mask": lambda q, k, v: ((q @ k.mT + v[:, :1, :, :1]) * 0.25).softmax(-1) @ v,
    "scale of the device": lambda q, k, v: ((q @ k.mT) * v[0, 0, 0, 0]).softmax(-1) @ v,
    "high fill": lambda q, k, v: scores(q, k).masked_fill(k[..., 0, None] > 0, -1e4).softmax(-1) @ v,
    "shared keys": lambda q, k, v: ((q @ k[:, :1].mT) * 0.25).softmax(-1) @ v,
    "weights are wanted": _weights_are_wanted,
    "writes between": _writes_between,
    "autocast": _autocast,
}


@pytest.mark.parametrize("name", NOT_ATTENTION)
def test_what_only_looks_like_attention(name):
    q, k, v = (torch.randn(2, 4, 16, 16).npu() for _ in range(3))
    again = q.clone(), k.clone(), v.clone()
    got, want = rewritten(NOT_ATTENTION[name])(q, k, v), NOT_ATTENTION[name](*again)
    torch.testing.assert_close(got, want)
    assert not fired()


def test_attention_only_where_it_pays(monkeypatch):
    monkeypatch.undo()

    def attention(q):
        return scores(q, q).softmax(-1) @ q

    def causal(q):
        hidden = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).triu(1)
        return (scores(q, q) + torch.where(hidden, float("-inf"), 0.0)).softmax(-1) @ q

    def found(fn, keys, training):
        counters.clear()
        rewritten(fn)(torch.randn(1, 1, keys, 8).npu().requires_grad_(training))
        return fired()

    assert found(attention, 128, False) == {"attention": 1} and not found(attention, 127, False)
    assert not found(attention, 512, True) and found(attention, 1024, True) == {"attention": 1}
    assert found(causal, 256, True) == {"attention": 1, "mask": 1} and not found(causal, 255, True)


def positions(n):
    at = torch.arange(n, device="npu")
    return at[None, :], at[:, None]


def triangle(x):
    keys, queries = positions(16)
    return keys <= queries


MASKS = {
    "causal": (triangle, {"is_causal": True}),
    "causal floats": (lambda x: torch.where(triangle(x), 0.0, torch.finfo(torch.float).min)[None, None], True),
    "tril": (lambda x: torch.ones(16, 16, dtype=torch.bool, device="npu").tril(), True),
    "nothing hidden": (lambda x: torch.zeros(2, 1, 16, 16, device="npu"), False),
    "window": (lambda x: triangle(x) & (positions(16)[1] - positions(16)[0] < 4), None),
    "bias": (lambda x: torch.where(triangle(x), 0.0, -1.0), None),
    "from an input": (lambda x: triangle(x) & (x[0, 0, :, 0] > -9), None),
    "random": (lambda x: torch.rand(16, 16, device="npu") < 2, None),
    "written later": (lambda x: torch.ones(16, 16, dtype=torch.bool, device="npu").tril_(), None),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    mask, causal = MASKS[name]
    fn = lambda x: F.scaled_dot_product_attention(x, x + 1, x * 2, attn_mask=mask(x))  # noqa: E731
    x = torch.randn(2, 4, 16, 16).npu()
    run = rewritten(fn)
    torch.testing.assert_close(run(x), fn(x), rtol=1e-4, atol=1e-5)
    (call,) = [n for n in run.nodes if name_of(n) == "scaled_dot_product_attention"]
    if causal is None:
        assert not fired() and call.kwargs["attn_mask"] is not None
    else:
        assert fired() == {"mask": 1} and call.kwargs["attn_mask"] is None
        assert call.kwargs["is_causal"] == bool(causal)


REPEATED = {
    "expand": (lambda k: k[:, :, None].expand(2, 2, 3, 16, 8).reshape(2, 6, 16, 8), True),
    "unsqueeze": (lambda k: k.unsqueeze(2).expand(-1, -1, 3, -1, -1).flatten(1, 2), True),
    "repeat_interleave": (lambda k: k.repeat_interleave(3, dim=1), True),
    "repeat": (lambda k: k.repeat(1, 3, 1, 1), False),  # heads in another order
    "expand in front": (lambda k: k[:, None].expand(2, 3, 2, 16, 8).reshape(2, 6, 16, 8), False),
}


@pytest.mark.parametrize("name", REPEATED)
def test_repeated_heads(name):
    repeat, expected = REPEATED[name]
    fn = lambda q, k: F.scaled_dot_product_attention(q, repeat(k), repeat(k * 2), is_causal=True)  # noqa: E731
    q, k = torch.randn(2, 6, 16, 8).npu(), torch.randn(2, 2, 16, 8).npu()
    torch.testing.assert_close(rewritten(fn)(q, k), fn(q, k), rtol=1e-4, atol=1e-5)
    assert fired() == ({"shared_heads": 1} if expected else {})


def half(x):
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)


def chunked(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), -1)


def by_places(x):
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def _in_place(x, c, s):
    turned = half(x)
    x.mul_(2)
    return x * c + turned * s


def rotate(x, c, s):
    return x * c + half(x) * s


ROTATIONS = {
    "half": (rotate, True),
    "chunks": (lambda x, c, s: s * chunked(x) + c * x, True),
    "part of a row": (lambda x, c, s: rotate(x[..., :8], c[..., :8], s[..., :8]), True),
    "transposed": (lambda x, c, s: rotate(x.transpose(0, 1), c, s[0]), True),
    "neighbours": (lambda x, c, s: x * c + by_places(x) * s, False),
    "not in half": (lambda x, c, s: x * c + torch.cat((-x[..., 4:], x[..., :4]), -1) * s, False),
    "other sign": (lambda x, c, s: x * c + torch.cat((x[..., 8:], -x[..., :8]), -1) * s, False),
    "another tensor": (lambda x, c, s: x * c + half(s) * s, False),
    "writes between": (_in_place, False),
}


@pytest.mark.parametrize("name", ROTATIONS)
def test_rotary(name):
    fn, expected = ROTATIONS[name]
    x, c, s = (torch.randn(3, 3, 16).npu() for _ in range(3))
    x.requires_grad_(name != "writes between")
    want = fn(x.clone(), c, s)
    counters.clear()
    got = rewritten(fn)(x.clone(), c, s)
    assert fired() == ({"rotary": 1} if expected else {})
    torch.testing.assert_close(got, want)
    assert got.stride() == want.stride()
    if x.requires_grad:
        weights = torch.randn_like(want)
        (first,) = torch.autograd.grad((got * weights).sum(), x)
        (second,) = torch.autograd.grad((want * weights).sum(), x)
        torch.testing.assert_close(first, second)


def test_rotary_is_one_command_without_computed_addresses():
    def fn(x, c, s):
        return rotate(x.transpose(1, 2), c, s).sum()

    x, c, s = torch.randn(2, 8, 3, 16).npu().requires_grad_(), torch.randn(8, 16).npu(), torch.randn(8, 16).npu()
    want = torch.autograd.grad(fn(x, c, s), x)[0]

    def step():
        return torch.autograd.grad(torch.compile(lambda *a: fn(*a) * 1)(x, c, s), x)[0]

    got, codes = run_and_get_code(step)
    torch.testing.assert_close(got, want)
    code = "\n".join(codes)
    assert fired() == {"rotary": 1} and "load_at" not in code and "mask" not in code


def test_a_cat_inside_arithmetic_computes_no_addresses():
    a, b = torch.randn(10, 6), torch.randn(10, 3)
    got, codes = run_and_get_code(torch.compile(lambda a, b: torch.cat([a, b], 1).relu() + 1), a.npu(), b.npu())
    torch.testing.assert_close(got.cpu(), torch.cat([a, b], 1).relu() + 1)
    assert "mask" in codes[0] and "load_at" not in codes[0]


def test_a_layer_of_qwen2():
    """A layer is two norms, seven products with everything that follows them, two rotations, and attention."""
    model, inputs = qwen2(num_hidden_layers=2)
    model = model.npu().eval()
    with torch.no_grad():
        want = model(**inputs)[0]
        found, codes = run_and_get_code(torch_npu.compile.explain, model, **inputs)
        torch.testing.assert_close(torch.compile(model)(**inputs)[0], want, rtol=1e-4, atol=1e-4)
    ours = {n: c for n, c in found.compiled.counts.items() if n.startswith("npu_fused")}
    layers = 2
    # and once: sine and cosine, with a product of their own in torch 2.11. The embedding is stored by the first norm.
    positions = 1 if torch.__version__ >= (2, 12) else 3
    assert sum(ours.values()) == layers * (2 + 7 + 2) + positions + 1, ours
    assert found.compiled.total <= 0.6 * found.eager.total and found.compiled.total_bytes < found.eager.total_bytes
    assert not found.compiled.fallbacks and not found.breaks
    assert "load_at" not in codes[0].replace("load_at in_ptr1", "", 2)  # the embedding: its two loads
    products = [k for k in codes[0].split(" = npu_kernel(") if "'matmul'" in k]
    assert len(products) >= 4 and sum("acc" in k and "add" in k for k in products) >= 3  # biases and residuals
    assert any("sigmoid" in k or "exp" in k for k in products)  # SwiGLU
