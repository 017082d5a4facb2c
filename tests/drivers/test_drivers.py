"""The driver test on good and broken drivers. NPU_LIB names the folder of a build; the default is the package's."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT

LIB = Path(os.environ.get("NPU_LIB", ROOT / "torch_npu" / "lib"))


def driver_test(*arguments):
    return subprocess.run([LIB / "npu-driver-test", *map(str, arguments)], capture_output=True, text=True, timeout=300)


def library(name):
    return f"{LIB}/testing/libnpu_{name}.so"


@pytest.mark.parametrize("driver", ["template:devices=2:memory=512M", library("guide")])
def test_a_driver_with_few_commands_passes(driver):
    result = driver_test(driver, "--count", 20)
    assert result.returncode == 0, result.stdout


def test_the_reference_as_a_driver_passes_bit_for_bit():
    result = driver_test(library("failing") + ":fail_at=0", "--exact", "--count", 30)
    assert result.returncode == 0, result.stdout


def test_a_driver_that_announces_choices_passes():
    result = driver_test(library("choosing"), "--exact", "--count", 30)
    assert result.returncode == 0, result.stdout
    assert re.search(r"every choice gives the right result +PASS \([1-9]", result.stdout)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ("result", "choice way=middle: operand 2"),
        ("number", "choice 255: expected NPU_ERROR_INVALID, got a result"),
        ("text", "expected each number once, got 3 twice"),
    ],
)
def test_wrong_choices_are_found(broken, sentence):
    result = driver_test(library("choosing") + f":broken={broken}", "--filter", "choices:", "--count", 50)
    assert result.returncode == 1 and sentence in result.stdout, result.stdout


def test_a_failing_command_is_found():
    result = driver_test(library("failing") + ":fail_at=5", "--filter", "MAP: add", "--count", 10)
    assert result.returncode == 1
    assert "got NPU_ERROR_TIMEOUT" in result.stdout and "--seed 1 --case 4" in result.stdout


def test_the_guide_driver_runs_its_native_commands(tmp_path):
    driver_test(library("guide"), "--json", tmp_path / "out.json", "--count", 20)
    tests = {t["test"]: t for t in json.loads((tmp_path / "out.json").read_text())["tests"]}
    assert tests["MAP: add of contiguous F32"]["result"] == "PASS"
    assert tests["MAP: add of contiguous F32"]["unsupported"] == 0
    assert tests["MATMUL: large products"]["result"] == "PASS"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("abi99", "speaks contract version 99.1, expected 1.x"),
        ("nosymbol", "does not export npu_driver_get"),
        ("noopen", "expected a chip at /dev/mychip0, got no such device"),
        ("nowhere", "got no such file"),
    ],
)
def test_a_broken_driver_is_refused_with_one_sentence(name, sentence):
    result = driver_test(library(name))
    assert result.returncode == 2
    assert sentence in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_crash_fails_its_test_and_the_suite_goes_on(tmp_path):
    result = driver_test(library("crash"), "--filter", "memory", "--json", tmp_path / "out.json")
    assert result.returncode == 3
    crash = r"memory: memory_info counts what is live +FAIL \(the driver crashed \(signal 11, .*\) in memory_alloc\)"
    assert re.search(crash, result.stdout), result.stdout
    tests = json.loads((tmp_path / "out.json").read_text())["tests"]
    assert ("crashed", "FAIL") in {(test["ended"], test["result"]) for test in tests}
    assert tests[-1]["ended"] == "unsupported"


def test_a_hang_ends_at_the_limit_and_the_suite_goes_on():
    result = driver_test(library("crash") + ":hang", "--filter", "memory_", "--limit", 1, "--jobs", 4)
    assert result.returncode == 3
    assert "the driver hangs: no call has returned for 1 s, in memory_alloc" in result.stdout, result.stdout
    assert "failed: memory: memory_info counts what is live" in result.stdout


def test_in_one_process_a_crash_ends_the_suite_and_says_where():
    result = driver_test(library("crash"), "--in-process")
    assert result.returncode == 3
    assert re.search(r"the driver crashed \(signal 11, .*\) in memory_alloc", result.stderr), result.stderr
    assert "lifetime: a driver opens twice" in result.stdout.splitlines()[-1]


def test_the_log_has_each_command_before_the_driver_gets_it(tmp_path):
    driver_test(library("failing") + ":fail_at=2", "--filter", "COPY: random", "--count", 5, "--log", tmp_path / "log")
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0] == "COPY: random types, strides, fills, seed 1"
    assert lines[1] == "  --seed 1 --case 0" and lines[2].startswith("    COPY (driver-test) of [")


def test_a_failure_names_the_case_that_repeats_it():
    bad = library("failing") + ":fail_at=5"
    found = driver_test(bad, "--filter", "MAP: add", "--count", 10).stdout
    assert "--seed 1 --case 4: " in found
    again = driver_test(library("failing") + ":fail_at=1", "--filter", "MAP: add", "--case", 4).stdout
    assert re.search(r"MAP size \[(\d+)\]", found)[0] in again


def test_the_first_failure_can_end_the_suite():
    result = driver_test(library("crash"), "--first")
    assert result.returncode == 3 and result.stdout.splitlines()[-1] == "0 passed, 1 failed, 0 unsupported"


def test_a_recorded_command_is_a_test(tmp_path):
    """One that a wrong driver failed is written down, is right on another, and fails again on the first."""
    wrong, saved = library("mutant") + ":bug=matmul-b-row-major", tmp_path / "saved.npt"
    found = driver_test(wrong, "--random", 400, "--filter", "MATMUL: random", "--save", saved)
    assert "saved as" in found.stdout, found.stdout
    right = driver_test(library("mutant"), "--from", saved)
    assert right.returncode == 0 and "1 passed, 0 failed" in right.stdout, right.stdout
    again = driver_test(wrong, "--from", saved)
    assert again.returncode == 1 and "MATMUL: command 1 of saved.npt" in again.stdout, again.stdout
    assert "B, operand 1: it is taken as row-major" in again.stdout, again.stdout


def test_a_recording_that_is_none_is_refused(tmp_path):
    (tmp_path / "bad.npt").write_bytes(b"nothing")
    result = driver_test("template", "--from", tmp_path / "bad.npt")
    assert result.returncode == 2 and "bad.npt" in result.stderr


def test_the_guide_counts_the_tests_as_the_suite_does():
    names = driver_test("--list").stdout.splitlines()
    quoted = re.findall(r"^\[ *(\d+)/(\d+)\] (.+?)  +[A-Z]", (ROOT / "docs/driver-guide.md").read_text(), re.MULTILINE)
    assert len(quoted) == 3
    assert [(names[int(number) - 1], len(names)) for number, _, _ in quoted] == [(n, int(t)) for _, t, n in quoted]
