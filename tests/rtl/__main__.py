"""python -m tests.rtl [MODULE ...] [--seed N] [--work X]: the benches, one process each. Exit status 1 if one fails."""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree
from pathlib import Path

import cocotb_tools.config
import find_libpython

from tests.rtl.build import ROOT, build, module_names


def bench(program: Path, module: str, seed: int = 1, work: float = 1, **variables: str) -> tuple[bool, str]:
    """Runs the bench of one module: whether it passed, and in a few words how."""
    folder = program.parent / f"{module}-{seed}"
    folder.mkdir(exist_ok=True)
    results = folder / "results.xml"
    results.unlink(missing_ok=True)
    environment = os.environ | {
        "COCOTB_TEST_MODULES": f"tests.rtl.benches.{module}",
        "COCOTB_TOPLEVEL": "top",
        "TOPLEVEL_LANG": "verilog",
        "COCOTB_RESULTS_FILE": str(results),
        "COCOTB_TRUST_INERTIAL_WRITES": "1",
        "COCOTB_LOG_LEVEL": "WARNING",
        "PYGPI_PYTHON_BIN": sys.executable,
        "GPI_USERS": f"{find_libpython.find_libpython()};{cocotb_tools.config.pygpi_entry_point()}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "BENCH_SEED": str(seed),
        "BENCH_WORK": str(work),
    }
    start = time.monotonic()
    command = [str(program), f"+verilator+coverage+file+{folder / 'coverage.dat'}"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment | variables)
    output = re.sub(r"\x1b\[[0-9;]*m", "", run.stdout + run.stderr)
    cases = xml.etree.ElementTree.parse(results).getroot().iter("testcase") if results.exists() else []
    cases = [(case.get("name"), case.find("failure") is None and case.find("error") is None) for case in cases]
    passed = run.returncode == 0 and bool(cases) and all(good for _, good in cases)
    if passed:
        return True, f"{len(cases)} tests, {time.monotonic() - start:.1f} s"
    why = [line for line in output.splitlines() if "Error" in line]
    failed = ", ".join(name for name, good in cases if not good) or "it did not run"
    return False, f"{failed}: {why[-1].strip() if why else output[-2000:]}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rtl", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="default: all of rtl/")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=float, default=1, help="multiple of the usual traffic")
    parser.add_argument("--rtl", type=Path, default=ROOT / "rtl", help="another folder than rtl/")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "benches", help="where the simulation is built")
    options = parser.parse_args()
    known = module_names(options.rtl)
    for name in options.modules:
        if name not in known:
            parser.error(f"expected modules of rtl/ ({', '.join(known)}), got {name}")
    start = time.monotonic()
    program = build(options.build, options.rtl)
    print(f"simulation: {time.monotonic() - start:.1f} s", flush=True)
    failed = False
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        modules = options.modules or known
        runs = {name: pool.submit(bench, program, name, options.seed, options.work) for name in modules}
        for name, run in runs.items():
            passed, text = run.result()
            failed |= not passed
            print(f"{'PASS' if passed else 'FAIL'} {name}: {text}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
