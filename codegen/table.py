"""The op table's own syntax; codegen/pointwise.ops describes it in its first lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from expression import KINDS, TableError, compile_paired

_ENTRY = re.compile(
    r"^(?P<kernel>kernel\s+)?(?P<name>[\w.]+)\((?P<arguments>[^)]*)\)"
    r"\s*(?:\[(?P<marks>[^\]]*)\])?\s*(?:when\s+(?P<condition>.+?))?\s*:\s+(?P<body>.+)$"
)
# How an op without a structured meta builds its iterator: a function of csrc/aten/dispatch/pointwise.h.
ITERATORS = ("unary", "unary_float", "unary_bool", "unary_real", "unary_float_real", "binary", "binary_float")
ITERATORS += ("compare", "ternary")
# The kinds that `all` stands for.
_ALL = ("float", "int", "bool")


@dataclass
class Variant:
    """The lines of an op that share a condition; a program for each kind of type they name."""

    condition: str
    operands: list[str]
    params: list[str]
    texts: dict[str, str]  # kind to program text
    source: list[str]
    parts: bool = False
    pairs: int = 0  # of the complex program: a bit for each tensor that is two of its operands

    @property
    def param_names(self) -> list[str]:
        return [p.partition(":")[0].strip() for p in self.params]


@dataclass
class Entry:
    """All lines of one op."""

    name: str  # add.Tensor
    kernel: bool  # a program only, for a kernel written by hand
    iterator: str  # "" for structured ops
    wide: bool
    variants: list[Variant]

    @property
    def complex(self) -> bool:
        return any("complex" in v.texts for v in self.variants)

    @property
    def identifier(self) -> str:
        return self.name.replace(".", "_")


def _lines(path: Path) -> list[tuple[int, str]]:
    """Logical lines with the number of their first line: comments removed, indented lines joined to the one before."""
    joined: list[tuple[int, str]] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.split("#")[0].rstrip()
        if not text:
            continue
        if text[0] == " " and joined:
            joined[-1] = (joined[-1][0], joined[-1][1] + " " + text.strip())
        else:
            joined.append((number, text))
    return joined


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _add(entries: dict[str, Entry], match: re.Match[str], line: str) -> None:
    operands, _, params = match["arguments"].partition(";")
    marks = (match["marks"] or "").split()
    kinds = [k for k in KINDS if k in marks or ("all" in marks and k in _ALL)] or ["float"]
    iterator = next((m for m in marks if m in ITERATORS), "")
    if unknown := [m for m in marks if m not in (*KINDS, *ITERATORS, "all", "wide", "parts")]:
        raise TableError(
            f"expected marks out of {', '.join((*KINDS, 'all', 'wide', 'parts', *ITERATORS))}, got {unknown[0]}"
        )
    entry = entries.setdefault(match["name"], Entry(match["name"], bool(match["kernel"]), iterator, False, []))
    entry.iterator = entry.iterator or iterator
    entry.wide = entry.wide or "wide" in marks
    condition = match["condition"] or ""
    operands, params = _split(operands), _split(params)
    made = {k: compile_paired(entry.identifier, operands, params, match["body"], k) for k in kinds}
    texts, pairs = {k: text for k, (text, _) in made.items()}, made.get("complex", ("", 0))[1]
    last = entry.variants[-1] if entry.variants else None
    if last and (last.condition, last.operands, last.params) == (condition, operands, params):
        last.texts.update({k: t for k, t in texts.items() if k not in last.texts})
        last.source.append(line)
        last.pairs = last.pairs or pairs
    else:
        entry.variants.append(Variant(condition, operands, params, texts, [line], "parts" in marks, pairs))


def read_table(path: Path) -> list[Entry]:
    entries: dict[str, Entry] = {}
    for number, line in _lines(path):
        try:
            if not (match := _ENTRY.match(line)):
                raise TableError("expected `name(operands; parameters) [marks] when condition: expression`")
            _add(entries, match, line)
        except TableError as error:
            raise TableError(f"{path.name}:{number}: {error}") from None
    return list(entries.values())
