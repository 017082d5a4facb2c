"""The C++ tests: programs beside the libraries, each of which exits with 0 if all is well."""

import subprocess
from pathlib import Path

import pytest

LIBRARIES = Path(__file__).resolve().parent.parent / "torch_npu" / "lib"
PROGRAMS = sorted(p.name for p in LIBRARIES.glob("npu-*-test") if p.name != "npu-driver-test")


def test_the_programs_were_built():
    assert "npu-support-test" in PROGRAMS and "npu-allocator-test" in PROGRAMS


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program):
    result = subprocess.run([LIBRARIES / program], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]


@pytest.mark.parametrize("driver", ["cmodel", "cmodel:mode=exact", "template"])
def test_driver_keeps_the_contract(driver):
    result = subprocess.run([LIBRARIES / "npu-driver-test", driver], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]
