"""What is loaded, and what the device was given."""

import os
from pathlib import Path
from typing import Any

from torch_npu import _C


def drivers() -> list[dict[str, Any]]:
    """Every loaded driver, in the order of TORCH_NPU_DRIVER: name, options, path, version, its devices.

    Empty if none could be loaded; driver_error() then says why.
    """
    return _C.drivers()


def driver_error() -> str:
    """Why drivers could not be loaded, in one sentence; empty if all is well."""
    return _C.driver_error()


def driver_setting() -> str:
    return os.environ.get("TORCH_NPU_DRIVER") or "cmodel"


def library_path() -> str:
    """The folder of libtorch_npu and the drivers."""
    return str(Path(__file__).parent / "lib")


def include_path() -> str:
    """The folder to give to a compiler (-I) so that `#include "npu/runtime.h"` works."""
    installed = Path(__file__).parent / "include"
    return str(installed if installed.is_dir() else Path(__file__).parent.parent / "include")
