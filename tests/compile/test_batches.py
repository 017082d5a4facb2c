"""torch.compile: attention over few keys is products and a softmax, and products take heads where they lie."""

import re

import pytest
import torch
import torch._dynamo
import torch._inductor.compile_fx  # brings torch_npu.compile.backend.inductor
import torch.utils.checkpoint
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code
from torch.nn import functional as F

from torch_npu.compile.graph import batches


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    with torch._inductor.config.patch(force_disable_caches=True):  # what is cached is not rewritten again
        yield


def heads(x, w):
    return (x @ w).view(*x.shape[:2], 2, 16).transpose(1, 2)


def attend(x, q, k, v, **options):
    out = F.scaled_dot_product_attention(heads(x, q), heads(x, k), heads(x, v), **options)
    return out.transpose(1, 2).reshape(x.shape)


def run(fn, shapes, grad=True):
    """Results and gradients, compiled and in float64 on the CPU; and the generated code, with comments left out."""
    wide = [torch.randn(s).mul(0.3).double().requires_grad_(grad) for s in shapes]
    narrow = [t.detach().float().npu().requires_grad_(grad) for t in wide]

    def step(fn, args):
        out = fn(*args)
        return [out, *torch.autograd.grad(out.mul(torch.arange(out.numel()).view(out.shape).to(out)).sum(), args)]

    if not grad:
        step = lambda fn, args: [fn(*args)]  # noqa: E731
    got, code = run_and_get_code(step, torch.compile(fn), narrow)
    for g, w in zip(got, step(fn, wide), strict=True):
        torch.testing.assert_close(g.cpu().double() / w.abs().max(), w / w.abs().max(), rtol=1e-4, atol=1e-5)
    return "".join(line for text in code for line in text.splitlines(True) if not line.lstrip().startswith("#"))


def kinds(code: str) -> list[str]:
    return re.findall(r"npu_kernel\('\w+', '(\w+)'", code)


SHAPES = [(3, 20, 32), (32, 32), (32, 32), (32, 32)]


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.5}], ids=str)
@pytest.mark.parametrize("grad", [True, False], ids=["training", "forward"])
def test_attention_over_few_keys(options, grad):
    code = run(lambda *args: attend(*args, **options), SHAPES, grad)
    assert counters["inductor"]["npu_short_attention"] == 1
    assert counters["inductor"]["npu_batches"] == (6 if grad else 2)
    assert "scaled_dot_product" not in code


def test_nothing_is_copied_and_nothing_scaled_by_itself():
    code = run(attend, SHAPES)
    assert "matmul" in kinds(code) and "map" not in kinds(code), code


def test_more_keys_than_queries_and_a_causal_mask():
    def fn(x, y, w):
        q, kv = heads(x, w), heads(y, w)
        return F.scaled_dot_product_attention(q, kv, kv, is_causal=True).transpose(1, 2).reshape(x.shape)

    run(fn, [(2, 17, 32), (2, 30, 32), (32, 32)])
    assert counters["inductor"]["npu_short_attention"] == 1


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("across", [True, False])
def test_heads_in_groups(causal, across):
    def fn(q, k, v):
        if across:
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

    shapes = [(2, 20, 6, 16), (2, 20, 2, 16), (2, 20, 2, 16)]
    if not across:
        shapes = [(b, h, n, d) for b, n, h, d in shapes]
    run(fn, shapes)
    assert counters["inductor"]["npu_short_attention"] == 1 and counters["inductor"]["npu_batches"] == 6
    args = [torch.randn(s).npu() for s in shapes]
    assert torch.compile(fn)(*args).stride() == fn(*args).stride()


def test_strides_of_the_result_are_those_of_the_op():
    def fn(q, k, v):
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).view(2, 20, 64) + 1

    q, k, v = (torch.randn(2, 20, 4, 16).npu().transpose(1, 2) for _ in range(3))
    torch.testing.assert_close(torch.compile(fn)(q, k, v), fn(q, k, v), rtol=1e-4, atol=1e-5)
    assert counters["inductor"]["npu_short_attention"] == 1


LEFT = {
    "a mask": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=v[:1, :1, :, :1] > 0),
    "dropout": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5),
    "half": lambda q, k, v: F.scaled_dot_product_attention(q.half(), k.half(), v.half()),
    "one query": lambda q, k, v: F.scaled_dot_product_attention(q[:, :, :1], k, v),
    "many keys": lambda q, k, v: F.scaled_dot_product_attention(q, k.repeat(1, 1, 8, 1), v.repeat(1, 1, 8, 1)),
}


@pytest.mark.parametrize("name", LEFT)
def test_attention_that_stays_one_op(name):
    q, k, v = (torch.randn(2, 4, 20, 16).npu() for _ in range(3))
    torch.compile(LEFT[name])(q, k, v)
    assert not counters["inductor"]["npu_short_attention"]


def scores(a, b):
    return a.transpose(1, 2) @ b.permute(0, 2, 3, 1)


def joined(a, b):
    return scores(a, b).transpose(1, 2).reshape(2, 7, -1)


PRODUCTS = {
    "heads": scores,
    "three batch dimensions": lambda a, b: a[:, None].transpose(2, 3) @ b[:, None].permute(0, 1, 3, 4, 2),
    "repeated": lambda a, b: scores(a, b[:, :, :1]),
    "rows outside": joined,
    "with an activation": lambda a, b: joined(a, b).tanh(),
    "turned": lambda a, b: scores(a, b).mT.exp(),
    "used twice": lambda a, b: scores(a, b).mT.reshape(2, -1) * scores(a, b).reshape(2, -1),
    "flat as well": lambda a, b: torch.bmm(a.transpose(1, 2).reshape(6, 7, 8), b.transpose(1, 2).reshape(6, 9, 8).mT),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_over_batches(name):
    run(PRODUCTS[name], [(2, 7, 3, 8), (2, 9, 3, 8)])
    assert counters["inductor"]["npu_batches"] > 0


def test_products_of_other_types():
    a, b = torch.randint(-9, 9, (2, 7, 3, 8)).npu(), torch.randint(-9, 9, (2, 9, 3, 8)).npu()
    for dtype in (torch.int32, torch.bfloat16, torch.float64):
        x, y = a.to(dtype), b.to(dtype)
        torch.testing.assert_close(torch.compile(joined)(x, y), joined(x, y))


def test_sizes_that_change():
    fn = torch.compile(joined, dynamic=True)
    for rows in (9, 11, 20):
        a, b = torch.randn(2, 7, 3, 8).npu(), torch.randn(2, rows, 3, 8).npu()
        torch.testing.assert_close(fn(a, b), joined(a, b), rtol=1e-4, atol=1e-5)


def test_the_op_outside_of_compiled_code():
    a, b = torch.randn(2, 3, 7, 8).npu(), torch.randn(2, 3, 8, 9).npu()
    plain, across = batches.op(a, b, False), batches.op(a, b, True)
    torch.testing.assert_close(plain, a @ b)
    torch.testing.assert_close(across, a @ b)
    assert plain.is_contiguous() and across.transpose(1, 2).is_contiguous()


def test_loops_beside_a_product_are_no_part_of_it():
    """Of the same number of points, but nothing of the product is read there."""
    code = run(lambda a, b, c: ((a @ b).sum(0) + (a * c).sum(0), torch.tanh(a * c))[1] @ b, [(16, 16)] * 3, grad=False)
    assert sorted(kinds(code)) == ["map", "matmul"]


def test_what_a_checkpoint_computes_again():
    """The products of the forward pass are in the backward pass, too: nothing but the inputs is kept."""
    code = run(lambda *args: torch.utils.checkpoint.checkpoint(attend, *args, use_reentrant=False), SHAPES)
    assert counters["inductor"]["npu_batches"] == 6
    assert code.count("def call(") == 2
    backward = code.split("def call(")[2]
    kept = backward.split(" = args")[0].split("\n")[-1]
    assert len(kept.split(",")) <= 5, kept


def changed_base(x, k, v):
    x = x * 1
    query = x.transpose(1, 2).reshape(2, 3, 20, 8)
    x.mul_(5)
    return F.scaled_dot_product_attention(query, k, v)


def bits(x, k, v):
    return F.scaled_dot_product_attention(x.view(torch.int32).view(torch.float32).view(2, 3, 20, 8), k, v)


def keywords(x, k, v):
    query = torch.transpose(input=x.view(2, 20, 3, 8), dim0=1, dim1=2)
    return F.scaled_dot_product_attention(query, k, v)


@pytest.mark.parametrize("attention", [changed_base, bits, keywords])
def test_a_query_is_scaled_as_it_was_made(attention):
    x, k, v = torch.randn(2, 20, 24), torch.randn(2, 3, 20, 8), torch.randn(2, 3, 20, 8)
    result = torch.compile(attention)(x.npu(), k.npu(), v.npu())
    torch.testing.assert_close(result.cpu(), attention(x, k, v))
    assert counters["inductor"]["npu_short_attention"] == 1


def test_a_query_made_without_gradients_has_none():
    def attention(x, k, v):
        with torch.no_grad():
            query = x.transpose(1, 2)
        return F.scaled_dot_product_attention(query, k, v)

    x = torch.randn(2, 20, 3, 8, device="npu", requires_grad=True)
    k, v = (torch.randn(2, 3, 20, 8, device="npu", requires_grad=True) for _ in range(2))
    torch.compile(attention)(x, k, v).sum().backward()
    assert x.grad is None and k.grad is not None


@pytest.mark.parametrize(
    "view",
    [
        lambda p: p.transpose(-1, -2),
        lambda p: p.transpose(1, 2),
        lambda p: p.transpose(1, 2) * 2,
        lambda p: p.transpose(1, 2).clone(),
        lambda p: p.permute(0, 2, 1, 3).as_strided((3, 4), (2, 5)),
        lambda p: p.transpose(-1, -2).as_strided((3, 4), (2, 5)),
    ],
)
def test_results_lie_as_in_eager_mode(view):
    a, b = torch.randn(2, 3, 20, 8), torch.randn(2, 3, 8, 5)
    expected, result = view(a @ b), torch.compile(lambda a, b: view(a @ b))(a.npu(), b.npu())
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result.cpu(), expected)


def test_a_copy_beside_the_view_is_a_copy():
    def both(a, b):
        view = (a @ b).transpose(1, 2)
        return view, view.contiguous()

    a, b = torch.randn(2, 3, 20, 8, device="npu"), torch.randn(2, 3, 8, 5, device="npu")
    view, copy = torch.compile(both)(a, b)
    copy.zero_()
    torch.testing.assert_close(view, (a @ b).transpose(1, 2))
