"""Turns codegen/functions.ops into programs: printed, or as a string in a C++ file for support/reference.

    python codegen/sequences.py [FILE.cpp]

The source has Python's syntax, with the expressions of the op table (expression.py). A function named as an instruction
becomes a program of that name, which docs/isa.md, "Functions", makes the definition of the instruction; other functions
are written out where they are called, and an instruction that is called stays one. Numbers are f32 beside f32.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from expression import Program, Result, TableError, Value, instruction_arity

SOURCE = Path(__file__).resolve().parent / "functions.ops"
_NOTE = """\
# The functions of f32 as sequences of exactly rounded instructions: docs/isa.md, "Functions".
# Made by codegen/sequences.py from codegen/functions.ops.
"""
_CPP = (
    'namespace npu {{\nextern const char* const kFunctionText;\nconst char* const kFunctionText = R"npu({})npu";\n}}\n'
)


def _straight(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements in the order in which they run: `for _ in range(n)` is n times its body."""
    for statement in body:
        if isinstance(statement, ast.For):
            for _ in range(ast.literal_eval(statement.iter.args[0])):
                yield from _straight(statement.body)
        else:
            yield statement


def _pairs(target: ast.expr, value: Result | tuple[Result, ...]) -> Iterator[tuple[ast.Name, Result]]:
    """Names and what they become, in a tuple of any depth."""
    if not isinstance(target, ast.Tuple):
        yield target, value
        return
    for one, part in zip(target.elts, value, strict=True):
        yield from _pairs(one, part)


class Sequence(Program):
    """One function in the making."""

    def __init__(self, arguments: list[str], helpers: dict[str, ast.FunctionDef], numbers: dict[str, Result]) -> None:
        super().__init__([(name, "f32") for name in arguments], [], "float")
        self.compute = "f32"
        self.helpers = helpers
        self.names = self.numbers = numbers

    def run(self, function: ast.FunctionDef, names: dict[str, Result]) -> Result | tuple[Result, ...]:
        outer, self.names = self.names, {**self.numbers, **names}
        for statement in _straight(function.body):
            if isinstance(statement, ast.Return):
                result = self.value(statement.value)
                self.names = outer
                return result
            if isinstance(statement, ast.Assign):
                pairs = _pairs(statement.targets[0], self.value(statement.value))
                self.names = {**self.names, **{name.id: one for name, one in pairs}}
        raise TableError(f"{function.name}: expected a return")

    def value(self, node: ast.expr) -> Result | tuple[Result, ...]:
        if isinstance(node, ast.Tuple):
            return tuple(self.value(one) for one in node.elts)
        return super().value(node)

    def call(self, node: ast.Call) -> Result | tuple[Result, ...]:
        name = node.func.id
        if name in self.helpers:
            arguments = [a.arg for a in self.helpers[name].args.args]
            return self.run(self.helpers[name], dict(zip(arguments, map(self.value, node.args), strict=True)))
        if name == "horner":  # a polynomial, the highest power first
            x, result, *rest = map(self.value, node.args)
            for c in rest:
                result = self.op("fma", result, x, c)
            return result
        if name == "bits":
            return self.emit(f"bitcast {self.value(node.args[0]).id}, f32 -> i32", "i32")
        if name == "real":
            return self.emit(f"bitcast {self.value(node.args[0]).id}, i32 -> f32", "f32")
        return super().call(node)


def compile_functions(source: str) -> str:
    parts = ast.parse(source).body
    instructions = instruction_arity()
    numbers = {p.targets[0].id: ast.literal_eval(p.value) for p in parts if isinstance(p, ast.Assign)}
    functions = [p for p in parts if isinstance(p, ast.FunctionDef)]
    helpers = {f.name: f for f in functions if f.name not in instructions}
    texts = [_NOTE]
    for function in functions:
        if function.name in helpers:
            continue
        arguments = [a.arg for a in function.args.args]
        program = Sequence(arguments, helpers, numbers)
        result = program.run(function, {name: program.emit(f"load {name}", "f32", explicit=True) for name in arguments})
        if not isinstance(result, Value) or result.type != "f32":
            raise TableError(f"{function.name}: expected an f32 as result, got {result}")
        comment = (ast.get_docstring(function) or "").splitlines()
        head = f"program {function.name}({', '.join(arguments)}, out)\neach:"
        lines = [*(f"# {line}" for line in comment), head, *program.lines, f"  store out, {result.id}"]
        texts.append("\n".join(lines) + "\n")
    return "\n".join(texts)


if __name__ == "__main__":
    text = compile_functions(SOURCE.read_text())
    if len(sys.argv) > 2:
        sys.exit("expected at most one file, got " + " ".join(sys.argv[1:]))
    if len(sys.argv) == 2:
        Path(sys.argv[1]).write_text(_CPP.format(text))
    else:
        print(text, end="")
