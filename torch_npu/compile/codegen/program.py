"""Programs under construction: values, segments and the text form of docs/isa.md."""

import dataclasses
import itertools
import math

import torch
from torch._inductor.codegen.common import CSEVariable
from torch.utils._sympy.value_ranges import ValueRanges

MAX_FOLDS = 4

# The compute type that holds a PyTorch type, and its storage type where that is narrower.
COMPUTE = {
    torch.bool: "bool",
    torch.uint8: "i32",
    torch.int8: "i32",
    torch.uint16: "i32",
    torch.int16: "i32",
    torch.int32: "i32",
    torch.uint32: "i64",
    torch.int64: "i64",
    torch.uint64: "u64",
    torch.float16: "f32",
    torch.bfloat16: "f32",
    torch.float32: "f32",
    torch.float64: "f64",
}
NARROW = {torch.uint8: "u8", torch.int8: "i8", torch.uint16: "u16", torch.int16: "i16", torch.uint32: "u32"}
STORAGE = NARROW | {
    torch.bool: "bool",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint64: "u64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
}
# In the order of promotion; also the type that a value of this type is seen as by Inductor.
TYPES = {
    "bool": torch.bool,
    "i32": torch.int32,
    "i64": torch.int64,
    "u64": torch.uint64,
    "f32": torch.float32,
    "f64": torch.float64,
}
_RANK = {name: k for k, name in enumerate(TYPES)}


class Unsupported(NotImplementedError):
    """Something that Inductor asks for and a program cannot say. The ops run as they do in eager mode instead."""

    ops = ()  # FX targets of the node that asked


class TooLarge(Exception):
    """More instructions, operands or values than a program may have. The kernel is cut into smaller ones."""


def compute_type(dtype: torch.dtype) -> str:
    if dtype not in COMPUTE:
        raise Unsupported(f"numbers of type {dtype}")
    return COMPUTE[dtype]


def promoted(types: list[str]) -> str:
    return max(types, key=_RANK.__getitem__)


def is_float(type: str) -> bool:
    return type in ("f32", "f64")


class Value(CSEVariable):
    """One instruction, and the value that it defines. `dtype` is PyTorch's, `type` the one it is computed in."""

    def __init__(self, name, op, args, imm, type, dtype, mask, effect):
        super().__init__(name, ValueRanges.unknown(), dtype)
        self.op, self.args, self.imm, self.type, self.mask = op, args, imm, type, mask
        self.effect = effect  # kept even if nobody uses the value
        self.buffer = None  # of a store: the buffer's name, which fusion may remove later
        self.source = None  # of a load: the same
        self.argument = None  # of both: the kernel's name for the tensor
        self.memory = None  # of both, where the tensor has several names: one that all of them share
        self.exact = False  # of a store: the tensor holds the value as it is, not narrowed

    def tensors(self) -> set[str]:
        """Names of the tensor that is loaded or stored; two that share one are the same."""
        return {self.argument, self.memory} - {None}

    def inputs(self) -> list["Value"]:
        return [*self.args, *([self.mask] if self.mask is not None else [])]

    def line(self, name: dict["Value", str]) -> str:
        args = [name[a] for a in self.args]
        mask = f", mask {name[self.mask]}" if self.mask is not None else ""
        typed = f" : {self.type}"
        match self.op:
            case "const" | "param" | "arg":
                body = f"{self.op} {self.imm}{typed}"
            case "acc":
                body = f"acc{typed}"
            case "index" | "size":
                body = f"{self.op} {self.imm}"
            case "load" | "load_at":
                body = f"{self.op} {', '.join([self.imm, *args])}{mask}{typed}"
            case "store":
                return f"store {self.imm}, {args[0]}{mask}"
            case "store_at":
                operand, mode = self.imm.split()
                return f"store_at {operand}, {args[0]}, {args[1]}, {mode}{mask}"
            case "yield":
                return f"yield {self.imm}, {args[0]}"
            case "check_index":
                body = f"check_index {', '.join(args)}, {self.imm}{mask}"
            case "fold" | "scan":
                body = f"{self.op} {self.imm} {', '.join(args)}"
            case "get" | "philox":
                body = f"{self.op} {', '.join(args)}, {self.imm}"
            case "cast":
                body = f"cast {args[0]}{' via ' + self.imm if self.imm else ''}{typed}"
            case "bitcast":
                body = f"bitcast {args[0]}, {self.imm}"
            case _:
                body = f"{self.op} {', '.join(args)}"
        return f"{name[self]} = {body}"


def number_text(value, type: str) -> str:
    """A constant as the text form writes it."""
    if type == "bool":
        return "true" if value else "false"
    if not is_float(type):
        return str(int(value))
    value = float(value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)


@dataclasses.dataclass
class Segment:
    kind: str  # each, row or combine
    values: list[Value] = dataclasses.field(default_factory=list)
    known: dict[tuple, Value] = dataclasses.field(default_factory=dict)


class Builder:
    """Appends instructions to the current segment. What was computed before and can be seen from it is reused."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.current = Segment("each")
        self.visible: dict[tuple, Value] = {}  # of closed segments: folds, scans, what rows computed
        self.names: dict[str, Value] = {}

    def emit(self, op, args=(), *, imm="", type=None, dtype=None, mask=None, effect=False) -> Value:
        type = type or args[0].type
        key = (op, tuple(a.name for a in args), imm, type, mask and mask.name)
        if not effect and (found := self.current.known.get(key) or self.visible.get(key)):
            return found
        name = f"tmp{len(self.names)}"
        value = Value(name, op, list(args), imm, type, dtype or TYPES[type], mask, effect)
        self.names[name] = value
        self.current.values.append(value)
        if not effect:
            self.current.known[key] = value
        return value

    def const(self, value, type: str) -> Value:
        return self.emit("const", imm=number_text(value, type), type=type)

    def cast(self, value: Value, type: str, via: str = "") -> Value:
        if value.type == type and not via:
            return value
        return self.emit("cast", [value], imm=via, type=type)

    def close(self, kind: str) -> list[Value]:
        """Ends the current segment, which is of this kind, and returns what later ones see of it."""
        segment, self.current = self.current, Segment("each")
        if not segment.values:
            return []
        segment.kind = kind
        self.segments.append(segment)
        seen = {k: v for k, v in segment.known.items() if kind == "row" or v.op in ("fold", "scan", "get")}
        if kind == "combine":
            seen = {}
        self.visible.update(seen)
        return list(seen.values())


def used(segments: list[Segment], roots_of) -> set[Value]:
    """Values that some root needs, over all segments."""
    needed: set[Value] = set()
    stack = [v for s in segments for v in s.values if roots_of(s, v)]
    while stack:
        value = stack.pop()
        if value not in needed:
            needed.add(value)
            stack.extend(value.inputs())
    return needed


def finish(segments: list[Segment], removed) -> list[Segment]:
    """Without stores to removed buffers and what nobody uses; neighbouring row segments as one; at most MAX_FOLDS folds
    in a segment: one with more becomes several, which compute again what they need."""
    segments = [Segment(s.kind, [v for v in s.values if v.buffer is None or not removed(v.buffer)]) for s in segments]
    needed = used(segments, lambda s, v: v.effect or s.kind == "combine")
    out: list[Segment] = []
    for segment in segments:
        values = [v for v in segment.values if v in needed]
        if not values:
            continue
        if segment.kind == "row" and out and out[-1].kind == "row":
            out[-1].values.extend(values)
            continue
        folds = [v for v in values if v.op in ("fold", "scan")]
        if len(folds) <= MAX_FOLDS or any(v.op == "scan" for v in folds):
            out.append(Segment(segment.kind, values))
            continue
        groups = [folds[k : k + MAX_FOLDS] for k in range(0, len(folds), MAX_FOLDS)]
        for number, group in enumerate(groups):
            last = number == len(groups) - 1  # stores come last: a buffer may be written in place
            part = used([Segment("each", values)], lambda s, v: v in group or (last and v.effect))  # noqa: B023
            part |= {v for v in values if v.op == "get" and v.args[0] in group}
            part -= {v for v in folds if v not in group}
            out.append(Segment("each", [v for v in values if v in part]))
    return out


def text_of(name: str, segments: list[Segment], operands: list[str], params: list[str]) -> str:
    names: dict[Value, str] = {}
    numbers = itertools.count()  # a value that is computed again gets a new name
    header = ", ".join(operands) + (f"; {', '.join(params)}" if params else "")
    lines = [f"program {name}({header})"]
    for segment in segments:
        lines.append(f"{segment.kind}:")
        for value in segment.values:
            if value.op not in ("store", "store_at", "yield"):
                names[value] = f"%{next(numbers)}"
            lines.append(f"  {value.line(names)}")
    return "\n".join(lines) + "\n"
