"""codegen/words.ops and words_f64.ops: 64 bits in pairs of words, against the numbers that a processor has."""

import re
import sys

import numpy as np
import pytest

from tests.support import ROOT

sys.path.insert(0, str(ROOT / "codegen"))

from words import TARGET, compile_words, source_text  # noqa: E402

COUNT = 40000
TYPES = {"i64": np.int64, "u64": np.uint64, "f64": np.float64, "i32": np.int32, "f32": np.float32, "bool": np.bool_}
SIGNED = np.array(
    [0, 1, -1, 2, -2, 5, 63, 64, -63, 2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**32, -(2**32) - 1]
    + [2**53 + 1, -(2**53) - 3, 2**62, 2**63 - 1, -(2**63), 2**63 - 2**9, 3 << 40],
    np.int64,
)
REAL = np.array(
    [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e300, -1e300, 5e-324, -3e-320, 2.2e-308]
    + [4.5e15 + 0.5, 2.0**31, -(2.0**31), -(2.0**31) - 0.5, 2.0**63, -(2.0**63), 2.0**64, 1.9e19, 1e-40, 3.4e38]
    + [3.5e38, 1e-46, 255.5, 0.49999999999999994, 1 + 2**-24, 2.0**-1022, 1.7e308, 2.0**-149, 2.0**-150]
)


def drawn(type_, random):
    bits = random.integers(0, 2**64, COUNT, np.uint64, endpoint=False)
    often, seldom = random.random(COUNT) < 0.5, random.random(COUNT) < 0.25
    if type_ == "i32":
        return drawn("i64", random).astype(np.int32)
    if type_ in ("i64", "u64"):
        short = bits >> random.integers(0, 64, COUNT).astype(np.uint64)
        out = np.where(often, short, bits).view(np.int64)
        return np.where(seldom, random.choice(SIGNED, COUNT), out).astype(TYPES[type_])
    near = random.normal(size=COUNT) * 2.0 ** random.integers(-40, 70, COUNT)
    out = np.where(seldom, random.choice(REAL, COUNT), np.where(often, bits.view(np.float64), near))
    with np.errstate(all="ignore"):
        return out.astype(TYPES[type_])


def words_of(values):
    if values.dtype.itemsize < 8:
        return [values]
    pairs = np.ascontiguousarray(values).view(np.int32).reshape(-1, 2)
    return [pairs[:, 0].copy(), pairs[:, 1].copy()]


def shifted(op, a, b):
    inside = (b >= 0) & (b < 32)
    b = np.where(inside, b, 0)
    return np.where(inside, a << b if op == "shl" else a >> b, 0 if op == "shl" else a >> 31)


def to_i32(a):
    if a.dtype != np.float32:
        return a.astype(np.int32)
    wide = np.trunc(a.astype(np.float64))
    return np.where((wide >= -(2.0**31)) & (wide < 2.0**31), wide, -(2.0**31)).astype(np.int32)


BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


def number(text, type_):
    if type_ == "bool":
        return np.array([text == "true"])
    wrapped = np.array([int(text) if type_ == "i32" else float(text)])
    return wrapped.astype(np.int64).astype(np.int32) if type_ == "i32" else wrapped.astype(np.float32)


def run(name, *arguments):
    """The sequence, instruction by instruction."""
    text = TARGET.read_text()
    body = text[re.search(rf"^program {name}\(", text, re.M).start() :].split("\n\n")[0].splitlines()[2:]
    words = iter([word for argument in arguments for word in words_of(argument)])
    values, out = {}, []
    for line in body:
        line, _, type_ = line.strip().partition(" : ")
        target, _, rest = line.partition(" = ")
        op, _, given = (rest or target).partition(" ")
        args = [values.get(a, a) for a in given.split(", ")]
        if op == "store":
            out.append(args[1])
        elif op == "load":
            values[target] = next(words)
        elif op == "const":
            values[target] = number(given, type_)
        elif op in ("shl", "shr"):
            values[target] = shifted(op, *args)
        elif op == "where":
            values[target] = np.where(*args)
        elif op == "cast":
            values[target] = to_i32(args[0]) if type_ == "i32" else args[0].astype(TYPES[type_])
        elif op == "bitcast":
            a = np.ascontiguousarray(args[0])
            values[target] = a.view(np.float32 if args[1].endswith("f32") else np.int32)
        elif op in ("floor", "trunc", "abs", "sqrt"):
            values[target] = getattr(np, op)(args[0])
        elif op in ("not", "neg"):
            values[target] = ~args[0] if op == "not" else -args[0]
        else:
            values[target] = BINARY[op](*args)
    length = len(arguments[0])
    return [np.broadcast_to(word, length) for word in out]


def whole(words, type_):
    if len(words) == 1:
        return words[0]
    return np.ascontiguousarray(np.stack(words, 1).astype(np.int32)).view(TYPES[type_]).reshape(-1)


def to_integer(x, type_):
    """As docs/isa.md, "Conversions", has it."""
    t = np.trunc(x.astype(np.float64))
    if type_ == "i32":
        return np.where((t >= -(2.0**31)) & (t < 2.0**31), t, -(2.0**31)).astype(np.int32)
    low = np.where((t >= -(2.0**63)) & (t < 2.0**63), t, -(2.0**63)).astype(np.int64)
    if type_ == "i64":
        return low
    above = (t >= 2.0**63) & (t < 2.0**64)
    return np.where(above, np.where(above, t, 0).astype(np.uint64), low.view(np.uint64))


def converted(x, type_):
    return to_integer(x, type_) if x.dtype.kind == "f" and type_[0] != "f" else x.astype(TYPES[type_])


def shift_of(op, a, b):
    inside, zero = (b >= 0) & (b < a.dtype.type(64)), a.dtype.type(0)
    b = np.where(inside, b, zero)
    if op == "shl":
        return np.where(inside, a << b, zero)
    return np.where(inside, a >> b, np.where(a < 0, ~zero, zero))


def divide_of(op, a, b):
    out = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        q, r = (0, 0) if y == 0 else (abs(x) // abs(y), abs(x) % abs(y))
        q, r = (-q if (x < 0) != (y < 0) else q), (-r if x < 0 else r)
        apart = r != 0 and (r < 0) != (y < 0)
        out.append({"div": q, "fmod": r, "floordiv": q - apart, "mod": r + y if apart else r}[op] % 2**64)
    return np.array(out, np.uint64).view(a.dtype)


def sign_of(a):
    return np.where(a > 0, 1, np.where(a < 0, -1, 0)).astype(a.dtype)


def exponent_of(a):
    return np.where(np.isfinite(a), np.frexp(a)[1], 0).astype(np.int32)


WANTED = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "abs": np.abs, "eq": np.equal,
    "lt": np.less, "le": np.less_equal, "isnan": np.isnan, "isinf": np.isinf, "trunc": np.trunc, "floor": np.floor,
    "ceil": np.ceil, "round": np.rint, "sqrt": np.sqrt, "nextafter": np.nextafter, "copysign": np.copysign,
    "ldexp": np.ldexp, "sign": sign_of, "frexp_m": lambda a: np.frexp(a)[0], "frexp_e": exponent_of,
}  # fmt: skip


def wanted(name, arguments):
    op, real = name.rpartition("_")[0], arguments[0].dtype.kind == "f"
    if name == "f64_of_u32":
        return arguments[0].view(np.uint32).astype(np.float64)
    if "_of_" in name:
        return converted(arguments[0], name.split("_")[0])
    if op in ("shl", "shr"):
        return shift_of(op, *arguments)
    if op in ("div", "fmod", "mod", "floordiv"):
        return arguments[0] / arguments[1] if real else divide_of(op, *arguments)
    return WANTED[op](*arguments)


def arguments_of(name, random):
    types = re.findall(r": (\w+)", re.search(rf"^def {name}\((.*)\) ->", source_text(), re.M)[1])
    arguments = [drawn(type_, random) for type_ in types]
    if len(types) == 1:
        return arguments
    first, second = arguments
    turn = np.arange(COUNT) % 8
    if name[:3] in ("shl", "shr"):
        second = np.where(turn > 0, random.integers(0, 70, COUNT).astype(second.dtype), second)
    elif name.startswith("ldexp"):
        second = np.where(turn > 0, second % 2200, second)
    elif types[0] == "f64":
        second = np.where(turn < 2, np.where(turn == 0, -first, first), second)
    else:
        second = np.where(turn < 2, first + random.integers(-1, 2, COUNT).astype(first.dtype), second)
    return [first, second]


NAMES = [name for name in re.findall(r"^program (\w+)\(", TARGET.read_text(), re.M) if name != "philox"]


@pytest.mark.parametrize("name", NAMES)
def test_a_sequence_gives_every_bit_of_what_it_stands_for(name):
    arguments = arguments_of(name, np.random.default_rng(len(name)))
    result = re.search(rf"^def {name}\(.*-> (\w+):", source_text(), re.M)[1]
    with np.errstate(all="ignore"):
        want, got = wanted(name, arguments), whole(run(name, *arguments), result)
    if want.dtype.kind == "f" and not name.startswith(("neg", "abs", "copysign")):  # arithmetic has one NaN
        want = np.where(np.isnan(want), want.dtype.type(np.nan), want)
    kind = f"u{want.itemsize}"
    wrong = np.flatnonzero(want.view(kind) != np.ascontiguousarray(got).view(kind))[:5]
    assert wrong.size == 0, [*(a[wrong] for a in arguments), want[wrong], got[wrong]]


def test_philox_of_zeros_is_the_published_number():
    zero = np.zeros(1, np.int64)
    words = [int(word[0]) % 2**32 for word in run("philox", zero, zero, zero)]
    assert words == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = np.full(1, -1, np.int64)  # the known answers of Random123
    words = [int(word[0]) % 2**32 for word in run("philox", ones, ones, ones)]
    assert words == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def test_the_sequences_of_words_are_those_of_their_source():
    assert compile_words(source_text()) == TARGET.read_text(), "run python codegen/words.py"
