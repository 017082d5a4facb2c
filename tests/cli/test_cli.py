"""python -m torch_npu, and the pages made from code."""

import json
import re
import shlex
import shutil
import sys

import pytest
import torch

from tests.support import ROOT, needs_profiler
from tests.support.command_line import called
from torch_npu import cli, config
from torch_npu.cli import config as config_command
from torch_npu.console import command
from torch_npu.console.progress import Progress


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
    (tmp_path / "drivers.json").write_text('{"configured": ["cmodel", "fpga"], "left_out": {"rtl": "no Verilator"}}')
    left_out = {"fpga": "not built yet: make build builds everything", "rtl": "no Verilator"}
    assert info.known_drivers() == (["cmodel"], left_out)


def test_wrong_command_line_is_status_2(module):
    assert called("nonsense").status == 2
    assert module().status == 2


def test_driver_test_of_an_unknown_driver():
    result = called("driver-test", "nonsense")
    assert result.status == 2
    assert "expected a driver's name (cmodel, " in result.err
    assert "template) or the path of a shared library, got nonsense" in result.err


def test_driver_test_says_what_the_suite_says():
    result = called("driver-test", "template", "--filter", "MAP")
    assert result.status == 0 and "[ 1/" in result.out and " passed, 0 failed, " in result.out


def test_bench_dispatch_compares_every_op_with_the_cpu():
    rows = json.loads(called("bench", "dispatch", "--quick", "--json").out)["rows"]
    assert {"a + b, 4 elements", "empty(1024)", "view"} <= {row["op"] for row in rows}
    assert all(row["cpu_us"] > 0 and row["npu_us"] > 0 for row in rows)


def test_bench_ops_writes_figures_and_plots(module, tmp_path):
    figures, picture, page = tmp_path / "figures.json", tmp_path / "plot.svg", tmp_path / "plot.html"
    command = ("bench", "ops", "--quick", "--op", "^(relu|argmax last|mm)$", "--sizes", "small", "--threads", "1")
    result = module(*command, "--json-file", str(figures), "--plot", str(picture))
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


def test_bench_ops_refuses_what_it_does_not_know(tmp_path):
    result = called("bench", "ops", "--plot", str(tmp_path / "plot.gif"))
    assert result.status == 2 and "expected a plot file ending in .svg" in result.err
    result = called("bench", "ops", "--op", "^nonsense$")
    assert result.status == 2 and "nonsense" in result.err
    result = called("bench", "ops", "--op", "(")
    assert result.status == 2 and "expected a regular expression, got '('" in result.err
    result = called("bench", "compile", "--phase", "nonsense")
    assert result.status == 2 and "expected part of forward, training, got nonsense" in result.err
    result = called("bench", "compile", "--device", "cpu")
    assert result.status == 2 and "expected npu or npu:N, got cpu" in result.err


def test_every_op_case_gives_the_result_of_the_cpu():
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
    assert module("bench", "training", "--quick", "--threads", "1", "--json-file", str(figures)).status == 0
    assert [row["model"] for row in json.loads(figures.read_text())["rows"]] == ["ResNet-18", "transformer, 4 layers"]


def test_compared_sides_are_waited_for_equally_often():
    from torch_npu.bench.measure import Plan, compare

    done = []
    sides = {name: lambda name=name: done.append(name) for name in ("eager", "compiled", "wait eager", "wait compiled")}
    now = iter(range(1000))
    plan = Plan(seconds=0.0, rounds=2, rest=0.0, clock=lambda: float(next(now)), calls=3)
    times = compare(sides["eager"], sides["compiled"], sides["wait compiled"], plan, sides["wait eager"])
    block = [*["eager"] * 3, "wait eager", *["compiled"] * 3, "wait compiled"]
    assert done[-16:] == block * 2 and times.cpu == times.npu == [1 / 3] * 2


def test_bench_models_measures_time_and_memory(module, tmp_path):
    figures = tmp_path / "figures.json"
    command = ("bench", "models", "--quick", "--rounds", "1", "--threads", "1", "--dtype", "bfloat16")
    result = module(*command, "--json-file", str(figures))
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


def test_bench_models_refuses_what_it_does_not_know():
    result = called("bench", "models", "--phase", "nonsense")
    assert result.status == 2 and "expected part of prefill" in result.err
    result = called("bench", "models", "--dtype", "int8")
    assert result.status == 2 and "expected types out of float32, bfloat16, got int8" in result.err


def test_config_shows_values(monkeypatch):
    monkeypatch.setenv("TORCH_NPU_FALLBACK", "error")
    assert ["TORCH_NPU_FALLBACK", "error", "warn"] in [line.split() for line in called("config").out.splitlines()]


def test_configuration_page_is_up_to_date():
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page == config_command.markdown(), "run: python -m torch_npu config --markdown > docs/configuration.md"


@pytest.mark.parametrize(
    ("variable", "value", "accepted"),
    [
        ("TORCH_NPU_SANITIZE", "memory,Race", "expected some of memory, init and race, separated by commas, or all"),
        ("TORCH_NPU_SANITIZE_REPORT", "print", "expected raise or log"),
    ],
)
def test_doctor_names_a_variable_that_import_refuses(module, variable, value, accepted):
    result = module("doctor", "--json", **{"TORCH_NPU_SANITIZE": "all", variable: value})
    (found,) = [f for f in json.loads(result.out)["findings"] if f["check"] == "variables"]
    assert result.status == 1 and "Traceback" not in result.err
    assert found["state"] == "problem" and found["found"].startswith(f"{variable}: {accepted}, got")
    assert module("info", **{"TORCH_NPU_SANITIZE": "all", variable: value}).status == 1


def test_doctor_says_why_the_package_cannot_be_imported(tmp_path, module):
    shutil.copytree(ROOT / "torch_npu", tmp_path / "torch_npu", ignore=shutil.ignore_patterns("*.so", "lib"))
    (tmp_path / "torch_npu" / "_build_info.py").write_text('torch_version = "1.0"\n')
    result = module("doctor", folder=tmp_path)
    assert result.status == 1 and "PROBLEM  versions" in result.out and "was built for torch 1.0" in result.out


def test_every_variable_in_the_code_is_documented():
    documented = {s.name for _, settings in config.TABLES for s in settings}
    found = set()
    for folder in ("csrc", "drivers", "support", "torch_npu"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in (".cpp", ".c", ".h", ".py"):
                text = file.read_text()
                found |= set(re.findall(r'(?:getenv|environ\.get|environ)[(\[]\s*"([A-Z_]+)"', text))
    assert found - documented - {"HOME", "XDG_CACHE_HOME"} == set()  # the system's own


COMMANDS = ("info", "doctor", "new-driver", "driver-test", "conformance", "verify", "record", "lock", "report")
COMMANDS += ("plan", "whatif", "config")
KINDS = ("dispatch", "basic", "ops", "training", "models", "compile")
EVERY = [(name,) for name in COMMANDS] + [("bench", kind) for kind in KINDS]


@pytest.mark.parametrize("command", EVERY, ids=" ".join)
def test_every_command_has_help_with_an_example_and_json(command):
    status, out, _ = called(*command, "--help")
    assert status == 0 and f"usage: python -m torch_npu {' '.join(command)}" in out
    assert f"example:\n  python -m torch_npu {' '.join(command)}" in out
    assert "--json " in out and "--json-file FILE" in out and "Exit status: 0 all is well, 1" in out
    # The example is one that the parser takes.
    for line in out.partition("example:\n")[2].partition("\n\n")[0].splitlines():
        cli.make_parser().parse_args(shlex.split(line)[3:])


def test_the_list_of_commands_is_complete():
    status, out, _ = called("--help")
    listed = re.findall(r"^    ([a-z-]+)\b", out, re.MULTILINE)
    assert status == 0 and sorted(listed) == sorted([*COMMANDS, "bench"])


SAYS = "import torch\nprint('the script says this')\nx = torch.ones(4, 4, device='npu')\nx @ x\n"

# What is asked, the status, and a key that the JSON must have. {} is a folder with script.py, bad.py and chip.toml.
ANSWERS = [
    ("info", 0, "devices"),
    ("config", 0, "values"),
    ("config --markdown", 0, "values"),
    ("doctor", None, "findings"),  # 1 where the environment of the tests has a problem
    ("new-driver mine --out {}/mine", 0, "files"),
    ("driver-test template --filter MAP", 0, "tests"),
    ("driver-test template --random 5", 0, "output"),
    ("conformance --op nn.functional.relu --limit 1 --jobs 0 --db ops", 0, "results"),
    ("bench ops --quick --op ^relu$ --sizes small --threads 1", 0, "families"),
    ("lock --file {}/torch_npu.lock {}/script.py", 0, "ops"),
    ("report {}/script.py --html {}/page.html", 0, "headline"),
    ("report {}/bad.py", 1, "headline"),
    ("lock --file {}/other.lock {}/bad.py", 1, "error"),
    ("new-driver mine --out {}/mine", 2, "error"),
    ("new-driver Capital", 2, "error"),
    ("driver-test nonsense", 2, "error"),
    ("conformance --op nonsense", 2, "error"),
    ("conformance --dtype float99", 2, "error"),
    ("bench ops --op ^nonsense$", 2, "error"),
    ("bench training --model ^nonsense$", 2, "error"),
    ("bench models --phase nonsense", 2, "error"),
    ("bench compile --model ^nonsense$", 2, "error"),
    ("bench compile --model graph", 0, "replay"),
    ("verify --exact yes --reference [ {}/script.py", 2, "error"),
    ("record --driver [ {}/a.npt {}/script.py", 2, "error"),
    ("report {}/nowhere.py", 2, "error"),
    ("report --html {}/nowhere/page.html {}/script.py", 2, "error"),
    ("whatif {}/nowhere.toml {}/script.py", 2, "error"),
    ("lock {}/nowhere.py", 2, "error"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("commands")
    (made / "script.py").write_text(SAYS)
    (made / "bad.py").write_text("import torch\ntorch.ones(2, device='npu') + 1\nraise SystemExit(3)\n")
    return made


@pytest.mark.parametrize(
    "line, expected, key",
    [pytest.param(*a, marks=needs_profiler if a[2] == "headline" else (), id=a[0]) for a in ANSWERS],
)
def test_json_is_all_there_is_on_stdout(folder, line, expected, key):
    status, out, err = called(*shlex.split(line.replace("{}", str(folder))), "--json")
    facts = json.loads(out)
    assert status == expected or (expected is None and status in (0, 1)), err
    assert key in facts and (status != 2 or facts == {"error": facts["error"], "status": 2})
    if status == 2:
        assert facts["error"] in err
    assert ("the script says this" in err) == ("script.py" in line and status == 0)


# These load a driver of their own, which a process does once.
@pytest.mark.parametrize(
    "line, key",
    [
        ("whatif --json examples/chip.toml {}/script.py", "bound"),
        ("record --json {}/a.npt {}/script.py", "files"),
        ("plan --json --out {}/plan.npt {}/script.py", "forms"),
        ("verify --device cmodel {}/script.py --json", "same_bits"),
    ],
)
def test_json_of_commands_that_choose_the_driver(module, folder, line, key):
    result = module(*line.replace("{}", str(folder)).split())
    assert result.status == 0 and key in json.loads(result.out), result.err
    assert "the script says this" in result.err


def test_a_json_file_and_text_together(folder):
    status, out, _ = called("config", "--json-file", str(folder / "config.json"))
    assert status == 0 and "TORCH_NPU_DRIVER" in out and "values" in json.loads((folder / "config.json").read_text())
    status, _, err = called("config", "--json-file", str(folder / "nowhere" / "config.json"))
    assert status == 1 and "No such file" in err


def test_what_is_no_number_is_null_in_json():
    text = command.to_json({"a": [1.5, float("inf")], "b": float("nan")})
    assert json.loads(text, parse_constant=pytest.fail) == {"a": [1.5, None], "b": None}


def test_an_exception_is_json_too_and_status_1(monkeypatch):
    def broken():
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("torch_npu.cli.info.gather", broken)
    status, out, err = called("info", "--json")
    assert status == 1 and json.loads(out)["error"] == "ZeroDivisionError: planted" and "Traceback" in err


def test_an_option_that_is_none_shows_the_usage_of_the_command():
    status, _, err = called("report", "--bogus", "script.py")
    assert status == 2 and "usage: python -m torch_npu report " in err and "unrecognized arguments: --bogus" in err


def test_a_script_that_fails_is_named_by_record(module, folder):
    result = module("record", str(folder / "bad.npt"), str(folder / "bad.py"))
    assert result.status == 1 and "the script itself failed (exit status 3)" in result.out


def test_verify_says_who_refused(module, folder):
    result = module("verify", "--device", "template", str(folder / "script.py"))
    assert result.status == 1 and "NOTHING COMPARED: the device refused every command" in result.out, result.err


@pytest.mark.parametrize(
    "line, own, rest",
    [
        ("report --html a.html s.py --html b.html", {"html": "b.html"}, []),  # the later one counts, as everywhere
        ("report s.py --html a.html --epochs 3 --json", {"html": "a.html", "json": False}, ["--epochs", "3", "--json"]),
        ("report s.py --html=a.html --json", {"html": "a.html", "json": True}, []),
        ("report s.py -- --html a.html", {"html": None}, ["--html", "a.html"]),
        ("report s.py --json -- --json", {"json": True}, ["--json"]),
        ("lock s.py --update more", {"update": True}, ["more"]),
    ],
)
def test_options_behind_the_script(line, own, rest):
    options = cli.parse(line.split())
    assert {key: getattr(options, key) for key in own} == own and options.arguments == rest


def test_progress_is_for_terminals_only(monkeypatch, capsys):
    for terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        with Progress(2) as progress:
            progress.step("first")
            progress.note("a line that stays")
            progress.step("second")
        said = capsys.readouterr()
        assert said.out == "" and "a line that stays\n" in said.err
        assert ("1/2" in said.err and "second" in said.err and "█" in said.err) == terminal
        assert said.err.endswith("\r\x1b[K") == terminal


def test_progress_of_minutes_has_a_line_per_tenth_in_logs(capsys):
    with Progress(1000, lines=True) as progress:
        for number in range(1000):
            progress.step(f"work {number}")
    assert len(capsys.readouterr().err.splitlines()) == 9
