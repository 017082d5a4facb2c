"""python -m torch_npu, and the pages made from code."""

import json
from pathlib import Path

import pytest

from torch_npu import config
from torch_npu.cli import config as config_command

ROOT = Path(__file__).resolve().parent.parent


def test_info_names_driver_device_and_memory(module):
    result = module("info", TORCH_NPU_DRIVER="cmodel:memory=256M")
    assert result.status == 0
    assert "npu:0" in result.out and "256 of 256 MiB free" in result.out and "MATMUL" in result.out


def test_info_for_programs(module):
    facts = json.loads(module("info", "--json", TORCH_NPU_DRIVER="template,cmodel").out)
    assert [d["device"] for d in facts["devices"]] == ["npu:0", "npu:1"]
    assert [d["driver"] for d in facts["devices"]] == ["template", "cmodel"]
    assert facts["devices"][0]["commands"] == [] and "MAP" in facts["devices"][1]["commands"]
    assert [d["devices"] for d in facts["drivers"]] == [["npu:0"], ["npu:1"]]


def test_info_with_an_unknown_driver_fails_and_says_why(module):
    result = module("info", TORCH_NPU_DRIVER="nonsense")
    assert result.status == 1
    assert "nonsense" in result.out and "cmodel" in result.out
    # They wrap a driver and are no hardware to choose.
    assert "lockstep" not in result.out and "record" not in result.out


def test_info_says_what_a_device_can_do_and_what_is_missing(module):
    facts = json.loads(module("info", "--json", TORCH_NPU_DRIVER="cmodel,template").out)
    full, empty = facts["devices"]
    assert full["missing_commands"] == full["missing_dtypes"] == [] and "bfloat16" in full["dtypes"]
    assert "MATMUL" in empty["missing_commands"] and "float32" in empty["missing_dtypes"]
    text = module("info", TORCH_NPU_DRIVER="template").out
    assert "npu:0 leaves to the CPU: COPY MAP" in text


def test_info_lists_built_drivers_and_those_that_were_left_out(module, monkeypatch, tmp_path):
    from torch_npu import _info
    from torch_npu.cli import info

    facts = json.loads(module("info", "--json", TORCH_NPU_DRIVER="cmodel").out)
    assert {"cmodel", "template"} <= set(facts["built_drivers"]) and "lockstep" not in facts["built_drivers"]
    monkeypatch.setattr(_info, "library_path", lambda: str(tmp_path))
    for name in ("cmodel", "record"):
        (tmp_path / f"libnpu_{name}.so").touch()
    (tmp_path / "drivers.json").write_text('{"built": ["cmodel"], "left_out": {"rtl": "no Verilator"}}')
    assert info.known_drivers() == (["cmodel"], {"rtl": "no Verilator"})


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("info",),
        ("bench",),
        ("bench", "dispatch"),
        ("bench", "ops"),
        ("bench", "training"),
        ("bench", "models"),
        ("driver-test",),
        ("config",),
        ("conformance",),
    ],
)
def test_help_everywhere(module, command):
    result = module(*command, "--help")
    assert result.status == 0 and "usage: python -m torch_npu" in result.out


def test_wrong_command_line_is_status_2(module):
    assert module("nonsense").status == 2
    assert module().status == 2


def test_driver_test_passes_for_the_template(module):
    assert module("driver-test", "template").status == 0


def test_driver_test_of_an_unknown_driver(module):
    result = module("driver-test", "nonsense")
    assert result.status == 2
    assert "expected a driver's name (cmodel, " in result.err
    assert "template) or the path of a shared library, got nonsense" in result.err


def test_bench_dispatch_compares_every_op_with_the_cpu(module):
    rows = json.loads(module("bench", "dispatch", "--quick", "--json").out)
    assert {"a + b, 4 elements", "empty(1024)", "view"} <= {row["op"] for row in rows}
    assert all(row["cpu_us"] > 0 and row["npu_us"] > 0 for row in rows)


def test_bench_ops_writes_figures_and_plots(module, tmp_path):
    figures, picture, page = tmp_path / "figures.json", tmp_path / "plot.svg", tmp_path / "plot.html"
    command = ("bench", "ops", "--quick", "--op", "^(relu|argmax last|mm)$", "--sizes", "small", "--threads", "1")
    result = module(*command, "--json", str(figures), "--plot", str(picture))
    assert result.status == 0 and "geometric mean" in result.out
    facts = json.loads(figures.read_text())
    assert {row["op"] for row in facts["rows"]} == {"relu", "argmax last", "mm"}
    assert all(row["cpu_us"] > 0 and row["npu_us"] > 0 and row["size"] == "small" for row in facts["rows"])
    assert {"contiguous", "strided"} <= {row["layout"] for row in facts["rows"]}
    assert facts["threads"] == 1 and set(facts["families"]) >= {"pointwise", "argmax"}
    from xml.etree import ElementTree

    dots = ElementTree.fromstring(picture.read_text()).findall(".//{http://www.w3.org/2000/svg}circle")
    assert len([d for d in dots if len(d)]) == len(facts["families"])
    assert module(*command, "--plot", str(page)).status == 0 and "<svg" in page.read_text()


def test_bench_ops_refuses_what_it_does_not_know(module, tmp_path):
    result = module("bench", "ops", "--plot", str(tmp_path / "plot.gif"))
    assert result.status == 2 and "expected a plot file ending in .svg" in result.err
    result = module("bench", "ops", "--op", "^nonsense$")
    assert result.status == 2 and "nonsense" in result.err


def test_every_op_case_gives_the_result_of_the_cpu():
    import torch

    from torch_npu.bench.cases import CASES
    from torch_npu.bench.make import Make

    for case in CASES:
        if case.family in ("random", "optimizers"):
            continue
        for layout in case.layouts:
            cpu, npu = (case.make(Make(d, torch.float32, "small", layout))() for d in ("cpu", "npu"))
            pairs = zip(cpu, npu) if isinstance(cpu, tuple | list) else [(cpu, npu)]
            for expected, got in pairs:
                close = torch.allclose(got.cpu(), expected, rtol=1e-4, atol=1e-4)
                assert close, f"{case.name}, {layout}: expected {expected}, got {got.cpu()}"


def test_bench_training_measures_both_models(module, tmp_path):
    figures = tmp_path / "figures.json"
    assert module("bench", "training", "--quick", "--threads", "1", "--json", str(figures)).status == 0
    assert [row["model"] for row in json.loads(figures.read_text())["rows"]] == ["ResNet-18", "transformer, 4 layers"]


def test_bench_models_measures_time_and_memory(module, tmp_path):
    figures = tmp_path / "figures.json"
    command = ("bench", "models", "--quick", "--rounds", "1", "--threads", "1", "--dtype", "bfloat16")
    result = module(*command, "--json", str(figures))
    assert result.status == 0, result.err
    facts = json.loads(figures.read_text())
    assert [(row["size"], row["phase"].split()[0]) for row in facts["rows"]] == [
        ("tiny", "decode,"),
        ("0.5b", "prefill,"),
        ("0.5b", "decode,"),
        ("0.5b", "LoRA"),
    ]
    assert facts["fallback"] == {}
    assert all(row["ratio"] > 0 and 0.5 < row["memory_ratio"] < 1.2 for row in facts["rows"])


def test_bench_models_refuses_what_it_does_not_know(module):
    result = module("bench", "models", "--phase", "nonsense")
    assert result.status == 2 and "expected part of prefill" in result.err
    result = module("bench", "models", "--dtype", "int8")
    assert result.status == 2 and "expected types out of float32, bfloat16, got int8" in result.err


def test_config_shows_values(module):
    result = module("config", TORCH_NPU_FALLBACK="error")
    assert ["TORCH_NPU_FALLBACK", "error", "warn"] in [line.split() for line in result.lines()]


def test_configuration_page_is_up_to_date():
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page == config_command.markdown(), "run: python -m torch_npu config --markdown > docs/configuration.md"


def test_every_variable_in_the_code_is_documented():
    import re

    documented = {s.name for _, settings in config.TABLES for s in settings}
    found = set()
    for folder in ("csrc", "drivers", "support", "torch_npu"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in (".cpp", ".c", ".h", ".py"):
                text = file.read_text()
                found |= set(re.findall(r'(?:getenv|environ\.get|environ)[(\[]\s*"([A-Z_]+)"', text))
    assert found - documented == set()
