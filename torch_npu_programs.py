"""npu-replay, npu-driver-test and npu-rtl-test on PATH: programs in the package's lib folder. They need neither
Python nor PyTorch, so this is a module of its own: importing torch_npu would import torch."""

import importlib.util
import os
import sys
from pathlib import Path


def main() -> None:
    name = Path(sys.argv[0]).stem
    package = importlib.util.find_spec("torch_npu")
    folders = package.submodule_search_locations if package else None
    program = Path(folders[0] if folders else ".") / "lib" / name
    if not program.exists():
        sys.exit(f"{name}: expected the program at {program}, found none: it is not part of this build")
    os.execv(program, [name, *sys.argv[1:]])
