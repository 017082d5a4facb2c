"""python -m torch_npu plan: what a script asks of a chip, by command, and what a driver makes of it."""

import json
import os
import subprocess
import sys

import pytest

from tests.support import LIBRARIES, ROOT, needs_profiler

POOR = LIBRARIES / "testing" / "libnpu_poor.so"
SCRIPT = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).to("npu")
for rows in (8, 8, 24):
    model(torch.randn(rows, 16, device="npu")).softmax(-1).square().sum().backward()
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "script.py"
    path.write_text(SCRIPT)
    return path


def facts_of(module, script, device, *more):
    out = script.parent / f"{abs(hash(device))}.npt"
    result = module("plan", "--json", "--device", device, "--out", str(out), *more, str(script))
    assert result.status == 0, result.err
    return json.loads(result.out), out


def test_a_driver_that_takes_everything_is_asked_nothing_else(module, script):
    facts, _ = facts_of(module, script, "cmodel")
    assert facts["counts"]["native"] == sum(facts["counts"].values()) > 20
    # Of both sizes one example; all commands are counted.
    product = next(f for f in facts["forms"] if f["kind"] == "MATMUL" and "aten::addmm" in f["ops"])
    assert sorted({tuple(e["size"]) for e in product["examples"]}) == [(8, 4), (8, 32), (24, 4), (24, 32)]
    assert product["count"] == product["ops"]["aten::addmm"] == 6
    assert sum(e["multiply_adds"] * e["count"] for e in product["examples"]) == 40 * (16 * 32 + 32 * 4)


def test_what_is_refused_comes_first_with_the_drivers_words_and_what_is_made_of_it(module, script):
    facts, file = facts_of(module, script, f"{POOR}:epilogue=0")
    first = facts["forms"][0]
    assert first["answer"] == "legalised" and first["kind"] == "MATMUL"
    example = first["examples"][0]
    assert example["words"] == "expected what this chip has, got an epilogue"
    assert example["rules"] == ["product, then its program"] and len(example["steps"]) == 2
    assert first["gain_ms"] is not None and first["gain_ms"] >= 0
    # The same recording is asked of another driver without the script.
    again = module("plan", "--json", "--device", "template", str(file))
    counts = json.loads(again.out)["counts"]
    assert (
        again.status == 0
        and counts["native"] == 0
        and counts["refused"] == len([e for f in facts["forms"] for e in f["examples"]])
    )


def test_text_and_page_say_the_same(module, script, tmp_path):
    page = tmp_path / "plan.html"
    result = module(
        "plan", "--device", f"{POOR}:epilogue=0", "--out", str(tmp_path / "a.npt"), "--html", str(page), str(script)
    )
    assert result.status == 0, result.err
    assert (
        "made" in result.out and "taken" in result.out and "got an epilogue => product, then its program" in result.out
    )
    html = page.read_text()
    assert "got an epilogue =&gt; product, then its program" in html and "MATMUL" in html
    assert "<script" not in html and "://" not in html


def test_a_wrong_answer_is_said(module, script, tmp_path):
    planted = LIBRARIES / "testing" / "libnpu_planted.so"
    device = f"{planted}:bug=stride:kind=MATMUL:last=32"
    result = module("plan", "--device", device, "--out", str(tmp_path / "a.npt"), str(script))
    assert result.status == 1 and "WRONG" in result.out and "elements differ" in result.out


def test_bad_calls_are_one_sentence(module, tmp_path):
    result = module("plan", "--device", "cmodel", str(tmp_path / "no.npt"))
    assert result.status == 1 and "got no such file" in result.err
    result = module("plan", "--device", "nowhere", str(ROOT / "examples" / "lenet_digits.py"))
    assert result.status == 2 and "nowhere" in result.err


def test_the_examples_are_tests_of_a_driver(module, script, tmp_path):
    facts, file = facts_of(module, script, "cmodel")
    examples = sum(len(form["examples"]) for form in facts["forms"])
    result = module("driver-test", f"{POOR}:commands=COPY+MAP", "--legalised", "--from", str(file))
    assert result.status == 0 and f"{examples} passed, 0 failed, 0 unsupported" in result.out, result.out[-2000:]


@needs_profiler
def test_report_and_explain_say_what_is_made_of_others(module, script, tmp_path):
    device = f"{POOR}:epilogue=0"
    result = module("report", str(script), "--json", TORCH_NPU_DRIVER=device)
    facts = json.loads(result.out)
    assert any("commands that the driver refuses (MATMUL) were made from others" in note for note in facts["notes"])
    assert facts["legalised"][0]["words"] == "expected what this chip has, got an epilogue"
    code = tmp_path / "explain.py"
    code.write_text(
        "import torch, torch_npu\n"
        "model = torch.nn.Linear(8, 4).to('npu')\n"
        "print(torch_npu.compile.explain(model, torch.ones(2, 8, device='npu')))\n"
    )
    environment = os.environ | {"TORCH_NPU_DRIVER": device}
    out = subprocess.run([sys.executable, code], env=environment, capture_output=True, text=True, timeout=300).stdout
    assert "made: 2 each  MATMUL aten::addmm" in out, out
