"""The C++ tests: programs beside the libraries, each of which exits with 0 if all is well."""

import os
import subprocess

import pytest

from tests.support import LIBRARIES

PROGRAMS = sorted(p.name for p in LIBRARIES.glob("npu-*-test") if p.name != "npu-driver-test")


def test_the_programs_were_built():
    assert "npu-support-test" in PROGRAMS and "npu-allocator-test" in PROGRAMS


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program):
    result = subprocess.run([LIBRARIES / program], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]


@pytest.mark.parametrize(
    "settings, tests",
    [
        ({"NPU_CMODEL_ISA": "avx2"}, ""),
        ({"NPU_CMODEL_ISA": "avx2", "NPU_CMODEL_JIT": "off"}, "loop"),
        ({"NPU_CMODEL_ISA": "base"}, "loop"),
        ({"NPU_CMODEL_JIT": "off"}, "loop"),
    ],
    ids=["avx2", "avx2, no loops", "base", "no loops"],
)
def test_engine_at_every_level(settings, tests):
    """Loops of AVX2 code, and the same programs instruction by instruction: same bits, except for functions, which have
    their tolerance."""
    command = [LIBRARIES / "npu-engine-test", tests]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, **settings})
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]


@pytest.mark.parametrize(
    "driver, level", [("cmodel", ""), ("cmodel", "avx2"), ("cmodel:mode=exact", ""), ("template", "")]
)
def test_driver_keeps_the_contract(driver, level):
    command, settings = [LIBRARIES / "npu-driver-test", driver], {**os.environ, "NPU_CMODEL_ISA": level}
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, env=settings)
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]
