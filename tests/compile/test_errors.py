"""What torch.compile meets in practice: each time something that works, and one sentence about what was done."""

import pytest
import torch
import torch._dynamo
from torch._dynamo.utils import counters

from torch_npu.compile.codegen.program import TooLarge

WORKS = """
import torch, torch_npu
f = lambda x: torch.softmax(x * 2, -1) @ x.t()  # two commands
x = torch.linspace(-1, 1, 60).reshape(6, 10)
torch.testing.assert_close(torch.compile(f)(x.npu()).cpu(), f(x))
print(sorted(torch_npu.fallback.report()))
"""


def said(finished) -> list[str]:
    """What a child process wrote beside its output, without the lines of source that Python's warnings quote."""
    assert finished.status == 0, finished.err
    return [line for line in finished.err.splitlines() if line and not line.startswith("  ")]


def test_control_flow_that_depends_on_data_breaks_the_graph():
    torch._dynamo.reset()
    counters.clear()

    def model(x):
        y = x * 2
        return y.sin() if y.sum() > 0 else y.cos()

    compiled = torch.compile(model)
    for x in (torch.ones(5), -torch.ones(5), torch.randn(5)):
        torch.testing.assert_close(compiled(x.npu()).cpu(), model(x))
    assert counters["stats"]["unique_graphs"] == 3  # up to the question, and what follows each answer
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="[Dd]ata-dependent"):
        torch.compile(model, fullgraph=True)(torch.ones(5).npu())


def test_no_compiler_is_needed(python, tmp_path):
    away = {"CXX": "/nowhere/c++", "CC": "/nowhere/cc", "PATH": str(tmp_path)}
    finished = python(WORKS, timeout=300, TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"), **away)
    assert finished.lines() == ["[]"] and said(finished) == []


BROKEN_TRITON = """
import subprocess
import torch.utils._triton
from torch._inductor.runtime import autotune_cache
asked = []
def build():
    asked.append(True)
    subprocess.check_call(["false"])
autotune_cache.has_triton = autotune_cache.has_triton_package = lambda: True
torch.utils._triton.triton_backend = build
"""


def test_a_compiler_that_fails_concerns_triton_only(python, tmp_path):
    """Where there is a GPU, PyTorch asks for Triton's hash, and Triton calls the C compiler."""
    for _ in range(2):  # compiled, and from the cache
        code = BROKEN_TRITON + WORKS + "print(bool(asked))"
        finished = python(code, timeout=300, TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
        assert finished.lines() == ["[]", "True"] and said(finished) == []


@pytest.mark.parametrize("folder", ["below a file", "read only"])
def test_a_cache_folder_that_takes_no_files_is_replaced(python, tmp_path, folder):
    (tmp_path / "file").touch()
    path = {"below a file": str(tmp_path / "file" / "cache"), "read only": "/proc/self"}[folder]
    finished = python(WORKS, timeout=300, TORCHINDUCTOR_CACHE_DIR=path)
    assert finished.lines() == ["[]"]
    (sentence,) = said(finished)
    assert sentence.startswith(
        "torch.compile caches nothing beyond this process: expected TORCHINDUCTOR_CACHE_DIR to be writable, got "
    )


def test_a_driver_that_refuses_programs(python):
    """The template has no commands: every kernel runs on the host, and one warning says so."""
    finished = python(WORKS, timeout=300, TORCH_NPU_DRIVER="template")
    assert finished.out.count("compiled::npu_fused_") == 2
    (sentence,) = said(finished)
    assert "compiled::npu_fused_" in sentence and "was refused by the driver, and ran on the CPU" in sentence


EXECUTED = """
import torch, torch_npu

f = torch.compile(lambda x, w, i: (torch.softmax(x @ w, -1) + x.sin()[i], x.clone().index_add_(0, i, w[:4])))
x, w, i = torch.randn(4, 16), torch.randn(16, 16), torch.tensor([3, 0, 0, 2])
torch.testing.assert_close([t.cpu() for t in f(x.npu(), w.npu(), i.npu())], list(f(x, w, i)))
try:
    f(x.npu(), w.npu(), i.npu() + 2)
    torch.npu.synchronize()
except IndexError as error:
    print("out of bounds" in str(error))
torch.testing.assert_close([t.cpu() for t in f(x.npu(), w.npu(), i.npu())], list(f(x, w, i)))
# The operand begins before its tensor, and what lies there may be another's.
image = torch.randn(2, 3, 9, 9)
pool = torch.compile(lambda x: torch.nn.functional.max_pool2d(x, 3, 2, 1, return_indices=True))
for copy in [image.npu() for _ in range(3)]:
    torch.testing.assert_close([t.cpu() for t in pool(copy)], list(pool(image)))
# Results that are not all of what they lie in, or that meet what is there.
torch._dynamo.reset()
base = torch.randn(6, 300)


def partly(base, x):
    base[:, ::3] = (x * 2).relu()
    base[1:3] += 1
    base[0, 50:60].fill_(3)
    return torch.scatter(base, 1, (x > 0).long(), x) + base.t().contiguous().t()


ours, x = base.npu(), base[:, 100:200].clone()
torch.testing.assert_close(torch.compile(partly)(ours, x.npu()).cpu(), partly(base, x))
ours.mul_(2)
torch.compile(lambda row, x: row.copy_(x.sin()))(ours[2], ours[3].clone())
base.mul_(2)
base[2] = base[3].sin()
torch.testing.assert_close(ours.cpu(), base)
# More than what is copied at a time.
large = torch.randn(300_001)
torch.testing.assert_close(torch.compile(lambda x: x.sin() + x.mean())(large.npu()).cpu(), large.sin() + large.mean())
# A result of no bytes.


def empty_rows(x, b):
    torch._check(x.shape[1] <= b.shape[1])
    total = x.sum(1, keepdim=True)
    b[:, : x.shape[1]].copy_(x * total)
    return total


empty = torch.compile(empty_rows, fullgraph=True)
for n in (1, 0):
    x, b = torch.randn(4, n), torch.arange(4.0).reshape(4, 1)
    ours = x.npu(), b.npu()
    torch._dynamo.decorators.mark_unbacked(ours[0], 1)
    torch.testing.assert_close(empty(*ours).cpu(), empty_rows(x, b))
    torch.testing.assert_close(ours[1].cpu(), b)
# Nothing of it is read: the host would compute it once and never again.
full = torch.compile(lambda x: torch.full_like(x, 3.0) * 2)
full(large.npu())
try:
    with torch.npu.graph(torch.npu.NPUGraph()):
        full(large.npu())
except RuntimeError as error:
    assert "while a graph is captured" in str(error), error
else:
    raise AssertionError("captured")
print(any(name.startswith("compiled::") for name in torch_npu.fallback.report()))
with open("/proc/self/maps") as maps:
    print("libnpu_cmodel" in maps.read())
"""


@pytest.mark.parametrize("executor", [None, "cmodel:threads=1", "reference", "template"])
def test_who_runs_what_a_driver_refuses(python, executor):
    """The C model, with options too; the reference; and that again where the second driver refuses as well."""
    finished = python(EXECUTED, timeout=300, TORCH_NPU_DRIVER="template", TORCH_NPU_HOST_EXECUTOR=executor)
    by_cmodel = executor is None or executor.startswith("cmodel")
    assert finished.lines() == ["True", "True", str(by_cmodel)]


def test_an_executor_that_does_not_exist_is_an_error(python):
    finished = python(EXECUTED, timeout=300, TORCH_NPU_DRIVER="template", TORCH_NPU_HOST_EXECUTOR="nowhere")
    assert finished.status != 0 and "TORCH_NPU_HOST_EXECUTOR: expected a driver's name" in finished.err


def test_a_command_that_fails_is_an_exception_and_the_next_one_works(python, broken_driver):
    code = """
    import torch
    f = torch.compile(lambda x: (x + 1).relu() * 2)
    x = torch.linspace(-1, 1, 60)
    print(f(x.npu()).cpu().equal((x + 1).relu() * 2))
    try:
        f(x.npu()).cpu()
    except torch.AcceleratorError as error:
        print("npu_fused_" in str(error))
    print(f(x.npu()).cpu().equal((x + 1).relu() * 2))
    """
    finished = python(code, timeout=300, TORCH_NPU_DRIVER=f"{broken_driver('failing')}:fail_at=2")
    assert finished.lines() == ["True", "True", "True"]


TRAINED = """
import torch, torch_npu
from torch._dynamo.utils import counters

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.GELU(), torch.nn.Linear(32, 5))
x, y = torch.randn(8, 16), torch.randint(5, (8,))


def gradients(run, x, y):
    model.zero_grad()
    loss = torch.nn.functional.cross_entropy(run(x), y)
    loss.backward()
    return [loss.detach().cpu(), *(p.grad.cpu().clone() for p in model.parameters())]


expected = gradients(model, x, y)
model.npu()
torch.testing.assert_close(gradients(torch.compile(model), x.npu(), y.npu()), expected)
print(counters["inductor"]["fxgraph_cache_miss"], counters["inductor"]["fxgraph_cache_hit"])
print(any(name.startswith("compiled::") for name in torch_npu.fallback.report()))
"""


def test_what_one_driver_compiled_runs_on_another(python, broken_driver, tmp_path):
    """On the C model, on a driver without commands and on one that runs every command by the book; compiled once."""
    drivers = {
        "cmodel": ["2 0", "False"],
        "template": ["0 2", "True"],
        f"{broken_driver('failing')}:fail_at=0": ["0 2", "False"],
    }
    for driver, expected in drivers.items():
        variables = {"TORCH_NPU_DRIVER": driver, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
        assert python(TRAINED, timeout=300, TORCH_NPU_FALLBACK="quiet", **variables).lines() == expected, driver


@pytest.mark.parametrize("product", [False, True])
def test_what_is_too_large_for_one_program_is_computed_apart(monkeypatch, product):
    """Commands behind the first one find what all of them read."""
    torch.compile(torch.sin)(torch.ones(1).npu())  # imports Inductor in its order
    from torch_npu.compile.codegen.kernel import NpuKernel

    make = NpuKernel.codegen_kernel

    def small(kernel, *args):
        if len(list(kernel.features.scheduler_nodes())) > 1:
            raise TooLarge("at most one")
        return make(kernel, *args)

    def fn(x, w):
        y = x.sin() @ w
        if product:
            return (y.relu() + 1).view(-1, 1) * y.cos().view(-1, 1), y.relu().exp()
        y = y.sum(-1, keepdim=True).expand(4, 5).contiguous()
        return y - y.sum(-1, keepdim=True)

    monkeypatch.setattr(NpuKernel, "codegen_kernel", small)
    x, w = torch.randn(4, 6), torch.randn(6, 5)
    torch.testing.assert_close(
        torch.compile(fn)(x.npu(), w.npu()), tuple(t.npu() for t in fn(x, w)) if product else fn(x, w).npu()
    )
