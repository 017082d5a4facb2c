"""PyTorch's own operator database: what passes on the CPU passes on npu."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("driver", ["template", "cmodel"])
def test_every_float32_op_with_gradients(driver, tmp_path):
    """On the template every command is refused, so it proves the fallback; the C model proves the native kernels."""
    run = subprocess.run(
        [sys.executable, "-m", "torch_npu.testing.opinfo", "--dtype", "float32", "--grad"],
        env={**os.environ, "TORCH_NPU_DRIVER": driver},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    passed = int(run.stdout.split(" passed, ")[0].split()[-1])
    assert passed > 600
