"""REDUCE and SCAN on chips that have less: every random command of the suite comes out right, and none is left over."""

import json
import subprocess

import pytest

from tests.support import LIBRARIES

POOR = LIBRARIES / "testing" / "libnpu_poor.so"

CHIPS = [
    "segments=1",
    "segments=1:manyfolds=0",
    "folds=sum+max",
    "folds=max",
    "inner=1",
    "commands=COPY+MAP+MATMUL:epilogue=0",
    "commands=COPY+MAP",
    "commands=COPY+MAP:instructions=64",
    "commands=COPY+REDUCE",
    "segments=1:manyfolds=0:folds=sum+max:inner=1",
]


def legalised(chip: str, kind: str, path) -> list[dict]:
    command = [LIBRARIES / "npu-driver-test", f"{POOR}:{chip}", "--legalised", "--count", "60"]
    ran = subprocess.run(
        [*command, "--filter", f"{kind}:", "--json", path], capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
    return json.loads(path.read_text())["tests"]


@pytest.mark.parametrize("kind", ["REDUCE", "SCAN"])
@pytest.mark.parametrize("chip", CHIPS)
def test_every_fold_and_scan_is_made_from_what_a_chip_has(chip, kind, tmp_path):
    found = legalised(chip, kind, tmp_path / "found.json")
    assert len(found) >= 3
    for test in found:
        assert test["result"] == "PASS" and test["unsupported"] == 0, test


def test_maps_run_on_a_chip_whose_only_programs_are_reductions(tmp_path):
    for test in legalised("commands=COPY+REDUCE", "MAP", tmp_path / "found.json"):
        assert test["result"] == "PASS" and test["unsupported"] == 0, test
