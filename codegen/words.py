"""Turns codegen/words.ops and words_f64.ops into support/legalise/numbers/words.npu: python codegen/words.py

The source is that of codegen/sequences.py, over i32 instead of f32. A function with a result type becomes a program;
others are written out where they are called. An argument or result of i64, u64 or f64 is a pair of words, low and high:
two operands of the program. Numbers are i32 beside i32 and f32 beside f32; arithmetic on numbers is done here.
"""

from __future__ import annotations

import ast
import operator
import sys
from pathlib import Path

from expression import Result, TableError, Value
from sequences import Sequence

FOLDER = Path(__file__).resolve().parent
SOURCES = [FOLDER / "words.ops", FOLDER / "words_f64.ops"]
TARGET = FOLDER.parent / "support" / "legalise" / "numbers" / "words.npu"
_NOTE = """\
# Numbers of 64 bits as pairs of words, low and high, in i32, f32 and bool: docs/design/legalisation.md.
# Made by codegen/words.py from codegen/words.ops, where they can be read. Do not edit.
"""
_WIDE = {"i64", "u64", "f64"}
_FOLDED = {
    "shl": operator.lshift,
    "shr": operator.rshift,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "not": operator.invert,
    "max": max,
    "min": min,
    "eq": operator.eq,
    "lt": operator.lt,
    "ge": operator.ge,
}


class Words(Sequence):
    """One function in the making."""

    def __init__(self, operands: list[tuple[str, str]], helpers: dict[str, ast.FunctionDef], numbers: dict) -> None:
        super().__init__([], helpers, numbers)
        self.kind = "int"
        self.compute = "i32"
        self.operands = dict(operands)

    def common(self, values: list[Result]) -> list[Value]:
        real = any(isinstance(v, float) for v in values) and not any(isinstance(v, Value) for v in values)
        return [self.as_type(v, "f32") for v in values] if real else super().common(values)

    def op(self, name: str, *arguments: Result) -> Result:
        if name == "where" and not isinstance(arguments[0], Value):
            return arguments[1] if arguments[0] else arguments[2]
        if name in _FOLDED and not any(isinstance(a, Value) for a in arguments):
            return _FOLDED[name](*arguments)
        return super().op(name, *arguments)

    def call(self, node: ast.Call) -> Result | tuple[Result, ...]:
        if node.func.id != "pick":
            return super().call(node)
        condition, yes, no = map(self.value, node.args)  # `yes if condition else no` of pairs
        return tuple(self.op("where", condition, a, b) for a, b in zip(yes, no, strict=True))


def _words(name: str, type_: str) -> list[tuple[str, str]]:
    if type_ == "words4":
        return [(f"{name}_{k}", "i32") for k in range(4)]
    return [(f"{name}_low", "i32"), (f"{name}_high", "i32")] if type_ in _WIDE else [(name, type_)]


def source_text() -> str:
    return "\n".join(path.read_text() for path in SOURCES)


def compile_words(source: str) -> str:
    parts = ast.parse(source).body
    numbers = {p.targets[0].id: ast.literal_eval(p.value) for p in parts if isinstance(p, ast.Assign)}
    functions = [p for p in parts if isinstance(p, ast.FunctionDef)]
    helpers = {f.name: f for f in functions if f.returns is None}
    texts = [_NOTE]
    for function in functions:
        if function.returns is None:
            continue
        arguments = {a.arg: _words(a.arg, a.annotation.id) for a in function.args.args}
        program = Words([word for words in arguments.values() for word in words], helpers, numbers)
        loaded = {
            name: tuple(program.emit(f"load {word}", type_, explicit=True) for word, type_ in words)
            for name, words in arguments.items()
        }
        names = {name: words if len(words) == 2 else words[0] for name, words in loaded.items()}
        result = program.run(function, names)
        results = _words("out", function.returns.id)
        values = result if isinstance(result, tuple) else (result,)
        if len(values) != len(results):
            raise TableError(f"{function.name}: expected {len(results)} words as result, got {len(values)}")
        stores = [
            f"  store {name}, {program.as_type(value, type_).id}"
            for value, (name, type_) in zip(values, results, strict=True)
        ]
        operands = ", ".join([*program.operands, *(name for name, _ in results)])
        comment = (ast.get_docstring(function) or "").splitlines()
        head = f"program {function.name}({operands})\neach:"
        texts.append("\n".join([*(f"# {line}" for line in comment), head, *program.lines, *stores]) + "\n")
    return "\n".join(texts)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit("expected no argument, got " + " ".join(sys.argv[1:]))
    TARGET.write_text(compile_words(source_text()))
