"""10. A driver. The hardware is a plug-in: three commands lead from nothing to a model on a driver of one's own."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def shell(tmp_path):
    """Runs a line of shell in an empty folder, with the Python of the tests first on the path."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])

    def run(line: str) -> str:
        result = subprocess.run(
            line, shell=True, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
        )
        assert result.returncode == 0, f"{line}\n{result.stdout}{result.stderr}"
        return result.stdout + result.stderr

    return run


def test_three_commands_lead_to_a_model_on_a_new_driver(shell, tmp_path):
    said = shell("python -m torch_npu new-driver mychip")
    assert f"make -C mychip test PYTHON={sys.executable}" in said
    assert "warning" not in shell("make -C mychip CC='cc -Werror'")
    said = shell("TORCH_NPU_DRIVER=mychip/libnpu_mychip.so python mychip/model.py")
    assert "mychip: loss" in said and "0.0e+00 from the CPU's" in said and "on the CPU: aten::mm" in said
    assert (tmp_path / "mychip" / "README.md").read_text().count("@") == 0
    said = shell("make -C mychip test")
    assert "FAIL" not in said and "PASS" in said
