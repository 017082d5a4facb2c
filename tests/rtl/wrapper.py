"""top: every module of rtl/ side by side, in one simulation, because a Verilator build costs more than a bench.

The port P of module M is the port M__P of top; an unpacked array becomes one vector, element 0 lowest. All share a
clock, and a module whose inputs nobody moves costs nothing.
"""

from __future__ import annotations

from pathlib import Path

from pyslang.ast import ArgumentDirection
from pyslang.driver import Driver


def _ports(sources: list[Path], modules: list[str]) -> dict[str, list[tuple[str, bool, int, int]]]:
    """By module: name, whether it is an input, elements (0: no array), bits of an element."""
    driver = Driver()
    driver.addStandardArgs()
    tops = " ".join(f"--top {name}" for name in modules)
    driver.parseCommandLine(f"slang {tops} {' '.join(map(str, sources))}")
    driver.processOptions()
    driver.parseAllSources()
    found = {}
    for instance in driver.createCompilation().getRoot().topInstances:
        ports = []
        for port in instance.body.portList:
            kind = port.type.canonicalType
            count = kind.fixedRange.width if kind.isUnpackedArray else 0
            bits = (kind.elementType if count else kind).bitWidth
            ports.append((port.name, port.direction == ArgumentDirection.In, count, bits))
        found[instance.name] = ports
    return found


def wrapper(sources: list[Path], modules: list[str]) -> str:
    declared, body = ["    input logic clk /*verilator public_flat_rw*/"], []
    for module, ports in _ports(sources, modules).items():
        connections = []
        for name, is_input, count, bits in ports:
            if name == "clk":
                connections.append(".clk")
                continue
            outer = f"{module}__{name}"
            direction = "input" if is_input else "output"
            declared.append(
                f"    {direction} logic [{max(count, 1) * bits - 1}:0] {outer} /*verilator public_flat_rw*/"
            )
            if not count:
                connections.append(f".{name}({outer})")
                continue
            inner = f"{outer}_elements"
            body.append(f"  logic [{bits - 1}:0] {inner}[{count}];")
            part = f"{outer}[{bits}*i+:{bits}]"
            to, by = (f"{inner}[i]", part) if is_input else (part, f"{inner}[i]")
            body.append(f"  for (genvar i = 0; i < {count}; i++) assign {to} = {by};")
            connections.append(f".{name}({inner})")
        body.append(f"  {module} u_{module} (\n      " + ",\n      ".join(connections) + "\n  );")
    return "module top (\n" + ",\n".join(declared) + "\n);\n" + "\n".join(body) + "\nendmodule\n"
