"""Inductor's operations as instructions: one line each where the program format has the same one."""

import copy
import math

import torch
from torch._inductor.codegen.common import CSEProxy, OpOverrides, pointwise_overrides_data
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
from torch._inductor.utils import sympy_index_symbol, upcast_compute_type
from torch._inductor.virtualized import OpsValue, V

from torch_npu.compile.codegen.program import NARROW, STORAGE, Unsupported, Value, compute_type, is_float, promoted

_dtypes = DtypePropagationOpsHandler()


def unwrap(x):
    return x.value if isinstance(x, OpsValue) else x


def value_of(x, type: str | None = None) -> Value:
    """A value or Python number as a value of this type."""
    x = unwrap(x)
    if isinstance(x, Value):
        return V.kernel.builder.cast(x, type) if type else x
    if type is None:
        type = "bool" if isinstance(x, bool) else "i64" if isinstance(x, int) else "f32"
    return V.kernel.builder.const(x, type)


def common_type(args) -> str:
    """The type in which these meet. A number takes that of its neighbours, unless it is the only float."""
    args = [unwrap(a) for a in args]
    values = [a.type for a in args if isinstance(a, Value)]
    if not values or (any(isinstance(a, float) for a in args) and not is_float(promoted(values))):
        values.append("f32" if any(isinstance(a, float) for a in args) else "i64")
    return promoted(values)


def dtype_of(name: str, args) -> torch.dtype:
    return getattr(_dtypes, name)(*[unwrap(a) for a in args])


def emit(op, args, *, type=None, dtype=None, imm=""):
    return V.kernel.builder.emit(op, args, type=type, dtype=dtype, imm=imm)


def wrapped(value: Value, dtype: torch.dtype) -> Value:
    """As PyTorch keeps it: arithmetic of small integers wraps to their width."""
    if dtype in NARROW:
        value = V.kernel.builder.emit("cast", [value], imm=NARROW[dtype], type=value.type, dtype=dtype)
    return value


def narrow_of(args) -> torch.dtype | None:
    """The small integer type that these have; constants have that of their neighbours."""
    values = [a for a in map(unwrap, args) if isinstance(a, Value) and a.op != "const"]
    return values[0].dtype if values and values[0].dtype in NARROW else None


def seen_as(value: Value, dtype: torch.dtype) -> Value:
    """The same value, as one of another PyTorch type that is computed in the same type."""
    if value.dtype == dtype or dtype is None:
        return value
    alias = copy.copy(value)
    alias.dtype = dtype
    return alias


# Inductor's name: the instruction. Arguments are brought to one type.
FUNCTIONS = {
    n: n
    for n in """rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh
    atanh sigmoid erf erfc erfinv lgamma digamma hypot copysign nextafter sqrt reciprocal""".split()
} | {"truediv": "div", "int_truediv": "div", "div_rn": "div"}
ARITHMETIC = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "mul_rn": "mul",
    "fma": "fma",
    "neg": "neg",
    "abs": "abs",
    "sign": "sign",
    "maximum": "max",
    "minimum": "min",
    "pow": "pow",
    "fmod": "fmod",
    "mod": "fmod",
    "remainder": "mod",
    "floordiv": "floordiv",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "bitwise_not": "not",
    "bitwise_left_shift": "shl",
    "bitwise_right_shift": "shr",
    "and_": "and",
    "or_": "or",
    "xor": "xor",
    "lshift": "shl",
    "rshift": "shr",
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
ROUNDINGS = ("floor", "ceil", "round", "trunc")
LOGIC = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor", "logical_not": "not"}


def _function(name, op):
    def method(*args):
        dtype = upcast_compute_type(dtype_of(name, args))
        type = compute_type(dtype) if dtype.is_floating_point else "f32"
        return emit(op, [value_of(a, type) for a in args])

    return staticmethod(method)


def _arithmetic(name, op):
    def method(*args):
        type = common_type(args)
        if type == "bool" and op not in ("and", "or", "xor", "not", "min", "max"):
            if op not in ("mul", "add"):
                raise Unsupported(f"{name} of bool")
            op_, type_ = ("and", "bool") if op == "mul" else ("or", "bool")
            return emit(op_, [value_of(a, type_) for a in args])
        result = emit(op, [value_of(a, type) for a in args])
        return wrapped(result, narrow_of(args)) if type in ("i32", "i64") else result

    return staticmethod(method)


def _comparison(name):
    def method(a, b):
        type = common_type((a, b))
        return emit(name, [value_of(a, type), value_of(b, type)], type="bool")

    return staticmethod(method)


def _rounding(name):
    def method(x):
        return emit(name, [x]) if is_float(x.type) else x

    return staticmethod(method)


def _logic(op):
    def method(*args):
        return emit(op, [value_of(a, "bool") for a in args])

    return staticmethod(method)


def _refused(name):
    def method(*args, **kwargs):
        raise Unsupported(name)

    return staticmethod(method)


class NpuOverrides(OpOverrides):
    """Calls of ops.* that compute. Loads, stores and reductions are the kernel's."""

    @staticmethod
    def constant(value, dtype):
        return V.kernel.builder.const(value, compute_type(dtype))

    @staticmethod
    def to_dtype(x, dtype, src_dtype=None, use_compute_types=True):
        x = unwrap(x)
        type = compute_type(dtype)
        if dtype in NARROW:
            if x.dtype == dtype:
                return x
            return V.kernel.builder.emit("cast", [value_of(x)], imm=NARROW[dtype], type=type, dtype=dtype)
        if dtype in (torch.float16, torch.bfloat16) and not use_compute_types:
            return V.kernel.builder.cast(value_of(x), "f32", via=STORAGE[dtype])
        x = value_of(x, type)
        return seen_as(x, dtype) if x.dtype in NARROW else x

    @staticmethod
    def to_dtype_bitcast(x, dtype, src_dtype):
        x = value_of(x, compute_type(src_dtype))
        pair = f"{STORAGE[src_dtype]} -> {STORAGE[dtype]}"
        return emit("bitcast", [x], imm=pair, type=compute_type(dtype), dtype=dtype)

    @staticmethod
    def index_expr(expr, dtype):
        return NpuOverrides.to_dtype(V.kernel.expression(expr), dtype)

    value_expr = index_expr

    @staticmethod
    def where(condition, a, b):
        type = common_type((a, b))
        if isinstance(unwrap(a), Value) and isinstance(unwrap(b), float) and not is_float(type):
            type = "f32"
        if unwrap(condition).op == "const":  # what a comparison of known indices leaves behind
            return value_of(a if unwrap(condition).imm == "true" else b, type)
        chosen = emit("where", [value_of(condition, "bool"), value_of(a, type), value_of(b, type)], type=type)
        return seen_as(chosen, narrow_of((a, b)))

    @staticmethod
    def masked(mask, body, other):
        with V.kernel.mask_loads(value_of(mask, "bool"), other) as inner:
            result = value_of(body())
        if other == 0 and result.op in ("load", "load_at") and result.mask is inner:
            return result  # where its mask is false, a load yields 0
        if (
            isinstance(other, float)
            and not is_float(result.type)
            and not (math.isfinite(other) and other == int(other))
        ):
            raise Unsupported(f"an integer that is {other} where it is masked")
        return emit("where", [inner, result, value_of(other, result.type)], type=result.type)

    @staticmethod
    def identity(x):
        return x

    @staticmethod
    def isnan(x):
        return emit("isnan", [x], type="bool") if is_float(x.type) else V.kernel.builder.const(False, "bool")

    @staticmethod
    def isinf(x):
        return emit("isinf", [x], type="bool") if is_float(x.type) else V.kernel.builder.const(False, "bool")

    @staticmethod
    def signbit(x):
        return emit("signbit", [value_of(x, "i32") if x.type == "bool" else x], type="bool")

    @staticmethod
    def relu(x):
        return emit("max", [x, value_of(0, x.type)])

    @staticmethod
    def square(x):
        return NpuOverrides.mul(x, x)

    @staticmethod
    def truncdiv(a, b):
        type = common_type((a, b))
        quotient = emit("div", [value_of(a, type), value_of(b, type)])
        return emit("trunc", [quotient]) if is_float(type) else quotient

    @staticmethod
    def frexp(x):
        x = value_of(x) if is_float(x.type) else value_of(x, "f32")
        return emit("frexp_m", [x]), emit("frexp_e", [x], type="i32")

    @staticmethod
    def ldexp(x, n):
        x = value_of(x) if is_float(unwrap(x).type) else value_of(x, "f32")
        return emit("ldexp", [x, value_of(n, "i32")])

    @staticmethod
    def floor_to_int(x, dtype):
        return NpuOverrides.to_dtype(NpuOverrides.floor(x), dtype)

    @staticmethod
    def ceil_to_int(x, dtype):
        return NpuOverrides.to_dtype(NpuOverrides.ceil(x), dtype)

    @staticmethod
    def trunc_to_int(x, dtype):
        return NpuOverrides.to_dtype(x, dtype)

    @staticmethod
    def round_to_int(x, dtype):
        return NpuOverrides.to_dtype(NpuOverrides.round(x), dtype)

    # Random numbers: word k of Philox over (seed, offset 0, position). 24 bits make a float below 1.
    @staticmethod
    def load_seed(name, offset):
        return V.kernel.load_seed(name, offset)

    @staticmethod
    def _bits(seed, position, word):
        zero = value_of(0, "i64")
        return emit("philox", [value_of(seed, "i64"), zero, value_of(position, "i64")], imm=str(word), type="i64")

    @staticmethod
    def _uniform(seed, position, word):
        high = emit("shr", [NpuOverrides._bits(seed, position, word), value_of(8, "i64")])
        return emit("mul", [value_of(high, "f32"), value_of(2.0**-24, "f32")])

    @staticmethod
    def rand(seed, offset):
        return NpuOverrides._uniform(seed, offset, 0)

    @staticmethod
    def randn(seed, offset):
        # Box-Muller; 1 - u is in (0, 1], so its logarithm is finite.
        u = emit("sub", [value_of(1.0, "f32"), NpuOverrides._uniform(seed, offset, 0)])
        radius = emit("sqrt", [emit("mul", [emit("log", [u]), value_of(-2.0, "f32")])])
        angle = emit("mul", [NpuOverrides._uniform(seed, offset, 1), value_of(2.0 * math.pi, "f32")])
        return emit("mul", [radius, emit("cos", [angle])])

    @staticmethod
    def randint64(seed, offset, low, high):
        low, high = value_of(low, "i64"), value_of(high, "i64")
        upper = emit("shl", [NpuOverrides._bits(seed, offset, 0), value_of(32, "i64")])
        bits = value_of(emit("or", [upper, NpuOverrides._bits(seed, offset, 1)]), "u64")
        rest = emit("mod", [bits, value_of(emit("sub", [high, low]), "u64")])
        return emit("add", [low, value_of(rest, "i64")])


for _name, _op in FUNCTIONS.items():
    setattr(NpuOverrides, _name, _function(_name, _op))
for _name, _op in ARITHMETIC.items():
    setattr(NpuOverrides, _name, _arithmetic(_name, _op))
for _name in COMPARISONS:
    setattr(NpuOverrides, _name, _comparison(_name))
for _name in ROUNDINGS:
    setattr(NpuOverrides, _name, _rounding(_name))
for _name, _op in LOGIC.items():
    setattr(NpuOverrides, _name, _logic(_op))
_known = {*FUNCTIONS, *ARITHMETIC, *COMPARISONS, *ROUNDINGS, *LOGIC, *vars(NpuOverrides)}
REFUSED = {*pointwise_overrides_data, "rand_eager", "inline_asm_elementwise", "dot"} - _known
for _name in REFUSED:
    setattr(NpuOverrides, _name, _refused(_name))


class NpuProxy(CSEProxy):
    """Inductor's proxy, except that an index is wrapped and checked by one instruction."""

    def indirect_indexing(self, var, size, check=True, wrap_neg=True):
        kernel = self.kernel
        bounds = unwrap(var).bounds
        wrap = wrap_neg and not bounds.lower >= 0
        inside = not size.free_symbols and bounds.upper < size if hasattr(size, "free_symbols") else bounds.upper < size
        check = check and not (inside and (wrap or bounds.lower >= 0))
        index = value_of(var, "i64")
        if wrap or check:
            flags = ", ".join(f for f, on in (("wrap", wrap), ("check", check)) if on)
            index = kernel.builder.emit(
                "check_index", [index, kernel.expression(size)], imm=flags, mask=kernel._load_mask, effect=check
            )
        return sympy_index_symbol(index.name)
