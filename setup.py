"""Builds the C++ side with CMake. Everything else about the package is in pyproject.toml.

`pip install --no-build-isolation .` compiles against the torch of the environment; `pip install -e .` builds into the
tree, as `make build` does. TORCH_NPU_BUILD=skip leaves CMake out (the Makefile has run it already).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


class CMakeBuild(build_ext):
    def run(self) -> None:
        if os.environ.get("TORCH_NPU_BUILD") == "skip":
            return
        # The folder of `make`: what is compiled there already is not compiled again.
        build = ROOT / "build"
        configure = ["cmake", "-S", str(ROOT), "-B", str(build), f"-DPython3_EXECUTABLE={sys.executable}"]
        if shutil.which("ninja") and not (build / "Makefile").exists():
            configure += ["-G", "Ninja"]
        subprocess.run(configure, check=True)
        jobs = os.environ.get("MAX_JOBS") or str(os.cpu_count() or 1)
        target = [] if self.inplace else ["--target", "wheel"]
        subprocess.run(["cmake", "--build", str(build), "-j", jobs, *target], check=True)
        if not self.inplace:
            package = Path(self.build_lib).resolve() / "torch_npu"
            subprocess.run(["cmake", "--install", str(build), "--prefix", str(package)], check=True)
            # Driver authors compile against the contract's headers: torch_npu.include_path().
            shutil.copytree(ROOT / "include" / "npu", package / "include" / "npu", dirs_exist_ok=True)
            # Models that are compiled ahead of time are made with these.
            shutil.copytree(ROOT / "csrc" / "aoti", package / "include" / "aoti", dirs_exist_ok=True)
            shutil.copy(ROOT / "drivers" / "template" / "template.c", package / "new_driver")


setup(ext_modules=[Extension("torch_npu._C", sources=[])], cmdclass={"build_ext": CMakeBuild})
