"""Runs Verilator and leaves one C++ file behind: python codegen/verilate.py ROOT TOP FOLDER FLAGS... -- SOURCES...

ROOT is Verilator's folder. Verilator names its files as it likes; FOLDER/<TOP>_all.cpp includes them, so that CMake
knows one name beforehand.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def main() -> int:
    root, top, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"V{top}*"):
        old.unlink()
    options = [argument for argument in sys.argv[4:] if argument != "--"]
    result = subprocess.run(
        [root / "bin" / "verilator_bin", "--cc", "--Mdir", folder, "--top-module", top, *options],
        env={**os.environ, "VERILATOR_ROOT": str(root)},
        capture_output=True,
        text=True,
    )
    if result.returncode:
        sys.stderr.write(result.stdout + result.stderr)
        return result.returncode
    files = sorted(file.name for file in folder.glob(f"V{top}*.cpp"))
    (folder / f"{top}_all.cpp").write_text("".join(f'#include "{file}"\n' for file in files))
    return 0


if __name__ == "__main__":
    sys.exit(main())
