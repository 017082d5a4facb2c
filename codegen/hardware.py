"""Turns rtl/npu.toml into a SystemVerilog package and a C++ header: python codegen/hardware.py rtl/npu.toml FOLDER

Both sides of the register interface come from one description, so that they cannot disagree.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

_NOTE = "// Made by codegen/hardware.py from rtl/npu.toml. Do not edit.\n"
# Section, prefix of its names, width in the package (0: int).
_SECTIONS = (
    ("sizes", "", 0),
    ("registers", "REG_", 8),
    ("values", "", 32),
    ("opcodes", "OP_", 8),
    ("flags", "FLAG_", 16),
    ("errors", "ERROR_", 8),
    ("types", "TYPE_", 4),
    ("operations", "VEC_", 8),
)


def names(config: dict, section: str, prefix: str) -> dict[str, int]:
    return {prefix + name: value for name, value in config[section].items()}


def check(config: dict) -> None:
    """Says what is wrong with the description instead of leaving it to a wrong circuit."""
    for section, prefix, width in _SECTIONS:
        if section not in config:
            raise SystemExit(f"npu.toml: expected a section [{section}], got none")
        for name, value in names(config, section, prefix).items():
            if width and not 0 <= value < 1 << width:
                raise SystemExit(f"npu.toml: expected {name} to fit {width} bits, got {value}")
        if section not in ("sizes", "values") and len(set(config[section].values())) != len(config[section]):
            raise SystemExit(f"npu.toml: expected different numbers in [{section}], got one twice")
    sizes = config["sizes"]
    for name in ("LINE_BYTES", "LANES", "CHUNK", "READS", "WRITES", "RESULTS"):
        if sizes[name] & (sizes[name] - 1):
            raise SystemExit(f"npu.toml: expected {name} to be a power of two, got {sizes[name]}")
    if sizes["LINE_BYTES"] != 4 * sizes["LANES"]:
        raise SystemExit("npu.toml: expected LINE_BYTES to be 4 * LANES: a line holds one vector of 32-bit lanes")


def literal(value: int, width: int) -> str:
    return f"{width}'d{value}" if width else str(value)


def package(config: dict) -> str:
    lines = [_NOTE, "package npu_pkg;"]
    for section, prefix, width in _SECTIONS:
        kind = f"logic [{width - 1}:0]" if width else "int"
        lines.append(f"  // {section}")
        for name, value in names(config, section, prefix).items():
            lines.append(f"  localparam {kind} {name} = {literal(value, width)};")
    lines.append(f"  localparam logic [7:0] VEC_LAST = 8'd{max(config['operations'].values())};")
    lines.append(f"  localparam logic [7:0] OP_LAST = 8'd{max(config['opcodes'].values())};")
    lines.append(f"  localparam logic [3:0] TYPE_LAST = 4'd{max(config['types'].values())};")
    lines.append("endpackage")
    return "\n".join([*lines, ""])


def header(config: dict) -> str:
    lines = [_NOTE, "#pragma once", "#include <cstdint>\n", "namespace npu_hw {", ""]
    for section, prefix, _ in _SECTIONS:
        lines.append(f"// {section}")
        for name, value in names(config, section, prefix).items():
            lines.append(
                f"constexpr uint32_t {name} = {value:#x};" if value > 9 else f"constexpr uint32_t {name} = {value};"
            )
        lines.append("")
    return "\n".join([*lines, "}  // namespace npu_hw", ""])


def main() -> None:
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    config = tomllib.loads(source.read_text())
    check(config)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "npu_pkg.sv").write_text(package(config))
    (folder / "npu_hw.h").write_text(header(config))


if __name__ == "__main__":
    main()
