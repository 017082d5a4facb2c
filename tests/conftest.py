"""Shared by all tests: two C model devices unless TORCH_NPU_DRIVER says otherwise, and Python in a child process."""

import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

os.environ.setdefault("TORCH_NPU_DRIVER", "cmodel:devices=2")

import pytest
import torch

import torch_npu
from tests.support import LIBRARIES, ROOT
from tests.support.command_line import Finished
from torch_npu import debug


@pytest.fixture(autouse=True, scope="module")
def no_garbage():
    """What other files left would be freed in the middle of a test that counts memory."""
    gc.collect()


def child(command: list[str], timeout: float, folder: Path, variables: dict[str, str | None]) -> Finished:
    environment = {name: value for name, value in {**os.environ, **variables}.items() if value is not None}
    command = [sys.executable, *command]
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment, cwd=folder)
    return Finished(result.returncode, result.stdout, result.stderr)


@pytest.fixture
def python():
    """Runs a piece of Python in a new process: python(code, TORCH_NPU_DRIVER="template"). None removes a variable."""

    def run(code: str, *arguments: str, timeout: float = 120, **variables: str | None) -> Finished:
        return child(["-c", textwrap.dedent(code), *arguments], timeout, ROOT, variables)

    return run


@pytest.fixture
def module():
    """Runs python -m torch_npu with arguments."""

    def run(*arguments: str, timeout: float = 300, folder: Path = ROOT, **variables: str) -> Finished:
        return child(["-m", "torch_npu", *arguments], timeout, folder, variables)

    return run


@pytest.fixture
def two_devices():
    if torch.npu.device_count() < 2:
        pytest.skip("needs two devices: TORCH_NPU_DRIVER=cmodel:devices=2")


@pytest.fixture
def cmodel():
    """For what only a driver that runs commands, and runs them asynchronously, can show."""
    if torch.npu.get_device_properties(0).driver != "cmodel":
        pytest.skip("needs the C model on npu:0")


@pytest.fixture
def broken_driver():
    """The path of a driver of tests/drivers that fails on purpose."""

    def path(name: str) -> str:
        found = LIBRARIES / "testing" / f"libnpu_{name}.so"
        assert found.exists(), f"{found} is not built"
        return str(found)

    return path


@pytest.fixture(autouse=True)
def _device_as_found():
    """Every test starts on npu:0 and its default stream, with fallbacks allowed, and must leave the device working."""
    torch.npu.set_device(0)
    with torch_npu.fallback.mode("quiet"):
        yield
    torch.npu.synchronize()


@pytest.fixture
def log(tmp_path):
    """Runs a function with the log on, and returns its lines."""

    def run(work, level=1, **options) -> list[str]:
        file = tmp_path / "log"
        with debug.debug_mode(level, file=file, **options):
            work()
            torch.npu.synchronize()
        lines = file.read_text().splitlines()
        file.unlink()
        return lines

    return run
