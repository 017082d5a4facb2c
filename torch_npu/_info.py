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


def add_driver(spec: str) -> list[str]:
    """Loads one more driver (or several, with commas) and returns its devices: add_driver("cmodel") -> ["npu:1"].

    `spec` has the form of TORCH_NPU_DRIVER. Devices that exist stay as they are; nothing is ever unloaded. Autograd
    starts its threads at the first backward of a process: on a device added later, call backward within
    torch.autograd.set_multithreading_enabled(False).
    """
    from torch_npu.npu._lazy import _lazy_init

    _lazy_init()
    return [f"npu:{index}" for index in _C.add_drivers(spec)]


def wrapped(driver: str) -> bool:
    """Whether a driver, by its name, stands in front of another one and is no hardware itself."""
    return Path(driver).stem.removeprefix("libnpu_") in ("lockstep", "record")


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


def aoti_include_path() -> str:
    """The headers that models compiled ahead of time are made with (csrc/aoti in the repository)."""
    installed = Path(__file__).parent / "include" / "aoti"
    return str(installed if installed.is_dir() else Path(__file__).parent.parent / "csrc" / "aoti")


def built_drivers() -> list[str]:
    """Names of the drivers that come with this package."""
    return sorted(p.stem.removeprefix("libnpu_") for p in Path(library_path()).glob("libnpu_*.so"))
