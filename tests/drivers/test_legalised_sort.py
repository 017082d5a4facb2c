"""SORT, SCATTER and COPY on chips that lack them: random commands are made from what there is, and agree with the
reference (docs/design/legalisation.md)."""

import json
import os
import subprocess
import sys

import pytest

from tests.support import LIBRARIES, ROOT

POOR = LIBRARIES / "testing" / "libnpu_poor.so"
COUNT = 150  # commands of each test: a second or two

# What the chip has: the kinds of which nothing may stay unsupported.
CHIPS = {
    "commands=COPY+MAP": ["SORT", "SCATTER"],
    "commands=MAP": ["SORT", "SCATTER", "COPY"],
    "commands=MAP+REDUCE+MATMUL": ["SORT", "SCATTER", "COPY"],
    "commands=COPY+MAP+REDUCE+MATMUL": ["SORT", "SCATTER"],
    "commands=COPY+MAP+SORT": ["SCATTER"],
    "commands=COPY+MAP+SCATTER": ["SORT"],
    "commands=COPY+MAP+SCATTER:combine=0": ["SORT", "SCATTER"],
    "combine=0": ["SCATTER"],
    "commands=COPY+MAP:operands=8": ["SORT", "SCATTER"],
    "commands=COPY+MAP:instructions=32": ["SORT", "SCATTER"],
}


@pytest.mark.parametrize("chip, kind", [(chip, kind) for chip, kinds in CHIPS.items() for kind in kinds])
def test_nothing_is_refused_and_all_is_right(chip, kind, tmp_path):
    found = tmp_path / "found.json"
    call = [LIBRARIES / "npu-driver-test", f"{POOR}:{chip}", "--legalised", "--filter", f"{kind}: "]
    ran = subprocess.run([*call, "--count", str(COUNT), "--json", found], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout[-3000:]
    tests = json.loads(found.read_text())["tests"]
    assert {test["test"]: test["unsupported"] for test in tests} == {test["test"]: 0 for test in tests}, ran.stdout
    assert tests and all(test["cases"] > 0 for test in tests)


def test_a_program_that_only_moves_is_made_of_copies(tmp_path):
    call = [
        LIBRARIES / "npu-driver-test",
        f"{POOR}:commands=COPY",
        "--legalised",
        "--filter",
        "MAP: programs that only",
    ]
    ran = subprocess.run([*call, "--count", str(COUNT)], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0 and "1 passed, 0 failed, 0 unsupported" in ran.stdout, ran.stdout[-3000:]


COMPARE = """
import json, torch, torch_npu
from tests.support.placing_ops import OPS, inputs

def tensors(found):
    return [found] if isinstance(found, torch.Tensor) else [t for part in found for t in tensors(part)]

differ = []
for name, op in OPS.items():
    want, got = tensors(op(*inputs())), tensors(op(*[x.to("npu") for x in inputs()]))
    try:
        torch.testing.assert_close([x.cpu() for x in got], want, rtol=1e-4, atol=1e-5)
    except AssertionError as error:
        differ.append(f"{name}: {error}")
print(json.dumps({"differ": differ, "fallbacks": torch_npu.fallback.report()}))
"""


@pytest.mark.parametrize("chip", ["commands=COPY+MAP+REDUCE+SCAN+MATMUL+CONV", "combine=0"])
def test_ops_that_sort_or_place_stay_on_a_chip_that_has_less(chip):
    environment = os.environ | {"TORCH_NPU_DRIVER": f"{POOR}:{chip}", "TORCH_NPU_FALLBACK": "quiet"}
    call = [sys.executable, "-c", COMPARE]
    ran = subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout.splitlines()[-1]) == {"differ": [], "fallbacks": {}}
