"""Expressions of the op table, turned into program text (docs/isa.md, "Text form").

    >>> print(compile_program("silu", ["x"], [], "x / (1 + exp(-x))", "float"))

Names are operands, parameters, and values named by `name = expression;` in front of the result. A tuple is several
results. Equal subexpressions are computed once; arithmetic on numbers is done here. `$t` stands for the type that the
op computes in, which is known when it runs.

In a complex program every operand, parameter and result is a pair of real ones, x_re and x_im, unless a type says
otherwise; complex_rules.py holds the arithmetic.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from pathlib import Path

from complex_rules import RULES
from series import SERIES

INSTRUCTIONS = Path(__file__).resolve().parent.parent / "include" / "npu" / "ops.def"

KINDS = ("float", "int", "bool", "complex")
_BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "shr",
}
_COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_FOLD = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "pow": lambda a, b: a**b,
    "sqrt": math.sqrt,
    "rsqrt": lambda a: 1 / math.sqrt(a),
    "log": math.log,
    "exp": math.exp,
}
_NUMBERS = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan, "true": True, "false": False}
_TO_BOOL = {"isnan", "isinf", "signbit"}
_TYPES = {"bool", "i32", "i64", "u64", "f32", "f64"}
_REAL = "real"  # the type of an operand that is not complex in a complex program either
_ROUNDED = {"f16", "bf16"}


class TableError(ValueError):
    """A table entry that cannot be turned into a program."""


@dataclass(frozen=True)
class Value:
    """An instruction's result."""

    id: str
    type: str


@dataclass(frozen=True)
class Complex:
    """A complex value: two real ones, of which either may be a number."""

    re: Value | float | int
    im: Value | float | int


Result = Value | Complex | float | int | bool


def instruction_arity() -> dict[str, int]:
    """Text form of each arithmetic instruction to its number of arguments, as the contract lists them."""
    found = re.findall(r'NPU_OP\(\w+, "(\w+)", (\d)\)', INSTRUCTIONS.read_text())
    names = [name for name, _ in found]
    return {name: int(count) for name, count in found[names.index("add") :] if name != "philox"}


_ARITY = instruction_arity()


class Program:
    """The instructions of one program, in the making."""

    def __init__(self, operands: list[tuple[str, str]], params: list[tuple[str, str]], kind: str) -> None:
        self.kind = kind
        self.compute = "bool" if kind == "bool" else "$t"
        self.operands = dict(operands)
        self.params = dict(params)
        self.names: dict[str, Result] = {}
        self.lines: list[str] = []
        self.known: dict[tuple[str, ...], Value] = {}

    def emit(self, text: str, type_: str, *, explicit: bool = False) -> Value:
        """One instruction, or the value of the same instruction before it."""
        key = (text, type_)
        if key not in self.known:
            value = Value(f"%{len(self.known)}", type_)
            self.lines.append(f"  {value.id} = {text}" + (f" : {type_}" if explicit else ""))
            self.known[key] = value
        return self.known[key]

    def as_type(self, value: Result, type_: str) -> Value:
        if isinstance(value, Complex):
            if type_ != "bool":
                raise TableError("expected a real value, got a complex one: use real, imag or abs")
            return self.op("or", *(self.op("ne", part, 0) for part in (value.re, value.im)))
        if isinstance(value, Value):
            return value if value.type == type_ else self.emit(f"cast {value.id}", type_, explicit=True)
        return self.emit(f"const {self.number(value, type_)}", type_, explicit=True)

    def number(self, value: float | int | bool, type_: str) -> str:
        floating = type_ in ("f32", "f64") or (type_ == "$t" and self.kind in ("float", "complex"))
        if type_ == "bool":
            return "true" if value else "false"
        if not floating:
            if value != int(value):
                raise TableError(f"expected a whole number for an integer program, got {value}")
            return str(int(value))
        if math.isnan(value):
            return "nan"
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        return repr(int(value)) if value == int(value) and abs(value) < 2**53 and value != 0 else repr(float(value))

    def common(self, values: list[Value | float | int | bool]) -> list[Value]:
        """Values of one type: bools become numbers beside numbers, and numbers take the type of the others."""
        types = [v.type for v in values if isinstance(v, Value)]
        wanted = next((t for t in types if t != "bool"), None)
        if wanted is None:
            plain = all(isinstance(v, Value | bool) or v in (0, 1) for v in values)
            wanted = "bool" if types and plain else self.compute
        return [self.as_type(v, wanted) for v in values]

    def op(self, name: str, *arguments: Result) -> Result:
        if any(isinstance(a, Complex) for a in arguments):
            return self.complex_op(name, *arguments)
        if name in _FOLD and not any(isinstance(a, Value) for a in arguments):
            return _FOLD[name](*arguments)
        if name == "pow" and arguments[1] == 2:
            name, arguments = "mul", (arguments[0], arguments[0])
        if name == "where":
            condition, *rest = arguments
            left, right = self.common(rest)
            chosen = self.as_type(condition, "bool")
            return self.emit(f"where {chosen.id}, {left.id}, {right.id}", left.type)
        if name == "ldexp":
            left, right = self.as_type(arguments[0], self.compute), self.as_type(arguments[1], "i32")
            return self.emit(f"ldexp {left.id}, {right.id}", left.type)
        values = self.common(list(arguments))
        text = f"{name} " + ", ".join(v.id for v in values)
        if name in _COMPARE.values() or name in _TO_BOOL:
            return self.emit(text, "bool")
        if values[0].type == "bool" and name not in ("and", "or", "xor", "not", "min", "max"):
            if self.compute == "bool":
                raise TableError(f"{name} has no form for bool")
            values = [self.as_type(v, self.compute) for v in values]
            text = f"{name} " + ", ".join(v.id for v in values)
        return self.emit(text, "i32" if name == "frexp_e" else values[0].type)

    def complex_op(self, name: str, *arguments: Result) -> Result:
        """An instruction with a complex argument. A real one beside it stays real: no zeros are computed with."""
        if name == "pow" and arguments[1] == 2:
            name, arguments = "mul", (arguments[0], arguments[0])
        if name == "where":
            condition, x, y = arguments
            x, y = _complex(x), _complex(y)
            return Complex(self.op("where", condition, x.re, y.re), self.op("where", condition, x.im, y.im))
        if name in ("eq", "ne"):
            x, y = (_complex(a) for a in arguments)
            parts = self.op(name, x.re, y.re), self.op(name, x.im, y.im)
            return self.op("and" if name == "eq" else "or", *parts)
        x, y = arguments if len(arguments) == 2 else (arguments[0], None)
        if name in ("add", "sub"):
            if not isinstance(y, Complex):
                return Complex(self.op(name, x.re, y), x.im)
            if not isinstance(x, Complex):
                return Complex(self.op(name, x, y.re), y.im if name == "add" else self.op("neg", y.im))
            return Complex(self.op(name, x.re, y.re), self.op(name, x.im, y.im))
        if name in ("mul", "div") and not isinstance(y, Complex):
            return Complex(self.op(name, x.re, y), self.op(name, x.im, y))
        if name == "mul":
            if not isinstance(x, Complex):
                return Complex(self.op("mul", x, y.re), self.op("mul", x, y.im))
            re = self.op("sub", self.op("mul", x.re, y.re), self.op("mul", x.im, y.im))
            im = self.op("add", self.op("mul", x.re, y.im), self.op("mul", x.im, y.re))
            return Complex(re, im)
        if name not in RULES:
            raise TableError(f"{name} has no form for complex numbers")
        return self.rule(name, *(_complex(a) for a in arguments))

    def rule(self, name: str, *arguments: Complex) -> Result:
        outer, self.names = self.names, dict(zip("zw", arguments, strict=False))
        *named, last = ast.parse(RULES[name].strip()).body
        for statement in named:
            self.names[statement.targets[0].id] = self.value(statement.value)
        result = self.value(last.value)
        self.names = outer
        return result

    def name(self, name: str) -> Result:
        if name in self.names:
            return self.names[name]
        for word, known in (("load", self.operands), ("param", self.params)):
            if name in known:
                return self.source(word, name, known[name])
        if name in _NUMBERS:
            return _NUMBERS[name]
        raise TableError(f"expected an operand, a parameter or a value, got {name}")

    def source(self, word: str, name: str, type_: str) -> Value | Complex:
        """An operand or a parameter."""
        if self.kind == "complex" and not type_:
            return Complex(*(self.emit(f"{word} {part}", "$t", explicit=True) for part in _parts(name)))
        return self.emit(f"{word} {name}", self.compute if type_ in ("", _REAL) else type_, explicit=True)

    def call(self, node: ast.Call) -> Result:
        name = getattr(node.func, "id", None)
        if name == "complex":
            return Complex(*(self.value(a) for a in node.args))
        if name in ("real", "imag"):
            whole = _complex(self.value(node.args[0]))
            return whole.re if name == "real" else whole.im
        if name in RULES and name not in _ARITY:  # conj, angle, sgn: not instructions
            return self.rule(name, *(_complex(self.value(a)) for a in node.args))
        if name in _TYPES or name == "number":  # i64(x), bool(x); number(x): in the type of the computation
            return self.as_type(self.value(node.args[0]), self.compute if name == "number" else name)
        if name in _ROUNDED:  # f16(x): as if stored as that type and loaded again
            value = self.as_type(self.value(node.args[0]), self.compute)
            return self.emit(f"cast {value.id} via {name}", value.type, explicit=True)
        if name == "bitcast":  # bitcast(x, f16, i16): the same bits read as another type
            from_, to = (part.id for part in node.args[1:])
            result = {"i16": "i32", "f16": "f32", "bf16": "f32"}[to]
            return self.emit(f"bitcast {self.value(node.args[0]).id}, {from_}->{to}", result)
        if name == "series":  # series(name, t): a Chebyshev series of codegen/series.py
            return self.series(SERIES[node.args[0].id], self.value(node.args[1]))
        if name == "index":  # the coordinate along a dimension
            return self.emit(f"index {ast.literal_eval(node.args[0])}", "i64")
        if name not in _ARITY:
            raise TableError(f"expected a function of docs/isa.md, got {ast.unparse(node.func)}")
        if len(node.args) != _ARITY[name]:
            raise TableError(f"expected {_ARITY[name]} arguments for {name}, got {len(node.args)}")
        return self.op(name, *(self.value(a) for a in node.args))

    def series(self, coefficients: tuple[float, ...], t: Value) -> Value:
        """Clenshaw's recurrence, which loses nothing to large coefficients as powers of t would."""
        first, *rest = coefficients
        twice, before, last = self.op("mul", t, 2), None, self.as_type(rest[-1], t.type)
        for c in reversed(rest[:-1]):
            step = self.op("fma", twice, last, c)
            before, last = last, step if before is None else self.op("sub", step, before)
        return self.op("sub", self.op("fma", t, last, first), before)

    def value(self, node: ast.expr) -> Result:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.name(node.id)
        if isinstance(node, ast.BinOp):
            return self.op(_BINARY[type(node.op)], self.value(node.left), self.value(node.right))
        if isinstance(node, ast.UnaryOp):
            operand = self.value(node.operand)
            if isinstance(node.op, ast.USub):
                return self.op("neg", operand)
            return self.op("not", self.as_type(operand, "bool") if isinstance(node.op, ast.Not) else operand)
        if isinstance(node, ast.BoolOp):
            name = "and" if isinstance(node.op, ast.And) else "or"
            result, *others = [self.as_type(self.value(v), "bool") for v in node.values]
            for other in others:
                result = self.op(name, result, other)
            return result
        if isinstance(node, ast.Compare):
            if len(node.ops) != 1:
                raise TableError("expected one comparison at a time")
            return self.op(_COMPARE[type(node.ops[0])], self.value(node.left), self.value(node.comparators[0]))
        if isinstance(node, ast.IfExp):
            return self.op("where", self.value(node.test), self.value(node.body), self.value(node.orelse))
        if isinstance(node, ast.Call):
            return self.call(node)
        raise TableError(f"expected an expression, got {ast.unparse(node)}")


def _complex(value: Result) -> Complex:
    return value if isinstance(value, Complex) else Complex(value, 0.0)


def _parts(name: str) -> tuple[str, str]:
    return f"{name}_re", f"{name}_im"


def _typed(names: list[str]) -> list[tuple[str, str]]:
    """["x", "mask: bool"] to [("x", ""), ("mask", "bool")]."""
    pairs = []
    for text in names:
        name, _, type_ = (part.strip() for part in text.partition(":"))
        if type_ and type_ not in (*_TYPES, _REAL):
            raise TableError(f"expected one of {', '.join(sorted((*_TYPES, _REAL)))} behind {name}, got {type_}")
        pairs.append((name, type_))
    return pairs


def compile_program(name: str, operands: list[str], params: list[str], body: str, kind: str) -> str:
    """The text of a MAP program. Operands are numbered outputs first, then as given."""
    return compile_paired(name, operands, params, body, kind)[0]


def compile_paired(name: str, operands: list[str], params: list[str], body: str, kind: str) -> tuple[str, int]:
    """The text, and a bit for each tensor (results first) that is two operands of the program."""
    inputs, scalars = _typed(operands), _typed(params)
    program = Program(inputs, scalars, kind)
    try:
        *named, last = ast.parse(body).body
    except SyntaxError as error:
        raise TableError(f"{name}: {error.msg}: {body}") from None
    try:
        for statement in named:
            program.names[statement.targets[0].id] = program.value(statement.value)
        results = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
        values = [program.value(node) for node in results]
        stored = [[v.re, v.im] if isinstance(v, Complex) else [v] for v in values]
        stored = [
            [v if isinstance(v, Value) else program.as_type(v, program.compute) for v in parts] for parts in stored
        ]
    except TableError as error:
        raise TableError(f"{name}: {error}") from None
    outputs = ["out"] if len(values) == 1 else [f"out{i}" for i in range(len(values))]

    def spread(name: str, paired: bool) -> tuple[str, ...]:
        return _parts(name) if paired else (name,)

    def is_pair(type_: str) -> bool:
        return kind == "complex" and not type_

    pairs = [len(parts) == 2 for parts in stored] + [is_pair(type_) for _, type_ in inputs]
    tensors = [*outputs, *(n for n, _ in inputs)]
    slots = [slot for n, paired in zip(tensors, pairs, strict=True) for slot in spread(n, paired)]
    numbers = [slot for n, type_ in scalars for slot in spread(n, is_pair(type_))]
    flat = [value for parts in stored for value in parts]
    stores = [f"  store {out}, {value.id}" for out, value in zip(slots, flat, strict=False)]
    header = ", ".join(slots) + ("; " + ", ".join(numbers) if numbers else "")
    text = "\n".join([f"program {name}({header})", "each:", *program.lines, *stores]) + "\n"
    return text, sum(1 << k for k, paired in enumerate(pairs) if paired)
