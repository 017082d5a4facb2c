"""Builds the C++ side with CMake. Everything else about the package is in pyproject.toml.

`pip install --no-build-isolation .` compiles against the torch of the environment; `pip install -e .` builds into the
tree, as `make build` does. TORCH_NPU_BUILD=skip leaves CMake out (the Makefile has run it already).
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


class CMakeBuild(build_ext):
    def folder(self) -> Path:
        """The folder of `make` if that is for this Python, so that nothing is compiled twice."""
        made = ROOT / "build" / "CMakeCache.txt"
        here = re.compile(rf"^Python3_EXECUTABLE:\w+={re.escape(sys.executable)}$", re.MULTILINE)
        same = made.exists() and here.search(made.read_text())
        return ROOT / "build" if self.inplace or same else Path(self.build_temp).resolve()

    def run(self) -> None:
        if os.environ.get("TORCH_NPU_BUILD") == "skip":
            return
        # The CMake and Ninja of this environment, if it has them: those that made the folder below.
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        build = self.folder()
        configure = ["cmake", "-S", str(ROOT), "-B", str(build), f"-DPython3_EXECUTABLE={sys.executable}"]
        if build != ROOT / "build":
            configure.append(f"-DNPU_OUTPUT={build / 'torch_npu' / 'lib'}")
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
            # What `new-driver` writes: the template, the rooms of a complete driver, and the pages to read.
            new_driver = package / "new_driver"
            shutil.copy(ROOT / "drivers" / "template" / "template.c", new_driver)
            shutil.copytree(ROOT / "drivers" / "complete", new_driver / "complete", dirs_exist_ok=True)
            (new_driver / "docs").mkdir(exist_ok=True)
            for page in ("isa.md", "driver-guide.md"):
                shutil.copy(ROOT / "docs" / page, new_driver / "docs")


setup(ext_modules=[Extension("torch_npu._C", sources=[])], cmdclass={"build_ext": CMakeBuild})
