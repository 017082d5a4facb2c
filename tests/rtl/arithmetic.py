"""Arithmetic of the NPU on arrays of 32-bit lanes (uint32), as docs/isa.md defines it; numbers are rtl/npu.toml's."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path

import numpy as np

NPU = tomllib.loads((Path(__file__).resolve().parents[2] / "rtl" / "npu.toml").read_text())
SIZES, REGISTERS, VALUES = NPU["sizes"], NPU["registers"], NPU["values"]
OPCODES, FLAGS, ERRORS, TYPES, OPERATIONS = (
    NPU[name] for name in ("opcodes", "flags", "errors", "types", "operations")
)
LANES, LINE = SIZES["LANES"], SIZES["LINE_BYTES"]

NAN = 0x7FC00000
# Where rounding, overflow and special cases live, as f32.
EDGES = [0x0, 0x80000000, 0x7F800000, 0xFF800000, NAN, 0xFFC00001, 0x7F800001, 0x1, 0x80000001, 0x7FFFFF, 0x800000]
EDGES += [0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000, 0xBF800000, 0x3F7FFFFF, 0x3F800001, 0x3F000000, 0x3F000001, 0x4B000000]
EDGES += [0x4EFFFFFF, 0x4F000000, 0xCF000000, 0x4F800000, 0x477FEFFF, 0x477FF000, 0x33000000, 0x33000001, 0x38800000]
EDGES += [0x3F808000, 0x3F818000, 0x7F7F8000, 0x7F7F7FFF, 0x40200000, 0x40600000, 0xC0200000, 0x1F, 0x20, 0xFFFFFFFF]

WIDTHS = {kind: {"F32": 4, "I32": 4, "I8": 1, "U8": 1, "BOOL": 1}.get(name, 2) for name, kind in TYPES.items()}
ONE = {"MOV", "I2F", "F2I", "FLOOR", "ROUND", "SQRT", "F2L", "F2H"}
TWO = {"ADD", "SUB", "MUL", "MIN", "MAX", "EQ", "LT", "LE", "DIV", "IADD", "ISUB", "IMUL", "IEQ", "ILT"}
TWO |= {"AND", "OR", "XOR", "SHL", "SHR", "IMIN", "IMAX", "ULT", "UMULH", "L2F"}
THREE = {"FMA", "SELECT"}
# Operations that have a model below, and how many arguments they take.
ARGUMENTS = {
    number: 1 if name in ONE else 2 if name in TWO else 3
    for name, number in OPERATIONS.items()
    if name in ONE | TWO | THREE
}
NAMES = {number: name for name, number in OPERATIONS.items()}


def lane(rng: random.Random) -> int:
    """Any bits, a number of moderate size, or one of the edges."""
    choice = rng.random()
    if choice < 0.25:
        return rng.choice(EDGES)
    bits = rng.getrandbits(32)
    if choice < 0.6:
        return (bits & 0x807FFFFF) | (rng.randint(118, 136) << 23)
    return bits & (0xFFFF0000 if choice < 0.7 else 0xFFFFFFFF)


def lanes(rng: random.Random, count: int = LANES) -> np.ndarray:
    return np.array([lane(rng) for _ in range(count)], np.uint32)


def f32(bits: np.ndarray) -> np.ndarray:
    return np.asarray(bits, np.uint32).view(np.float32)


def bits_of(value: np.ndarray) -> np.ndarray:
    value = np.asarray(value, np.float32)
    return np.where(np.isnan(value), np.uint32(NAN), value.view(np.uint32))


def fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Rounded once: the product of two f32 is exact in f64, and a sum rounded to odd can be rounded again."""
    p, c = x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)
    s = p + c
    t = s - p
    lost = (p - (s - t)) + (c - t)
    inexact = np.isfinite(s) & np.isfinite(lost) & (lost != 0)
    even = s.view(np.int64) & 1 == 0
    odd = np.where((lost > 0) == (s > 0), s.view(np.int64) + 1, s.view(np.int64) - 1)
    return np.where(inexact & even, odd.view(np.float64), s).astype(np.float32)


def to_bf16(bits: np.ndarray) -> np.ndarray:
    wide = np.asarray(bits, np.uint32).astype(np.uint64)
    rounded = ((wide + 0x7FFF + (wide >> 16 & 1)) >> 16) & 0xFFFF
    return np.where(np.isnan(f32(bits)), 0x7FC0, rounded).astype(np.uint32)


def to_f16(bits: np.ndarray) -> np.ndarray:
    half = f32(bits).astype(np.float16).view(np.uint16).astype(np.uint32)
    return np.where(np.isnan(f32(bits)), np.uint32(0x7E00), half)


def to_int(bits: np.ndarray) -> np.ndarray:
    value = f32(bits).astype(np.float64)
    fits = np.abs(value) < 2.0**31
    whole = np.trunc(np.where(fits, value, 0)).astype(np.int64)
    return np.where(fits, whole, -(2**31)).astype(np.int64).astype(np.uint32)


def to_long(bits: np.ndarray) -> np.ndarray:
    value = f32(bits).astype(np.float64)
    fits = np.abs(value) < 2.0**63
    return np.where(fits, np.where(fits, value, 0).astype(np.int64), np.int64(-(2**63)))


def load(kind: int, raw: np.ndarray) -> np.ndarray:
    """Storage values (in the low bits) to lanes."""
    raw = np.asarray(raw, np.uint32)
    if kind == TYPES["BF16"]:
        return bits_of(f32((raw & 0xFFFF) << 16))
    if kind == TYPES["F16"]:
        return bits_of((raw & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float32))
    if kind == TYPES["I16"]:
        return raw.astype(np.int16).astype(np.int32).view(np.uint32)
    if kind == TYPES["U16"]:
        return raw & 0xFFFF
    if kind == TYPES["I8"]:
        return raw.astype(np.int8).astype(np.int32).view(np.uint32)
    if kind == TYPES["U8"]:
        return raw & 0xFF
    if kind == TYPES["BOOL"]:
        return (raw & 0xFF != 0).astype(np.uint32)
    return raw


def store(kind: int, bits: np.ndarray) -> np.ndarray:
    """Lanes to storage values, in the low bits."""
    if kind == TYPES["BF16"]:
        return to_bf16(bits)
    if kind == TYPES["F16"]:
        return to_f16(bits)
    if kind == TYPES["BOOL"]:
        return (np.asarray(bits) != 0).astype(np.uint32)
    return np.asarray(bits, np.uint32) & np.uint32(2 ** (8 * WIDTHS[kind]) - 1)


def operate(op: int, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    name = NAMES[op]
    with np.errstate(all="ignore"):
        if name.startswith("I") and name != "I2F" or name in ("AND", "OR", "XOR", "SHL", "SHR", "ULT", "UMULH"):
            return _integer(name, a, b)
        return _float(name, a, b, c)


def _integer(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    x, y = a.astype(np.int64), b.astype(np.int64)
    sx, sy = a.view(np.int32), b.view(np.int32)
    shift = np.minimum(b, 31).astype(np.int32)
    results = {
        "IADD": lambda: x + y,
        "ISUB": lambda: x - y,
        "IMUL": lambda: a * b,
        "IEQ": lambda: a == b,
        "ILT": lambda: sx < sy,
        "AND": lambda: a & b,
        "OR": lambda: a | b,
        "XOR": lambda: a ^ b,
        "SHL": lambda: np.where(b > 31, 0, x << shift),
        "SHR": lambda: sx >> shift,
        "IMIN": lambda: np.minimum(sx, sy),
        "IMAX": lambda: np.maximum(sx, sy),
        "ULT": lambda: a < b,
        "UMULH": lambda: a.astype(np.uint64) * b.astype(np.uint64) >> np.uint64(32),
    }
    return results[name]().astype(np.int64).astype(np.uint32)


def _float(name: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    x, y, z = f32(a), f32(b), f32(c)
    none = np.isnan(x) | np.isnan(y)
    results = {
        "MOV": lambda: a,
        "ADD": lambda: bits_of(x + y),
        "SUB": lambda: bits_of(x - y),
        "MUL": lambda: bits_of(x * y),
        "FMA": lambda: bits_of(fma(x, y, z)),
        "MIN": lambda: np.where(none, NAN, np.where(y < x, b, a)),
        "MAX": lambda: np.where(none, NAN, np.where(y > x, b, a)),
        "EQ": lambda: x == y,
        "LT": lambda: x < y,
        "LE": lambda: x <= y,
        "SELECT": lambda: np.where(a != 0, b, c),
        "I2F": lambda: bits_of(a.view(np.int32).astype(np.float32)),
        "F2I": lambda: to_int(a),
        "L2F": lambda: bits_of((a.astype(np.int64) | b.astype(np.int64) << 32).astype(np.float32)),
        "F2L": lambda: to_long(a) & 0xFFFFFFFF,
        "F2H": lambda: to_long(a) >> 32 & 0xFFFFFFFF,
        "FLOOR": lambda: bits_of(np.floor(x)),
        "ROUND": lambda: bits_of(np.rint(x)),
        "DIV": lambda: bits_of(x / y),
        "SQRT": lambda: bits_of(np.sqrt(x)),
    }
    return np.asarray(results[name]()).astype(np.uint32)
