"""Running a user's script inside this process, under another driver."""

import os
import runpy
import sys
from pathlib import Path


def check(script: str, spec: str) -> str:
    """Sets the driver and tries to load it. Empty, or why that or the script cannot be had."""
    os.environ["TORCH_NPU_DRIVER"] = spec
    import torch

    import torch_npu

    if not Path(script).is_file():
        return f"expected a Python script, got {script}: no such file"
    if torch.npu.device_count() == 0:
        hardware = ", ".join(n for n in torch_npu._info.built_drivers() if not torch_npu._info.wrapped(n))
        return f"{torch_npu.driver_error()}; there are {hardware}"
    return ""


def run(script: str, arguments: list[str]) -> tuple[int, Exception | None]:
    """Exit status as Python would give it, and what the script raised, if it did."""
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0, None
        print(end.code, file=sys.stderr)
        return 1, None
    except Exception as error:
        return 1, error
    return 0, None
