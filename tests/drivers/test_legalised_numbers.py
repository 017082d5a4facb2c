"""Chips without 64 bits: what needs i64, u64 and f64 is made from words (docs/design/legalisation.md, "Numbers")."""

import json
import subprocess

import pytest

from tests.support import LIBRARIES

NARROW = "f32+i32+bool+u8+i8+u16+i16+f16+bf16"
CHIPS = {
    "programs": "compute=f32+i32+bool",
    "programs and memory": f"compute=f32+i32+bool:types={NARROW}",
    "programs, with i64 in memory": f"compute=f32+i32+bool:types={NARROW}+i64",
}
# Every case of these runs.
WHOLE = [
    "failure:",
    "COPY:",
    "SORT:",
    "MAP: load_at with wrapped",
    "MAP: a masked load",
    "MAP: signs",
    "MAP: an index space",
    "REDUCE: argmax",
    "REDUCE: several tensors",
    "SCAN: random scans",
]
# Of these the given share at most is functions, folds and combining stores that have no form in words.
PARTLY = {
    "MAP: one instruction on every type": 0.06,  # fma of f64
    "MAP: random programs": 0.25,  # besides, remainders of f64, pow of integers, programs that become too long
    "REDUCE: random folds": 0.03,  # welford of f64
    "SCATTER:": 0.3,  # sums, products and extremes of i64, u64 and f64 in memory
}


def results_of(chip, filter_, tmp_path, count=120):
    out = tmp_path / "out.json"
    poor = LIBRARIES / "testing" / "libnpu_poor.so"
    command = [LIBRARIES / "npu-driver-test", f"{poor}:{CHIPS[chip]}", "--legalised", "--filter", filter_]
    options = ["--json", out, "--count", str(count), "--seed", "64"]
    ran = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]
    return json.loads(out.read_text())["tests"]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("filter_", WHOLE)
def test_a_chip_without_64_bits_does_all_of_it(chip, filter_, tmp_path):
    for test in results_of(chip, filter_, tmp_path):
        assert (test["result"], test["unsupported"]) == ("PASS", 0), test


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("filter_", PARTLY)
def test_a_chip_without_64_bits_does_most_of_it(chip, filter_, tmp_path):
    for test in results_of(chip, filter_, tmp_path, count=300):
        assert test["result"] == "PASS", test
        assert test["unsupported"] <= PARTLY[filter_] * test["cases"], test
