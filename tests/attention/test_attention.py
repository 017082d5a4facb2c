"""scaled_dot_product_attention on npu: the tiled form against PyTorch's math form in double precision on the CPU."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

import torch_npu

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}

# Batch, heads, heads of key, queries, keys, features of key, features of value.
SHAPES = {
    "square": (2, 3, 3, 7, 7, 8, 8),
    "few_keys": (2, 2, 2, 33, 20, 16, 16),
    "grouped": (1, 4, 2, 5, 9, 8, 6),
    "one_key_head": (2, 6, 1, 30, 21, 16, 16),
    "one_query": (2, 8, 8, 1, 40, 16, 16),
    "several_tiles": (1, 2, 2, 600, 700, 32, 32),
    "tiles_of_groups": (2, 6, 2, 300, 300, 8, 8),
}
MASKS = {
    "none": lambda *shape: None,
    "bool": lambda b, h, q, k: torch.rand(b, 1, q, k) > 0.3,
    "bool_2d": lambda b, h, q, k: torch.rand(q, k) > 0.3,
    "float": lambda b, h, q, k: torch.randn(1, h, q, k),
    "float_row": lambda b, h, q, k: torch.randn(1, k),
    "empty_rows": lambda b, h, q, k: (torch.rand(q, k) > 0.3) & (torch.arange(q) % 2 == 1).unsqueeze(1),
}


def inputs(shape, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    b, h, hk, q, k, d, dv = SHAPES[shape]
    query = torch.randn(b, q, h, d).transpose(1, 2)  # as models have it: heads behind the sequence
    tensors = [query, torch.randn(b, hk, k, d), torch.randn(b, hk, k, dv), torch.randn(b, h, q, dv)]
    return [t.to(dtype) for t in tensors], h != hk


def both(query, key, value, grad, mask=None, grads_of_mask=False, **options):
    """Output and gradients: in double precision by the math form on the CPU, and on npu."""
    results = []
    for device in ("cpu", "npu"):

        def place(x, device=device):
            x = x.detach()
            return (x.double() if x.is_floating_point() and device == "cpu" else x).to(device)

        leaves = [place(x).requires_grad_() for x in (query, key, value)]
        own = None if mask is None else place(mask)
        if grads_of_mask:
            leaves.append(own.requires_grad_())
        with sdpa_kernel(SDPBackend.MATH if device == "cpu" else SDPBackend.OVERRIDEABLE):
            out = sdpa(*leaves[:3], own, **options)
        results.append([out, *torch.autograd.grad(out, leaves, place(grad))])
    return results


def assert_all_close(got, want, dtype):
    for mine, right in zip(got, want, strict=True):
        assert mine.dtype == dtype and mine.device.type == "npu"
        limit = TOLERANCE[dtype] * (1 + right.abs().max().item())
        torch.testing.assert_close(mine.detach().cpu().double(), right.detach(), rtol=0, atol=limit)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mask", MASKS)
def test_output_and_gradients_are_those_of_the_math_form(shape, mask):
    (query, key, value, grad), grouped = inputs(shape)
    b, h, q, _ = query.shape
    torch_npu.fallback.reset()
    given = MASKS[mask](b, h, q, key.shape[2])
    want, got = both(query, key, value, grad, given, grads_of_mask=mask.startswith("float"), enable_gqa=grouped)
    assert torch_npu.fallback.report() == {}
    assert_all_close(got, want, torch.float32)


@pytest.mark.parametrize("shape", SHAPES)
def test_causal(shape):
    (query, key, value, grad), grouped = inputs(shape)
    want, got = both(query, key, value, grad, is_causal=True, enable_gqa=grouped)
    assert_all_close(got, want, torch.float32)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}, {"scale": -0.5}])
def test_types_and_scales(dtype, options):
    (query, key, value, grad), _ = inputs("several_tiles" if dtype == torch.bfloat16 else "few_keys", dtype)
    want, got = both(query, key, value, grad, **options)
    assert_all_close(got, want, dtype)


def test_a_row_that_sees_nothing_is_zero_and_has_no_gradient():
    (query, key, value, grad), _ = inputs("square")
    mask = torch.ones(7, 7, dtype=torch.bool)
    mask[3] = False
    _, (out, grad_q, *_) = both(query, key, value, grad, mask)
    assert out[:, :, 3].abs().max().item() == 0 and grad_q[:, :, 3].abs().max().item() == 0


def test_no_number_of_the_softmax_overflows():
    (query, key, value, grad), _ = inputs("square")
    want, got = both(query * 100, key * 100, value, grad)
    assert_all_close(got[:1], want[:1], torch.float32)
    assert all(g.isfinite().all().item() for g in got)


def test_output_has_the_layout_of_the_query():
    (query, key, value, _), _ = inputs("square")
    assert not query.is_contiguous()
    out = sdpa(query.npu(), key.npu(), value.npu())
    assert out.stride() == sdpa(query, key, value).stride() == query.stride()
    (query, key, value, _), _ = inputs("grouped")
    out = sdpa(query.npu(), key.npu(), value.npu(), enable_gqa=True)  # values have other features than queries
    assert out.transpose(1, 2).is_contiguous()


def test_memory_grows_with_the_length_and_not_with_its_square():
    def peak(length):
        x = torch.randn(1, 4, length, 16, device="npu", requires_grad=True)
        torch.npu.synchronize()
        torch.npu.empty_cache()
        torch.npu.reset_peak_memory_stats()
        before = torch.npu.memory_allocated()
        sdpa(x, x, x, is_causal=True).sum().backward()
        return torch.npu.max_memory_allocated() - before

    peak(64)
    short, long = peak(2048), peak(4096)
    assert long < 2.5 * short
    assert long < 4 * 4096 * 4096 * 4 / 8  # the scores alone would be eight times as much


# -- dropout --


def test_dropout_drops_the_share_that_was_asked_for():
    torch.manual_seed(0)
    query = torch.zeros(2, 4, 64, 8, device="npu")
    value = torch.eye(64, device="npu").expand(2, 4, 64, 64)
    weights = sdpa(query, query, value, dropout_p=0.25) * 64  # every score is 1 / 64
    kept = weights != 0
    assert abs(kept.float().mean().item() - 0.75) < 0.02
    torch.testing.assert_close(weights[kept], torch.full_like(weights[kept], 1 / 0.75))
    torch.testing.assert_close(weights.mean().item(), 1.0, rtol=0.03, atol=0)
    assert not torch.equal(kept[0, 0], kept[0, 1]) and not torch.equal(kept[0], kept[1])
    assert sdpa(query, query, value, dropout_p=1.0).abs().max().item() == 0


def test_dropout_follows_the_seed_and_not_the_tiles():
    def weights(queries, keys, heads=2):
        torch.manual_seed(5)
        query = torch.zeros(1, heads, queries, 8, device="npu")
        value = torch.eye(keys, device="npu").expand(1, heads, keys, keys)
        return sdpa(query, torch.zeros(1, heads, keys, 8, device="npu"), value, dropout_p=0.5) != 0

    assert torch.equal(weights(700, 300), weights(700, 300))
    # The first queries of the first head draw the same numbers, whichever tile they are in.
    assert torch.equal(weights(700, 300)[:, :1, :20], weights(20, 300)[:, :1])


@pytest.mark.parametrize("shape", ["square", "several_tiles", "grouped"])
def test_gradients_with_dropout_use_the_mask_of_the_forward(shape):
    """The mask is read from a forward with unit values, then put into the math form."""
    (query, key, value, grad), grouped = inputs(shape, torch.float64)
    p, keys = 0.3, key.shape[2]
    groups = query.shape[1] // key.shape[1]
    unit = torch.eye(keys, dtype=torch.float64, device="npu").expand(*key.shape[:2], keys, keys)
    torch.manual_seed(3)
    kept = (sdpa(query.npu(), key.npu(), unit, dropout_p=p, enable_gqa=grouped) != 0).cpu()
    torch.manual_seed(3)
    leaves = [x.npu().requires_grad_() for x in (query, key, value)]
    out = sdpa(*leaves, dropout_p=p, enable_gqa=grouped)
    got = [out, *torch.autograd.grad(out, leaves, grad.npu())]

    wide = [x.clone().requires_grad_() for x in (query, key, value)]
    k, v = (x.repeat_interleave(groups, 1) for x in wide[1:])
    scores = (wide[0] @ k.transpose(-2, -1)) / query.shape[-1] ** 0.5
    right = (scores.softmax(-1) * kept / (1 - p)) @ v
    want = [right, *torch.autograd.grad(right, wide, grad)]
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine.detach().cpu(), theirs.detach(), rtol=1e-8, atol=1e-8)


# -- which form is taken --


def commands(function):
    with torch_npu.native.counting():
        function()
    return set(torch_npu.native_report())


def test_sdpa_kernel_chooses_the_form():
    x = torch.randn(1, 2, 8, 4, device="npu")
    fused = "aten::_scaled_dot_product_fused_attention_overrideable"
    for backend in (SDPBackend.OVERRIDEABLE, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(backend):
            assert fused in commands(lambda: sdpa(x, x, x))
    with sdpa_kernel(SDPBackend.MATH):
        assert fused not in commands(lambda: sdpa(x, x, x))
    with (
        sdpa_kernel(SDPBackend.OVERRIDEABLE),
        pytest.raises(RuntimeError, match="no allowed backend takes these inputs"),
    ):
        sdpa(x[0], x[0], x[0])  # three dimensions
    assert fused not in commands(lambda: sdpa(x[0], x[0], x[0]))


def test_multi_head_attention_trains_as_on_the_cpu():
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    x = torch.randn(2, 6, 16)
    results = []
    for device in ("cpu", "npu"):
        own = torch.nn.MultiheadAttention(16, 4, batch_first=True)
        own.load_state_dict(module.state_dict())
        own.to(device)
        y = x.detach().to(device).requires_grad_()
        out, _ = own(
            y, y, y, need_weights=False, is_causal=True, attn_mask=torch.ones(6, 6, dtype=torch.bool).triu(1).to(device)
        )
        out.sum().backward()
        results.append((out.detach().cpu(), y.grad.cpu(), own.in_proj_weight.grad.cpu()))
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(theirs, mine)
