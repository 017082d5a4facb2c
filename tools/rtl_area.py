"""Area of rtl/ by synthesis: python tools/rtl_area.py [MODULE ...] prints what each module takes on a 7-series FPGA.

Yosys (pip install pyosys==0.70) reads the design with slang and maps it with synth_xilinx. Modules inside a module are
black boxes, so a row is what the module itself takes, and the total adds up instances. Units that repeat one
circuit per lane are synthesised with two lanes and multiplied: the matrix engine is 256 times the same multiply-adder.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from check_rtl import sources  # noqa: E402

FEW = 2  # lanes of the modules below while they are synthesised
REPEATED = {"vector_alu": 1, "divider": 1, "matrix_engine": 2}  # cells grow with this power of the number of lanes
COLUMNS = {"LUT": r"LUT\d$", "FF": r"FD[RSCP]E", "DSP": r"DSP48", "LUTRAM": r"RAM(32|64|128|256)|RAMD", "BRAM": r"RAMB"}


def modules() -> dict[str, str]:
    return {
        file.stem: file.read_text() for file in sorted((ROOT / "rtl").glob("*.sv")) if not file.stem.endswith("_pkg")
    }


def children(texts: dict[str, str], module: str) -> collections.Counter:
    """Instances inside a module, by name."""
    found = collections.Counter()
    for name in texts:
        found[name] = len(re.findall(rf"^\s*{name} (?:#\(|u_)", texts[module], re.MULTILINE))
    return +found


# Instances that stand in a generate loop: how often, by the sizes of npu.toml.
def repeats(sizes: dict, module: str, child: str) -> int:
    if (module, child) == ("vector_unit", "walker"):
        return 2  # one of the two stands for three
    if (module, child) == ("gemm_loader", "operand_lane"):
        return sizes["LANES"] * (sizes["TILE_ROWS"] + sizes["TILE_COLUMNS"]) - 1
    return 0


def instances(texts: dict[str, str], sizes: dict, module: str) -> collections.Counter:
    """How many of each module there are in one of this."""
    number = collections.Counter({module: 1})
    for child, count in children(texts, module).items():
        for name, inside in instances(texts, sizes, child).items():
            number[name] += inside * (count + repeats(sizes, module, child))
    return number


def synthesise(texts: dict[str, str], module: str, folder: Path) -> dict[str, float]:
    """What one module takes by itself."""
    from pyosys import libyosys as yosys

    package = (folder / "npu_pkg.sv").read_text()
    lanes = int(re.search(r"int LANES = (\d+)", package)[1])
    few = folder / "few.sv"
    if module in REPEATED:
        few.write_text(package.replace(f"int LANES = {lanes};", f"int LANES = {FEW};"))
    files = sources(few if module in REPEATED else folder / "npu_pkg.sv")
    inside = children(texts, module)
    boxes = " ".join(f"--blackboxed-module {name}" for name in inside)
    design = yosys.Design()
    yosys.run_pass(f"read_slang --top {module} {boxes} {' '.join(map(str, files))}", design)
    for cell in design.top_module().cells_.values():  # a black box has no parameters
        if str(cell.type).removeprefix("\\") in inside:
            for parameter in list(dict(cell.parameters)):
                cell.unsetParam(parameter)
    yosys.run_pass(f"synth_xilinx -flatten -noiopad -top {module}", design)
    out = folder / "stat.json"
    yosys.run_pass(f"tee -q -o {out} stat -json -tech xilinx", design)
    cells = json.loads(out.read_text()[out.read_text().index("{") :])["design"]["num_cells_by_type"]
    times = (lanes // FEW) ** REPEATED[module] if module in REPEATED else 1
    return {
        column: times * sum(count for cell, count in cells.items() if re.match(pattern, cell))
        for column, pattern in COLUMNS.items()
    }


def run_one(module: str) -> dict[str, float]:
    """In a process of its own: Yosys talks a lot and keeps its memory."""
    command = [sys.executable, __file__, "--one", module]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{module} cannot be synthesised:\n{(result.stdout + result.stderr)[-3000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="default: all, which takes about ten minutes")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    texts = modules()
    if options.one:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, ROOT / "codegen/hardware.py", ROOT / "rtl/npu.toml", folder], check=True)
            print("\n" + json.dumps(synthesise(texts, options.modules[0], Path(folder))))
        return
    sizes = tomllib.loads((ROOT / "rtl/npu.toml").read_text())["sizes"]
    number = instances(texts, sizes, "npu_top")
    total = collections.Counter()
    print(f"| module | {' | '.join(COLUMNS)} | instances |\n|---|{'---|' * (len(COLUMNS) + 1)}")
    for module in options.modules or texts:
        area = run_one(module)
        print(f"| {module} | {' | '.join(f'{value:.0f}' for value in area.values())} | {number[module]} |", flush=True)
        for column, value in area.items():
            total[column] += value * number[module]
    if not options.modules:
        print(f"| all | {' | '.join(f'{total[column]:.0f}' for column in COLUMNS)} | |")


if __name__ == "__main__":
    main()
