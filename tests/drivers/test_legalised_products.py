"""MATMUL and CONV on chips that lack them or a part of them: every random command is made from what the chip has, and
is right (docs/design/legalisation.md)."""

import json
import subprocess

import pytest

from tests.support import LIBRARIES

CHIPS = [
    "epilogue=0",
    "commands=COPY+MAP+MATMUL:epilogue=0",
    "commands=COPY+MAP+REDUCE",
    "commands=COPY+MAP",
    "commands=COPY+MAP:operands=8:instructions=40",
    "products=i8",
    "products=f32",
    "rank=4",
]


def run(chip: str, kind: str, folder, count: int) -> dict:
    driver = f"{LIBRARIES / 'testing' / 'libnpu_poor.so'}:{chip}"
    results = folder / "results.json"
    command = [LIBRARIES / "npu-driver-test", driver, "--legalised", "--filter", f"{kind}:", "--json", results]
    ran = subprocess.run([*command, "--count", str(count)], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout[-3000:]
    return json.loads(results.read_text())


@pytest.mark.parametrize("kind", ["MATMUL", "CONV"])
@pytest.mark.parametrize("chip", CHIPS)
def test_every_product_is_made_from_what_the_chip_has(chip, kind, tmp_path):
    found = run(chip, kind, tmp_path, 150)
    assert found["failed"] == found["unsupported"] == 0
    assert {test["test"]: test["unsupported"] for test in found["tests"] if test["unsupported"]} == {}
