"""torch_npu.lock: the ops of a model that run on the CPU, kept in a file beside it, so that a change is noticed.

    with torch_npu.fallback.locked("torch_npu.lock"):      raises FallbackChanged if the set of ops is another one
        model(x)

python -m torch_npu lock does the same for a script. The file lists an op per line and is meant to be read and reviewed;
counts are not kept, because they change with every batch size.
"""

import shlex
from pathlib import Path

HEADER = "# Ops that run on the CPU. Written by python -m torch_npu lock; a comment behind an op may say why.\n"


class FallbackChanged(AssertionError):
    """The ops that fell back are not those of the file: `new` ones are not in it, `gone` ones no longer fall back."""

    def __init__(self, path: Path, new: list[str], gone: list[str]):
        self.path, self.new, self.gone = path, new, gone
        super().__init__(explain(path, new, gone))


def explain(path: Path, new: list[str], gone: list[str], command: str = "SCRIPT") -> str:
    """`command`: the script and its arguments."""
    lines = [f"{path}: expected the ops of the file to run on the CPU and no others"]
    lines += [f"  + {op}: runs on the CPU now and is not in the file" for op in new]
    lines += [f"  - {op}: is in the file and runs on the device now" for op in gone]
    again = f"python -m torch_npu lock --update --file {shlex.quote(str(path))} {command}"
    return "\n".join([*lines, f"write it anew with {again}, if this is meant"])


def read(path: Path) -> dict[str, str]:
    """Op to the comment behind it."""
    entries = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        op, _, comment = (part.strip() for part in line.partition("#"))
        if not op:
            continue
        if "::" not in op or " " in op:
            raise ValueError(f"{path}, line {number}: expected the name of an op such as aten::svd, got {op!r}")
        entries[op] = comment
    return entries


def write(path: Path, ops: list[str]) -> None:
    """Keeps the comments of entries that stay. A file that is none has no entries."""
    try:
        known = read(path) if path.exists() else {}
    except ValueError:
        known = {}
    lines = [op + (f"  # {known[op]}" if known.get(op) else "") + "\n" for op in sorted(ops)]
    path.write_text(HEADER + "".join(lines))


def compare(path: Path, ops: list[str]) -> tuple[list[str], list[str]]:
    """New ones and those that are gone. A file that is not there has no entries."""
    known = read(path) if path.exists() else {}
    return sorted(set(ops) - set(known)), sorted(set(known) - set(ops))
