"""The sanitizer: planted bugs are found at both their lines, and right programs are left alone."""

import contextlib
import inspect
import os
import re

import pytest
import torch
from torch.nn import functional as F

from tests.support import small_models
from tests.support.sanitizer_bugs import BUGS, NPU, TAKE, address_of, kernel
from torch_npu import sanitizer

pytestmark = pytest.mark.usefixtures("cmodel")


@pytest.fixture(autouse=True)
def _no_reports_left():
    yield
    sanitizer.clear()


def marked(function, mark: str) -> str:
    lines, first = inspect.getsourcelines(function)
    line = first + next(k for k, line in enumerate(lines) if line.rstrip().endswith(f"# {mark}"))
    return f"sanitizer_bugs.py:{line} ({function.__name__})"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_planted_bug(bug, capfd):
    kind, words = bug.__doc__.split(": ", 1)
    with sanitizer.sanitize(on_report="log") as found:
        with contextlib.suppress(torch.AcceleratorError):  # the driver refuses what leaves its own allocations
            bug()
        torch.npu.synchronize()
    assert [report.kind for report in found] == [kind], capfd.readouterr().err
    report = found[0]
    assert words in report.title
    assert marked(bug, "here") in report.place
    if "# other" in inspect.getsource(bug):
        assert marked(bug, "other") in report.text
    assert report.text in capfd.readouterr().err


# What the CPU does is told by PyTorch in a place where an exception would be lost: that is only printed.
RAISED = [bug for bug in BUGS if "of the CPU" not in bug.__doc__]


@pytest.mark.parametrize("bug", RAISED, ids=lambda bug: bug.__name__)
def test_planted_bug_raises(bug):
    kind, words = bug.__doc__.split(": ", 1)
    with sanitizer.sanitize(kind), pytest.raises(RuntimeError, match=re.escape(words)) as raised:
        bug()
    assert str(raised.value).startswith(f"torch_npu sanitizer: {kind}: ")


def test_bugs_of_each_kind():
    kinds = [bug.__doc__.split(":")[0] for bug in BUGS]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"memory": 20, "init": 16, "race": 15}


# -- right programs


def gathers_of_what_was_written():
    table = torch.empty(6, 4, device=NPU)
    table[1:3] = 1
    rows = torch.tensor([1, 2, 1], device=NPU)
    F.embedding(rows, table)
    table[rows], table.index_select(0, rows), torch.gather(table, 0, rows.view(3, 1))
    x, out = torch.empty(50, device=NPU), torch.empty(2, device=NPU)
    x[::7] = 1
    kernel("map", [2], TAKE, [(0, [1]), (0, [0]), (0, [1])])(out, x, torch.tensor([7, 49], device=NPU))
    return out.cpu()


def scatters_and_masks():
    x = torch.empty(10, device=NPU)
    x.index_fill_(0, torch.arange(10, device=NPU), 1.0)
    y = torch.empty(10, device=NPU)
    half = torch.arange(10, device=NPU) < 5
    y.masked_fill_(half, 2.0).masked_fill_(~half, 3.0)
    z = torch.zeros(10, device=NPU)
    z[half] = x[half]
    return (x + y + z).cpu(), torch.where(half, x, y).cpu(), torch.nonzero(half)


def borders():
    image = torch.randn(2, 3, 9, 9, device=NPU, requires_grad=True)
    out = F.max_pool2d(F.conv2d(image, torch.ones(4, 3, 3, 3, device=NPU), padding=2, stride=2), 3, 2, 1)
    (
        F.avg_pool2d(F.pad(out, (1, 2, 1, 2), "reflect"), 2).sum() + F.interpolate(image, scale_factor=1.5).sum()
    ).backward()
    whole = torch.empty(1, 1, 8, 8, device=NPU)
    whole[:, :, ::2, ::2] = 1  # the only places that a stride of 2 reads
    return F.conv2d(whole, torch.ones(1, 1, 1, 1, device=NPU), stride=2).cpu(), image.grad.cpu()


def copies_of_nothing_that_nobody_uses():
    x = torch.empty(4, 8, device=NPU)
    y = torch.stack([x.t().contiguous().t(), x.clone()]).to(torch.float64)
    y[0].fill_(1)
    y[1].copy_(y[0])
    return y.sum().item()


def gaps_between_elements():
    x = torch.empty(6, 8, device=NPU)
    x[:, :5] = 1
    part = x[:, :5]
    part.cpu(), x.t()[:5].cpu(), torch.linalg.eigvals(part[:5])
    part.copy_(torch.zeros(6, 5))
    part[:, ::2].copy_(torch.ones(6, 3, dtype=torch.float64))
    return part.sum().item()


def streams_in_order():
    x, side, event = torch.ones(100, device=NPU), torch.npu.Stream(), torch.npu.Event()
    event.record()
    with torch.npu.stream(side):
        event.wait()
        y = x + 1
        y.record_stream(torch.npu.current_stream())
    x.record_stream(side)
    del x
    torch.npu.current_stream().wait_stream(side)
    torch.ones(100, device=NPU).add_(y)
    side.synchronize()
    y.fill_(3)
    return y


def halves_on_two_streams():
    x = torch.empty(10, 10, device=NPU)
    streams = [torch.npu.Stream(), torch.npu.Stream()]
    for k, stream in enumerate(streams):
        with torch.npu.stream(stream):
            x[:, k::2].fill_(k)
    for stream in streams:
        stream.synchronize()
    return x.sum().item()


def uploads_ahead():
    side = torch.npu.Stream()
    for _ in range(3):
        batch = torch.randn(100).pin_memory()
        with torch.npu.stream(side):
            x = batch.to(NPU, non_blocking=True)
        torch.npu.current_stream().wait_stream(side)
        x.record_stream(torch.npu.current_stream())
        host = (x * 2).to("cpu", non_blocking=True)
        torch.npu.synchronize()
        host.add_(1)
        batch.zero_()


def graphs():
    x, graph = torch.ones(100, device=NPU), torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = (x * 2).relu().cumsum(0)
        z = y.view(10, 10) @ y.view(10, 10)
        del y
        for size in (3000, 700, 5000, 100, 3000, 20_000, 900):  # memory of the pool that is used again and again
            part = x.repeat(size // 100)
            z = z + part.flip(0)[size // 2 :].sum() + part[-1]
            del part
    for value in range(3):
        x.fill_(value)
        graph.replay()
        z.sum().item()


def memory_used_again():
    for size in (10, 1000, 300_000) * 20:
        x = torch.full((size,), 1.0, device=NPU)
        y = address_of(x).sum()
    torch.npu.empty_cache()
    return y.item()


CLEAN = [
    gathers_of_what_was_written,
    scatters_and_masks,
    borders,
    copies_of_nothing_that_nobody_uses,
    gaps_between_elements,
    streams_in_order,
    halves_on_two_streams,
    uploads_ahead,
    graphs,
    memory_used_again,
]


@pytest.mark.parametrize("program", CLEAN, ids=lambda program: program.__name__)
def test_right_program(program):
    with sanitizer.sanitize():
        program()


def step(name: str, compiled: bool) -> float:
    """Two steps of training."""
    torch.manual_seed(0)
    model, inputs, named = getattr(small_models, name)()
    model = model.to(NPU)
    named = {key: value.to(NPU) for key, value in named.items()}
    inputs = [value.to(NPU) for value in inputs]
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-3, fused=name == "bert")
    run = torch.compile(model) if compiled else model
    for _ in range(2):
        loss = run(*inputs, **named)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


@pytest.mark.parametrize("model", ["lenet", "resnet18", "bert", "qwen2_lora", "lenet-compiled"])
def test_models_run_clean(model):
    name, _, compiled = model.partition("-")
    with sanitizer.sanitize():
        watched = step(name, bool(compiled))
    assert watched == step(name, bool(compiled))


# -- the switch


def test_compiled_code_has_the_line_of_the_program(capfd):
    @torch.compile
    def double(x):
        return x * 2 + 1

    with sanitizer.sanitize(on_report="log") as found:
        double(torch.empty(7, device=NPU))
    assert found[0].op.startswith("npu_fused") and "test_sanitizer.py" in found[0].place


def test_checks_that_are_not_asked_for():
    with sanitizer.sanitize("memory", "race"):
        assert sanitizer.enabled() == ("memory", "race")
        torch.empty(10, device=NPU) + 1
    assert sanitizer.enabled() == () and sanitizer.reports() == []
    with pytest.raises(ValueError, match='expected some of memory, init and race.*got "speed"'):
        sanitizer.enable("speed")
    with pytest.raises(ValueError, match="expected on_report"):
        sanitizer.enable(on_report="ignore")


def test_tensors_from_before(capfd):
    x, other = torch.empty(10, device=NPU), torch.npu.Stream()
    with sanitizer.sanitize(on_report="log") as found:
        y = x + 1  # could have been written before
        with torch.npu.stream(other):
            x.sum()  # and its work counts as done
        other.synchronize()
        late = address_of(x)
        del x
        late.sum()
        assert [report.kind for report in sanitizer.reports()] == ["memory"]
    assert "was freed" in found[0].title and "allocated  before the sanitizer was enabled" in found[0].text
    del y


def test_the_same_is_said_once(capfd):
    with sanitizer.sanitize(on_report="log") as found:
        for _ in range(5):
            torch.empty(10, device=NPU) + 1
    assert [report.count for report in found] == [5]
    assert capfd.readouterr().err.count("torch_npu sanitizer: init: aten::add") == 1


def test_an_op_at_fault_is_not_run():
    x = torch.ones(4, device=NPU)
    with sanitizer.sanitize():
        with pytest.raises(RuntimeError, match="sanitizer"):
            x.add_(torch.empty(4, device=NPU))
        assert x.tolist() == [1, 1, 1, 1]
        x.add_(1)  # and the device goes on
    assert x.tolist() == [2, 2, 2, 2]


PROGRAM = """
import torch
x = torch.empty(3, device="npu")
x + 1
print("went on")
"""


def test_from_outside(python):
    logged = python(PROGRAM, TORCH_NPU_SANITIZE="memory,init,race", TORCH_NPU_SANITIZE_REPORT="log")
    assert (logged.status, logged.out) == (66, "went on\n")
    assert "init: aten::add reads bytes that nothing has written" in logged.err
    assert "<string>:4 (<module>): MAP aten::add on npu:0 stream 0" in logged.err
    assert logged.err.rstrip().splitlines()[-2] == "torch_npu sanitizer: 1 report"
    raised = python(PROGRAM, TORCH_NPU_SANITIZE="init")
    assert raised.status == 1 and raised.out == "" and "RuntimeError: torch_npu sanitizer: init" in raised.err


def test_without_reports_the_status_is_the_programs_own(python):
    assert python("import torch; torch.ones(3, device='npu').sum().item()", TORCH_NPU_SANITIZE="all").status == 0
    assert python("import torch, sys; sys.exit(5)", TORCH_NPU_SANITIZE="all").status == 5


def test_a_word_that_it_does_not_know_is_an_error(python):
    """Or else a check whose name is misspelt would pass."""
    wrong = python("import torch; print('went on')", TORCH_NPU_SANITIZE="memory,Race")
    assert wrong.status == 1 and wrong.out == ""
    assert (
        'TORCH_NPU_SANITIZE: expected some of memory, init and race, separated by commas, or all, got "Race"'
        in wrong.err
    )
    wrong = python("import torch_npu; print('went on')", TORCH_NPU_SANITIZE="all", TORCH_NPU_SANITIZE_REPORT="print")
    assert wrong.status == 1 and wrong.out == ""
    assert 'TORCH_NPU_SANITIZE_REPORT: expected raise or log, got "print"' in wrong.err


OFF_AND_ON = """
import threading, time, torch
from torch_npu import sanitizer

sanitizer.enable()
x, streams = torch.ones(1000, 1000, device="npu"), [torch.npu.Stream() for _ in range(8)]
torch.npu.synchronize()
for stream in streams:
    with torch.npu.stream(stream):
        torch.ones(10, device="npu")
started = threading.Event()

def wait_for_products():
    with torch.npu.stream(streams[-1]):
        y = x
        for _ in range(20):
            y = y @ x
        started.set()
        y.cpu()

thread = threading.Thread(target=wait_for_products)
thread.start()
started.wait()
time.sleep(0.1)
assert thread.is_alive()  # in the driver's copy_to_host
sanitizer.disable()
sanitizer.enable()
thread.join()
print("done")
"""


def test_off_and_on_while_a_thread_waits_for_the_driver(python):
    run = python(OFF_AND_ON, OMP_NUM_THREADS="1")
    assert (run.status, run.out) == (0, "done\n"), run.err


def test_graphs_from_before():
    x, graph = torch.ones(100, device=NPU), torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        z = x.sum()
        for size in (3000, 700, 5000, 100, 3000, 20_000, 900):
            part = x.repeat(size // 100)
            z = z + part.flip(0)[size // 2 :].sum() + part[-1]
            del part
    with sanitizer.sanitize():
        graph.replay()
        assert z.item() > 100


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_arguments_that_have_no_sizes(capfd):
    pinned = torch.ones(10).pin_memory()
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    with sanitizer.sanitize(on_report="log") as found:
        pinned.to(NPU, non_blocking=True)
        nested + 1
        torch.empty(3, device=NPU) + 1
    assert "aten::empty (an allocation)" in found[0].text, found[0].text  # and not the op before
    assert "Exception in RecordFunction" not in capfd.readouterr().err


def test_a_large_tensor_waits_too():
    with sanitizer.sanitize("memory"):
        x = torch.empty(20_000_000, device=NPU)
        late = address_of(x)
        del x
        other = torch.empty(20_000_000, device=NPU)
        with pytest.raises(RuntimeError, match="was freed"):
            late.sum()
    del other


def test_a_forked_child_is_left_alone(capfd):
    pinned = torch.ones(10).pin_memory()
    with sanitizer.sanitize(on_report="log"):
        pinned.to(NPU, non_blocking=True)
        child = os.fork()
        if child == 0:
            pinned.fill_(2)
            os._exit(len(sanitizer.reports()))
        assert os.waitpid(child, 0)[1] == 0
        torch.npu.synchronize()
    assert "sanitizer" not in capfd.readouterr().err
