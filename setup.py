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
        package = ROOT / "torch_npu" if self.inplace else Path(self.build_lib).resolve() / "torch_npu"
        build = ROOT / "build" if self.inplace else Path(self.build_temp).resolve()
        output = package / "lib"
        output.mkdir(parents=True, exist_ok=True)
        build.mkdir(parents=True, exist_ok=True)

        configure = ["cmake", "-S", str(ROOT), "-B", str(build), f"-DPython3_EXECUTABLE={sys.executable}"]
        configure += [f"-DNPU_OUTPUT={output}", f"-DNPU_TESTS={'ON' if self.inplace else 'OFF'}"]
        if shutil.which("ninja") and not (build / "Makefile").exists():
            configure += ["-G", "Ninja"]
        subprocess.run(configure, check=True)
        jobs = os.environ.get("MAX_JOBS") or str(os.cpu_count() or 1)
        subprocess.run(["cmake", "--build", str(build), "-j", jobs], check=True)
        if not self.inplace:
            # Driver authors compile against the contract's headers: torch_npu.include_path().
            shutil.copytree(ROOT / "include" / "npu", package / "include" / "npu", dirs_exist_ok=True)
            # Models that are compiled ahead of time are made with these.
            shutil.copytree(ROOT / "csrc" / "aoti", package / "include" / "aoti", dirs_exist_ok=True)
            shutil.copy(ROOT / "drivers" / "template" / "template.c", package / "new_driver")
            # Test programs and drivers that fail on purpose serve the repository only.
            shutil.rmtree(output / "testing", ignore_errors=True)
            for program in output.glob("npu-*"):
                if program.name not in ("npu-driver-test", "npu-replay"):
                    program.unlink()


setup(ext_modules=[Extension("torch_npu._C", sources=[])], cmdclass={"build_ext": CMakeBuild})
