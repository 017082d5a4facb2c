"""npu_fusion_attention: layouts, windows, masks and packed sequences against scores written out in double precision."""

import pytest
import torch

import torch_npu

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 2e-2}
devices = pytest.mark.parametrize("device", ["npu", "cpu"])


def with_sink(query, key, value, sink, allowed):
    """One more score per head, whose probability nobody gets."""
    groups = query.shape[1] // key.shape[1]
    scores = query @ key.repeat_interleave(groups, 1).transpose(-2, -1) * 0.5
    scores = scores.masked_fill(~allowed, float("-inf"))
    scores = torch.cat((scores, sink.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)), -1)
    return scores.softmax(-1)[..., :-1] @ value.repeat_interleave(groups, 1)


def meaning(query, key, value, allowed=None, scale=1.0, pse=None):
    """[batch, heads, length, features]; `allowed` where a query may look. A row that sees nothing is zero."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.transpose(-2, -1)
    scores = (scores if pse is None else scores + pse) * scale
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
        return scores.softmax(-1).masked_fill(~allowed.any(-1, keepdim=True), 0) @ value
    return scores.softmax(-1) @ value


def band(queries, keys, low, high):
    d = torch.arange(keys) - torch.arange(queries).unsqueeze(1)
    return (d >= low) & (d <= high)


def prefixes(queries, keys, lengths):
    causal = band(queries, keys, -keys - queries, keys - queries)
    return torch.stack([(causal | (torch.arange(keys) < n)).unsqueeze(0) for n in lengths])


# Options, and where a query may look for (batch, queries, keys).
FORMS = {
    "all": ({}, lambda b, q, k: None),
    "causal": ({"sparse_mode": 2}, lambda b, q, k: band(q, k, -q - k, 0)),
    "causal_to_the_last_key": ({"sparse_mode": 3}, lambda b, q, k: band(q, k, -q - k, k - q)),
    "window": ({"pre_tockens": 7, "next_tockens": 0}, lambda b, q, k: band(q, k, -7, 0)),
    "band": ({"pre_tockens": 3, "next_tockens": 5}, lambda b, q, k: band(q, k, -3, 5)),
    "behind": ({"pre_tockens": 9, "next_tockens": -2}, lambda b, q, k: band(q, k, -9, -2)),
    "window_to_the_last_key": (
        {"pre_tockens": 6, "next_tockens": 1, "sparse_mode": 4},
        lambda b, q, k: band(q, k, k - q - 6, k - q + 1),
    ),
    "prefix": ({"prefix": [4, 11], "sparse_mode": 6}, lambda b, q, k: prefixes(q, k, (4, 11))),
}
# Batch, heads, heads of key, queries, keys, features of key, features of value.
SHAPES = {
    "square": (2, 2, 2, 13, 13, 8, 8),
    "more_keys": (2, 4, 2, 12, 20, 16, 16),
    "more_queries": (2, 3, 1, 20, 12, 8, 6),
    "several_tiles": (2, 2, 1, 700, 650, 16, 16),
}


def inputs(shape, dtype=torch.float32):
    torch.manual_seed(0)
    b, h, hk, q, k, d, dv = SHAPES[shape]
    sizes = (b, h, q, d), (b, hk, k, d), (b, hk, k, dv), (b, h, q, dv)
    return [torch.randn(s, dtype=torch.float64).to(dtype) for s in sizes]


def compare(device, tensors, grad, call, right, dtype):
    leaves = [t.detach().to(device).requires_grad_() for t in tensors]
    out = call(*leaves)
    got = [out, *torch.autograd.grad(out, leaves, grad.to(device))]
    wide = [t.detach().double().requires_grad_() for t in tensors]
    out = right(*wide)
    want = [out, *torch.autograd.grad(out, wide, grad.double())]
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == dtype and mine.device.type == device
        limit = TOLERANCE[dtype] * (1 + theirs.abs().max().item())
        torch.testing.assert_close(mine.detach().cpu().double(), theirs.detach(), rtol=0, atol=limit)


@devices
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_forms(device, form, shape):
    *tensors, grad = inputs(shape)
    options, allowed = FORMS[form]
    where = allowed(tensors[0].shape[0], tensors[0].shape[2], tensors[1].shape[2])
    torch_npu.fallback.reset()
    compare(
        device,
        tensors,
        grad,
        lambda q, k, v: torch_npu.npu_fusion_attention(q, k, v, q.shape[1], "BNSD", scale=0.3, **options)[0],
        lambda q, k, v: meaning(q, k, v, where, 0.3),
        torch.float32,
    )
    assert torch_npu.fallback.report() == {}


@devices
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_types(device, dtype):
    *tensors, grad = inputs("more_keys", dtype)
    compare(
        device,
        tensors,
        grad,
        lambda q, k, v: torch.ops.npu.npu_fusion_attention(q, k, v, 4, "BNSD", pre_tockens=5, sparse_mode=4)[0],
        lambda q, k, v: meaning(q, k, v, band(12, 20, 8 - 5, 100)),
        dtype,
    )


def arrange(x, layout):
    if layout == "BNSD":
        return x
    if layout == "BSND":
        return x.transpose(1, 2)
    return x.transpose(1, 2).flatten(2) if layout == "BSH" else x.permute(2, 0, 1, 3).flatten(2)


@devices
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
def test_layouts(device, layout):
    *tensors, grad = inputs("more_keys")
    compare(
        device,
        tensors,
        arrange(grad, layout),
        lambda *t: torch_npu.npu_fusion_attention(*(arrange(x, layout) for x in t), 4, layout, scale=0.2)[0],
        lambda *t: arrange(meaning(*t, scale=0.2), layout),
        torch.float32,
    )


@devices
def test_masks_padding_and_a_bias_with_its_gradient(device):
    *tensors, grad = inputs("more_keys")
    mask = torch.rand(2, 1, 12, 20) > 0.6
    padding = torch.arange(20) >= torch.tensor([[15], [18]])
    allowed = ~mask & ~padding[:, None, None] & band(12, 20, -30, 10)
    compare(
        device,
        [*tensors, torch.randn(1, 4, 12, 20)],
        grad,
        lambda q, k, v, pse: torch_npu.npu_fusion_attention(
            q, k, v, 4, "BNSD", pse, padding.to(device), mask.to(device), scale=0.4, next_tockens=10
        )[0],
        lambda q, k, v, pse: meaning(q, k, v, allowed, 0.4, pse),
        torch.float32,
    )
    q, k, v = (t.to(device) for t in tensors)
    flat = torch_npu.npu_fusion_attention(q, k, v, 4, "BNSD", atten_mask=mask[0, 0].to(torch.uint8).to(device))[0]
    torch.testing.assert_close(flat.cpu(), meaning(*tensors, ~mask[0, 0]), rtol=1e-4, atol=1e-5)


@devices
@pytest.mark.parametrize("mode", [0, 3, 4])
def test_packed_sequences(device, mode):
    torch.manual_seed(0)
    query, key, value, grad = torch.randn(9, 4, 8), torch.randn(11, 2, 8), torch.randn(11, 2, 8), torch.randn(9, 4, 8)

    def right(q, k, v):
        parts = []
        for q0, q1, k0, k1 in ((0, 3, 0, 5), (3, 7, 5, 9)):
            s, t = q1 - q0, k1 - k0
            where = {0: None, 3: band(s, t, -99, t - s), 4: band(s, t, t - s - 2, t - s)}[mode]
            one = [x.transpose(0, 1).unsqueeze(0) for x in (q[q0:q1], k[k0:k1], v[k0:k1])]
            parts.append(meaning(*one, where, 0.5).squeeze(0).transpose(0, 1))
        return torch.cat([*parts, 0 * q[7:]])  # behind the last sequence nothing is computed

    options = {"pre_tockens": 2, "next_tockens": 0} if mode == 4 else {}
    compare(
        device,
        [query, key, value],
        grad,
        lambda q, k, v: torch_npu.npu_fusion_attention(
            q,
            k,
            v,
            4,
            "TND",
            scale=0.5,
            actual_seq_qlen=(3, 7, 0),
            actual_seq_kvlen=(5, 9, 0),
            sparse_mode=mode,
            **options,
        )[0],
        right,
        torch.float32,
    )


@devices
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_sink_takes_its_share(device, dtype):
    query, key, value, grad = inputs("more_keys", dtype)
    sink = torch.tensor([-1.0, 0.0, 2.0, 300.0], dtype=dtype)
    allowed = band(12, 20, -5, -1)  # the first query sees nothing

    def call(q, k, v, s):
        window = {"pre_tockens": 5, "next_tockens": -1}
        return torch_npu.npu_fusion_attention(q, k, v, 4, "BNSD", scale=0.5, sink=s, **window)[0]

    compare(device, [query, key, value, sink], grad, call, lambda *t: with_sink(*t, allowed), dtype)
    if dtype == torch.float64:
        leaves = [t[:1, :, :6] if t.dim() == 4 else t for t in (query, key, value)]
        leaves = [t.to(device).requires_grad_() for t in (*leaves, sink)]
        assert torch.autograd.gradgradcheck(call, leaves, fast_mode=True)
        scores = query[0, 0] @ key[0, 0].T * 0.5
        _, high, total, *_ = torch_npu.npu_fusion_attention(
            *(t.to(device) for t in (query, key, value)), 4, "BNSD", scale=0.5, sink=sink.to(device)
        )
        rows = (high + total.log())[0, 0, :, 0].cpu()
        torch.testing.assert_close(rows, torch.cat((scores, torch.full((12, 1), -1.0)), -1).logsumexp(-1))


@devices
def test_logsumexp_is_differentiable(device):
    query, key, value, _ = inputs("more_keys", torch.float64)
    compare(
        device,
        [query, key],
        torch.ones(2, 4, 12, dtype=torch.float64),
        lambda q, k: torch.ops.npu.fusion_attention(
            q, k, value.to(device), None, None, None, None, 1.0, 0.0, 0, 0, -(2**40), 2**40
        )[1],
        lambda q, k: (q @ k.repeat_interleave(2, 1).transpose(-2, -1)).logsumexp(-1),
        torch.float64,
    )


@devices
def test_the_other_results(device):
    *tensors, _ = inputs("more_keys")
    out, top, total, none, seed, offset, drawn = torch_npu.npu_fusion_attention(
        *(t.to(device) for t in tensors), 4, "BNSD", scale=0.3
    )
    scores = tensors[0] @ tensors[1].repeat_interleave(2, 1).transpose(-2, -1) * 0.3
    assert top.shape == total.shape == (2, 4, 12, 8) and none.numel() == 0 and (seed, offset, drawn) == (0, 0, 0)
    torch.testing.assert_close(top[..., 0].cpu(), scores.amax(-1))
    torch.testing.assert_close(total[..., 7].cpu(), (scores - scores.amax(-1, keepdim=True)).exp().sum(-1))


@devices
def test_dropout_keeps_its_share_and_the_gradient_uses_the_same_draw(device):
    torch.manual_seed(0)
    zero = torch.zeros(2, 2, 64, 8, device=device)
    value = torch.eye(64, device=device).expand(2, 2, 64, 64).clone().requires_grad_()

    def attend():
        return torch_npu.npu_fusion_attention(zero, zero, value, 2, "BNSD", keep_prob=0.75)

    out, *_, seed, _, drawn = attend()
    kept = (out != 0).float()
    assert abs(kept.mean().item() - 0.75) < 0.03 and drawn == 2 * 2 * 64 * 64
    out.sum().backward()
    torch.testing.assert_close(value.grad[..., 0], (kept / 0.75 / 64).sum(2))
    assert attend()[4:6] != (seed, _)


@pytest.mark.parametrize("window", [None, 128])
def test_8k_tokens_in_memory_that_the_scores_would_exceed(window):
    heads, length, features = 2, 8192, 32
    tensors = [torch.randn(1, heads, length, features, device="npu", requires_grad=True) for _ in range(3)]
    torch.npu.synchronize()
    torch.npu.empty_cache()
    torch.npu.reset_peak_memory_stats()
    before = torch.npu.memory_allocated()
    options = {"sparse_mode": 3} if window is None else {"pre_tockens": window, "next_tockens": 0}
    out = torch_npu.npu_fusion_attention(*tensors, heads, "BNSD", scale=features**-0.5, **options)[0]
    out.sum().backward()
    torch.npu.synchronize()
    peak = torch.npu.max_memory_allocated() - before
    scores = heads * length * length * 4
    assert peak < scores / 16  # one matrix of scores is 512 MB; the tensors and their gradients are 14 MB
    rows = slice(length - 4, length)  # the last rows, by hand
    q, k, v = (t.detach().cpu().double() for t in tensors)
    where = band(length, length, -length if window is None else -window, 0)[rows]
    torch.testing.assert_close(
        out[:, :, rows].detach().cpu().double(),
        meaning(q[:, :, rows], k, v, where, features**-0.5),
        rtol=1e-4,
        atol=1e-5,
    )


def test_a_window_costs_by_its_width():
    x = torch.randn(1, 1, 4096, 16, device="npu")

    def products(**options):
        with torch_npu.native.counting():
            torch_npu.npu_fusion_attention(x, x, x, 1, "BNSD", **options)
        return sum(torch_npu.native_report().values())

    assert products(pre_tockens=64, next_tockens=0) < 40 * 6  # a few commands for each of 32 tiles
    torch.npu.synchronize()
    torch.npu.empty_cache()
    torch.npu.reset_peak_memory_stats()
    before = torch.npu.memory_allocated()
    torch_npu.npu_fusion_attention(x, x, x, 1, "BNSD", pre_tockens=64, next_tockens=0)
    assert torch.npu.max_memory_allocated() - before < 2 << 20


def test_second_derivatives_and_torch_func():
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 4, 3, dtype=torch.float64, device="npu", requires_grad=True) for _ in range(3))

    def attend(q, k, v):
        return torch_npu.npu_fusion_attention(q, k, v, 2, "BNSD", scale=0.5, sparse_mode=2)[0]

    assert torch.autograd.gradgradcheck(attend, (q, k, v), fast_mode=True)
    batch = [torch.stack([t.detach(), t.detach() * 0.5]) for t in (q, k, v)]
    got = torch.func.vmap(torch.func.grad(lambda *t: attend(*t).sin().sum()))(*batch)
    for i in range(2):
        leaf = batch[0][i].clone().requires_grad_()
        attend(leaf, batch[1][i], batch[2][i]).sin().sum().backward()
        torch.testing.assert_close(got[i], leaf.grad)


@devices
@pytest.mark.parametrize("form", ["all", "window", "causal_to_the_last_key"])
def test_opcheck(device, form):
    q, k, v = (t.to(device).requires_grad_() for t in inputs("more_keys")[:3])
    checks = ["test_schema", "test_faketensor", "test_aot_dispatch_dynamic"]
    checks += ["test_autograd_registration"] if device == "cpu" else []
    for op, arguments in (
        (torch.ops.npu.fusion_attention, (q, k, v, None, None, None, None, 0.3, 0.0, 0, 0, -5, 2)),
        (torch.ops.npu.npu_fusion_attention, (q, k, v, 4, "BNSD")),
    ):
        options = FORMS[form][0] if op is torch.ops.npu.npu_fusion_attention else {}
        torch.library.opcheck(op.default, arguments, options, test_utils=checks)


def test_autocast_runs_it_in_the_lower_precision():
    q, k, v = (t.npu().requires_grad_() for t in inputs("more_keys")[:3])
    with torch.autocast("npu", dtype=torch.bfloat16):
        out = torch_npu.npu_fusion_attention(q, k, v, 4, "BNSD")[0]
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert q.grad.dtype == torch.float32


def test_the_calls_that_transformers_makes():
    from transformers.integrations.npu_flash_attention import npu_flash_attn_func, npu_flash_attn_varlen_func

    torch.manual_seed(0)
    q, k, v = torch.randn(2, 6, 4, 8), torch.randn(2, 9, 2, 8), torch.randn(2, 9, 2, 8)
    got = npu_flash_attn_func(q.npu(), k.npu(), v.npu(), causal=True)
    want = meaning(*(t.transpose(1, 2) for t in (q, k, v)), band(6, 9, -99, 3), 8**-0.5).transpose(1, 2)
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
    ends = torch.tensor([0, 6, 12]).int(), torch.tensor([0, 9, 18]).int()
    flat = (t.flatten(0, 1).npu() for t in (q, k, v))
    got = npu_flash_attn_varlen_func(*flat, *(e.npu() for e in ends), causal=True)
    torch.testing.assert_close(got.cpu(), want.flatten(0, 1), rtol=1e-4, atol=1e-5)


def test_a_driver_without_commands_computes_the_same(python):
    code = """
        import torch, torch_npu
        torch.manual_seed(0)
        x = torch.randn(1, 2, 6, 8)
        got = []
        for device in ("cpu", "npu"):
            y = x.detach().to(device).requires_grad_()
            out = torch_npu.npu_fusion_attention(y, y, y, 2, "BNSD", pre_tockens=2, next_tockens=1)[0]
            out.sin().sum().backward()
            got += [out.detach().cpu(), y.grad.cpu()]
        torch.testing.assert_close(got[:2], got[2:])
    """
    assert python(code, TORCH_NPU_DRIVER="template", TORCH_NPU_FALLBACK="quiet").lines() == []


@pytest.mark.parametrize("device", ["npu", "cpu", "meta"])
def test_bad_arguments_are_named(device):
    x = torch.zeros(1, 2, 3, 4, device=device)
    attend = torch_npu.npu_fusion_attention
    for call, error, message in (
        (lambda: attend(x, x, x, 2, "XYZ"), ValueError, "expected input_layout .* got XYZ"),
        (lambda: attend(x, x, x, 2, "BSH"), RuntimeError, "expected 3 dimensions for input_layout BSH, got query"),
        (lambda: attend(x, x, x, 3, "BNSD"), RuntimeError, "expected head_num to be .*, got 3"),
        (lambda: attend(x, x, x, 2, "BNSD", sparse_mode=7), ValueError, "expected sparse_mode .*, got 7"),
        (
            lambda: attend(x, x, x, 2, "BNSD", sparse_mode=8),
            ValueError,
            "got 8; for parts of packed sequences, one call",
        ),
        (
            lambda: attend(x, x, x, 2, "BNSD", atten_mask=torch.zeros(3, 3, device=device)),
            TypeError,
            "expected atten_mask of type Bool or Byte, .* got Float; .* pse",
        ),
        (lambda: attend(x, x, x, 2, "BNSD", sink=x[0, 0, 0]), RuntimeError, r"expected sink of 2 .*, got \[4\]"),
        (lambda: attend(x, x, x, 2, "BNSD", keep_prob=0.0), ValueError, "expected keep_prob .*, got 0"),
        (lambda: attend(x, x, x, 2, "BNSD", sparse_mode=6), ValueError, "a prefix for each of the 1 batches, got 0"),
        (lambda: attend(x, x, x, 2, "BNSD", prefix=[9], sparse_mode=6), ValueError, "from 0 to 3 keys, got 9"),
        (lambda: attend(x.int(), x, x, 2, "BNSD"), TypeError, "expected query of a floating type, got Int"),
        (lambda: attend(x, x.half(), x, 2, "BNSD"), TypeError, "expected key of the type of query, Float, got Half"),
        (lambda: attend(x, x[..., 1:], x, 2, "BNSD"), RuntimeError, r"got query \[1, 2, 3, 4\], key \[1, 2, 3, 3\]"),
        (
            lambda: attend(x, x, x, 2, "BNSD", x),
            RuntimeError,
            r"expected pse that broadcasts .*3, 3\], got \[1, 2, 3, 4\]",
        ),
        (lambda: attend(x[0], x[0], x[0], 3, "TND"), ValueError, "expected actual_seq_qlen .* got None and None"),
    ):
        with pytest.raises(error, match=message):
            call()
    if device == "npu":
        with pytest.raises(RuntimeError, match="same device"):
            attend(x, x.cpu(), x, 2, "BNSD")
    assert (torch.ones(4, device="npu") + 1).sum().item() == 8
