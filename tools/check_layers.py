"""Includes point one way across the contract, and the contract is plain C. Exit status 1 names each violation.

- include/, drivers/, support/, tools/ know no PyTorch.
- csrc/ knows no driver.
- a header of include/npu compiles alone as C99, C11 and C++.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
TORCH = re.compile(r"^(torch|ATen|c10|caffe2|pybind11|Python\.h)(/|$)")
DRIVERS = re.compile(r"^(\.\./)*drivers/")

# Folder, what it must not include, why.
RULES = (
    ("include", TORCH, "the contract knows no PyTorch"),
    ("include", re.compile(r"^(csrc|support|drivers)/"), "the contract knows nobody"),
    ("support", TORCH, "both sides use support/: it knows the contract only"),
    ("support", re.compile(r"^(csrc|drivers)/"), "both sides use support/: it knows the contract only"),
    ("drivers", TORCH, "a driver knows no PyTorch"),
    ("drivers", re.compile(r"^csrc/"), "a driver knows the contract only"),
    ("tools", TORCH, "tools run without PyTorch"),
    ("csrc", DRIVERS, "the PyTorch side knows no driver"),
)
SUFFIXES = {".h", ".c", ".cpp", ".def", ".inc"}


def wrong_includes() -> list[str]:
    found = []
    for folder, forbidden, why in RULES:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            for name in INCLUDE.findall(file.read_text()):
                if forbidden.search(name):
                    found.append(f"{file.relative_to(ROOT)} includes {name}: {why}")
    return found


def wrong_headers() -> list[str]:
    found = []
    compilers = (("gcc", "c99", "c"), ("gcc", "c11", "c"), ("g++", "c++20", "cpp"))
    for header in sorted((ROOT / "include" / "npu").glob("*.h")):
        for compiler, standard, suffix in compilers:
            with tempfile.TemporaryDirectory() as folder:
                source = Path(folder) / f"alone.{suffix}"
                source.write_text(f'#include "npu/{header.name}"\nint alone(void);\nint alone(void) {{ return 0; }}\n')
                command = [compiler, f"-std={standard}", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
                result = subprocess.run(
                    [*command, f"-I{ROOT / 'include'}", str(source)], capture_output=True, text=True
                )
                if result.returncode:
                    found.append(f"include/npu/{header.name} is not plain {standard}:\n{result.stderr.rstrip()}")
    return found


def main() -> int:
    found = wrong_includes() + wrong_headers()
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
