"""The examples do what they print: exit status 0 means that the device followed the CPU."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def test_the_demo_follows_the_cpus_loss_curve(tmp_path):
    run = subprocess.run(
        [sys.executable, EXAMPLES / "lenet_digits.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-1000:]
    assert "agrees with the CPU" in run.stdout
