"""torch.compile on npu: every kernel of a graph becomes one command, and results are those of the CPU."""

import re

import torch
import torch._dynamo
from torch.nn import functional as F

from tests.support import ROOT
from tests.support.compiled import check, to_cpu


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


def test_cpu_numbers_travel_as_immediates():
    a, b = torch.randn(10), torch.tensor(2.5)
    result = torch.compile(lambda a, b: a * b + 1)(a.npu(), b)
    torch.testing.assert_close(result.cpu(), a * b + 1)


def test_conditions_and_loops_stay_in_the_graph():
    def fn(x):
        x = torch.cond(x.sum() > 0, lambda t: t.sin() + 1, lambda t: t.cos() * 2, (x * 3,))
        start = torch.zeros((), dtype=torch.int64, device=x.device)
        return torch._higher_order_ops.while_loop(lambda k, t: k < 3, lambda k, t: (k + 1, t * 2), (start, x))[1]

    for sign in (1, -1):
        check(fn, sign * torch.rand(4, 6))


def test_kernels_beyond_the_limits_are_cut():
    inputs = [torch.randn(5, 3) for _ in range(80)]
    code = check(lambda *a: sum(x.sin() for x in a), *inputs)
    assert code.count(" = npu_kernel(") > 1


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


def test_the_page_for_users_runs():
    page = (ROOT / "docs" / "compile.md").read_text()
    names: dict = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), names)
    with torch.no_grad():
        torch.testing.assert_close(names["y"], names["model"](names["x"]))
