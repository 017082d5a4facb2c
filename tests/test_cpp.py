"""The C++ tests: programs beside the libraries, each of which exits with 0 if all is well."""

import os
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


@pytest.mark.parametrize("setting", ["NPU_CMODEL_JIT=off", "NPU_CMODEL_ISA=avx2", "NPU_CMODEL_ISA=base"])
def test_loops_without_a_compiler_for_them(setting):
    """The same programs run instruction by instruction: same bits, except for functions, which have their tolerance."""
    name, value = setting.split("=")
    command = [LIBRARIES / "npu-engine-test", "loop"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, name: value})
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]


@pytest.mark.parametrize("driver", ["cmodel", "cmodel:mode=exact", "template"])
def test_driver_keeps_the_contract(driver):
    result = subprocess.run([LIBRARIES / "npu-driver-test", driver], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]
