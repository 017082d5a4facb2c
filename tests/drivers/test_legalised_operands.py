"""Operands and programs that a chip does not take are made into such as it does: on poor chips nothing is wrong in the
driver test and, of the kinds named, nothing unsupported (docs/design/legalisation.md)."""

import json
import subprocess

import pytest

from tests.support import LIBRARIES

POOR = LIBRARIES / "testing" / "libnpu_poor.so"

POINTWISE = ["COPY", "MAP"]
ALL = ["COPY", "MAP", "REDUCE", "SCAN", "SORT", "SCATTER", "MATMUL", "CONV"]
ROWS = ["COPY", "MAP", "REDUCE: random", "REDUCE: softmax", "REDUCE: Welford", "SCAN: random", "SORT", "SCATTER"]

# What the chip has, and of what it must then have everything.
CHIPS = {
    "layout=rows": ALL,
    "dense=1": ALL,
    "grain=16": ALL,
    "rank=4": ALL[:-1],
    "rank=2": ROWS,
    "operands=8": ROWS,
    "operands=4": [*POINTWISE, "SCATTER"],
    "instructions=32": ROWS,
    "instructions=16": [*POINTWISE, "SCATTER"],
    "types=f32+i32": [*POINTWISE, "REDUCE", "SCAN"],
    "types=f32+i64+bool": [*POINTWISE, "REDUCE", "SCAN"],
    "types=f32+bf16+i8+i32+bool": [*POINTWISE, "REDUCE", "SCAN"],
    "lacks=exp+log+tanh+sigmoid+sqrt": ALL,
}


def driver_test(options: str) -> list[dict]:
    file = LIBRARIES / "testing" / f"legalised-{options}.json"
    command = [LIBRARIES / "npu-driver-test", f"{POOR}:{options}", "--legalised", "--count", "40", "--json", file]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]
        return json.loads(file.read_text())["tests"]
    finally:
        file.unlink(missing_ok=True)


@pytest.mark.parametrize("options", CHIPS)
def test_a_chip_with_less_has_everything(options):
    tests = driver_test(options)
    missing = {test["test"]: test["unsupported"] for test in tests if test["unsupported"]}
    assert not [name for name in missing if name.startswith(tuple(CHIPS[options]))], missing
