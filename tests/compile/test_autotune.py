"""torch.compile(mode="max-autotune"): the driver's choices are measured once, the best is used and remembered."""

import json
import logging

import pytest
import torch
import torch._dynamo
from torch._inductor import config
from torch._inductor.utils import run_and_get_code

from torch_npu.compile.run import autotune
from torch_npu.compile.run.runtime import npu_kernel


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    torch._dynamo.reset()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(autotune, "BATCH_MS", 0.01)
    yield tmp_path / "npu_autotune"
    torch._dynamo.reset()


@pytest.fixture
def measured(monkeypatch):
    """Names of the kernels that were measured."""
    names = []
    original = autotune.measure

    def measure(kernel, *rest):
        names.append(kernel.name)
        return original(kernel, *rest)

    monkeypatch.setattr(autotune, "measure", measure)
    return names


def layer(x, w, b):
    return torch.nn.functional.gelu(x @ w.t() + b)


def inputs(rows=96):
    torch.manual_seed(0)
    return torch.randn(rows, 64), torch.randn(128, 64), torch.randn(128)


# A driver of tests/drivers that takes 2 ms for what its choice 5 does at once, and writes down what it was asked for.
CHOOSING = """
import torch, torch_npu
x, w = torch.randn(24, 16), torch.randn(16, 8)
f = torch.compile(lambda x, w: torch.softmax((x @ w).relu(), -1).cumsum(0) + 1, mode="max-autotune-no-cudagraphs")
for _ in range(3):
    y = f(x.npu(), w.npu())
torch.testing.assert_close(y.cpu(), torch.softmax((x @ w).relu(), -1).cumsum(0) + 1)
"""


def test_the_fastest_choice_is_used_and_a_second_process_measures_nothing(python, broken_driver, tmp_path):
    asked = []
    for k in range(2):
        log = tmp_path / f"asked{k}"
        driver = f"{broken_driver('choosing')}:log={log}"
        python(CHOOSING, TORCH_NPU_DRIVER=driver, TORCHINDUCTOR_CACHE_DIR=str(tmp_path)).lines()
        asked.append([line.split() for line in log.read_text().splitlines() if line.startswith("npu_")])
    first, second = asked
    names = {name for name, _ in first}
    assert any("mm" in n for n in names) and len(names) == 2, names
    for name in names:
        assert {c for n, c in first if n == name} == {"0", "3", "5", "6"}
        assert [c for n, c in first if n == name][-3:] == ["5"] * 3
        assert [c for n, c in second if n == name] == ["5"] * 3
    (file,) = (tmp_path / "npu_autotune").iterdir()
    kept = json.loads(file.read_text())
    assert file.name.startswith("choosing-") and kept["driver"]["version"] == "1.0"
    assert {r["choice"] for r in kept["best"].values()} == {"way=fast"}


@pytest.mark.parametrize("mode", ["max-autotune", "max-autotune-no-cudagraphs"])
def test_results_are_those_of_other_modes(mode, measured, cmodel):
    args = inputs()
    f = torch.compile(layer, mode=mode)
    for _ in range(4):  # runs and measures, is captured, is replayed
        result = f(*(a.npu() for a in args)).cpu()
        torch.testing.assert_close(result, layer(*args), rtol=2e-5, atol=2e-5)
    assert len(measured) == 1


def test_without_it_nothing_is_measured(measured):
    torch.compile(layer)(*(a.npu() for a in inputs()))
    assert not measured


def test_settings_say_what_is_tuned():
    def f(x, w):
        return (x @ w.t()).sum(-1)

    for names, products, others in (
        ((), 0, 0),
        (("max_autotune_gemm",), 1, 0),
        (("max_autotune_pointwise",), 0, 1),
        (("max_autotune",), 1, 1),
    ):
        torch._dynamo.reset()
        with config.patch(dict.fromkeys(names, True)):
            _, (code,) = run_and_get_code(torch.compile(f), *(a.npu() for a in inputs()[:2]))
        lines = [line for line in code.splitlines() if "npu_kernel('" in line]
        tuned = [" 'matmul'," in line for line in lines if "tune=True" in line]
        assert len(lines) == 2 and tuned.count(True) == products and tuned.count(False) == others, code


def test_sizes_that_change_are_tuned_once(measured, cmodel):
    f = torch.compile(layer, dynamic=True, mode="max-autotune-no-cudagraphs")
    for rows in (96, 40, 7, 300):
        args = inputs(rows)
        torch.testing.assert_close(f(*(a.npu() for a in args)).cpu(), layer(*args), rtol=2e-5, atol=2e-5)
    assert len(measured) == 1


def test_measuring_writes_nothing(measured, cmodel):
    x = torch.randn(300, 100)
    ours = x.npu()
    torch.compile(lambda x: x.mul_(0.5).add_(1), mode="max-autotune-no-cudagraphs")(ours)
    assert measured
    torch.testing.assert_close(ours.cpu(), x * 0.5 + 1)


ADD_AT = """
program add_at(values, places, out)
each:
  %0 = load values : f32
  %1 = load places : i64
  store_at out, %0, %1, add
"""


def test_measuring_a_scatter_writes_nothing():
    values, places, out = torch.ones(12), torch.arange(12) % 5, torch.zeros(8)
    args = values.npu(), places.npu(), out.npu()[2:]
    operands = [("values", 0, (1,)), ("places", 0, (1,)), ("out", 0, (0,))]
    kernel = npu_kernel("add_at", "scatter", tensors=("values", "places", "out"), sizes=(12,), operands=operands,
                        program=ADD_AT)  # fmt: skip
    assert kernel.written == (2,)
    assert autotune.measure(kernel, args, {}).keys() == {0}
    assert not args[2].any()
    kernel(*args)
    torch.testing.assert_close(args[2].cpu(), out[2:].index_add(0, places, values))


def product(x, w, out, **options):
    (m, k), n = x.shape, w.shape[0]
    return npu_kernel(
        *("mm", "matmul"), tensors=("x", "w", "out"), sizes=(m, n), k=k, program="",
        operands=[("x", 0, (k, 1)), ("w", 0, (1, k)), ("out", 0, (n, 1))], **options,
    )  # fmt: skip


def product_inputs():
    x, w, _ = (t.npu() for t in inputs())
    return x, w, torch.empty(x.shape[0], w.shape[0], device="npu")


def test_every_choice_of_the_c_model_is_right(cmodel):
    args = product_inputs()
    kernel = product(*args)
    choices = kernel.choices(*args)
    assert len(choices) > 5 and len(dict(choices)) == len({text for _, text in choices}) == len(choices)
    for number, _ in choices:
        args[2].zero_()
        kernel.choice = number
        kernel(*args)
        torch.testing.assert_close(args[2].cpu(), args[0].cpu() @ args[1].cpu().t(), rtol=2e-5, atol=2e-5)
    assert kernel.signature(*args) == "MATMUL 96x128 k=64 f32[64,1] f32[1,64] f32[128,1]" and kernel.written == (2,)


def test_a_wrong_number_is_an_error_of_its_call(cmodel):
    args = product_inputs()
    kernel = product(*args)
    kernel.choice = 255
    with pytest.raises(RuntimeError, match="expected choice 0 or one that the driver announced, got 255"):
        kernel(*args)
    with pytest.raises(ValueError, match="expected a choice of 0 to 255, got 256"):
        kernel.choice = 256


def test_nothing_is_measured_during_a_capture(measured, cmodel):
    args = product_inputs()
    kernel = product(*args, tune=True)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        kernel(*args)
    assert not measured
    kernel(*args)
    assert measured == ["mm"]


@pytest.mark.parametrize("content", ["{", '{"best": [1]}', '{"best": {"MATMUL": {}}}'])
def test_a_damaged_file_is_said_once_and_replaced(content, folder, measured, caplog, cmodel):
    args = product_inputs()
    product(*args, tune=True)(*args)
    (file,) = folder.iterdir()
    good = json.loads(file.read_text())
    file.write_text(content)
    autotune._memory.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            product(*args, tune=True)(*args)
    assert len(measured) == 2
    (record,) = caplog.records
    assert "remembered results of autotuning are ignored" in record.message and str(file) in record.message
    assert json.loads(file.read_text())["best"].keys() == good["best"].keys()


def test_a_folder_that_takes_no_files_is_said_once(folder, measured, caplog, cmodel):
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("not a folder")
    args = product_inputs()
    with caplog.at_level(logging.WARNING):
        for rows in (96, 96, 64):
            x = args[0][:rows]
            product(x, *args[1:], tune=True)(x, *args[1:])
    assert len(measured) == 2
    assert len([r for r in caplog.records if "not remembered beyond this process" in r.message]) == 1


def test_long_tuning_shows_how_far_it_is(monkeypatch, capsys, caplog, cmodel):
    monkeypatch.setattr(autotune.Progress, "PATIENCE_S", -1.0)
    monkeypatch.setattr(autotune, "progress", autotune.Progress())
    args = product_inputs()
    with caplog.at_level(logging.INFO, logger=autotune.__name__):
        product(*args, tune=True)(*args)
    assert "autotuning kernel 1 of 1, 0 s: mm" in caplog.text
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    x = args[0][:50]
    product(x, *args[1:], tune=True)(x, *args[1:])
    shown = capsys.readouterr().err
    assert "[####################] autotuning kernel 2 of 2, 0 s: mm" in shown and shown.endswith("\r\x1b[K")
