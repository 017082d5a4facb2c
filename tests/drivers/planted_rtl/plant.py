"""Copies the RTL with bugs planted in it: python plant.py RTL FOLDER

Which bug is there, if any, is asked once when the simulation starts (bug.cpp), so that one build serves all tests.
"""

from __future__ import annotations

import sys
from pathlib import Path

# File, what it says, what the copy says.
_BUGS = (
    # rounding: what is computed from a product of significands is cut off instead of rounded.
    ("fp_pkg.sv", "    inc = m[27] & (|m[26:0] | m[28]);\n", "    inc = m[27] & (|m[26:0] | m[28]) & bug != 1;\n"),
    # stride: from one block of rows of a product to the next, one row too few.
    (
        "gemm_unit.sv",
        "assign m_hop = extend(packet.stride[0][1]) * ADDR_WIDTH'(ROWS);",
        "assign m_hop = extend(packet.stride[0][1]) * (fp_pkg::bug == 2 ? ADDR_WIDTH'(ROWS - 1) : ADDR_WIDTH'(ROWS));",
    ),
    (
        "fp_pkg.sv",
        "package fp_pkg;\n",
        'package fp_pkg;\n  import "DPI-C" function int npu_planted_bug();\n  int bug;\n',
    ),
    ("npu_top.sv", "  packet_t packet;\n", "  packet_t packet;\n  initial fp_pkg::bug = fp_pkg::npu_planted_bug();\n"),
)


def main() -> int:
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    texts = {file.name: file.read_text() for file in source.glob("*.sv")}
    for name, said, says in _BUGS:
        if texts[name].count(said) != 1:
            sys.stderr.write(f"{name}: expected one place that says {said!r}: plant the bug where it is now\n")
            return 1
        texts[name] = texts[name].replace(said, says)
    for name, text in texts.items():
        (folder / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
