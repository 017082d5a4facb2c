"""From Inductor's loops to one command: NpuKernel collects instructions while Inductor walks a fused kernel."""

import functools

import sympy
import torch
from torch._inductor.codegen.common import InplacedBuffer, is_buffer_removed
from torch._inductor.codegen.simd import SIMDKernel, pexpr
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet
from torch.utils._sympy import functions as sf

from torch_npu import _C
from torch_npu.compile.codegen import passes
from torch_npu.compile.codegen.definition import KERNEL_NAME, Definition
from torch_npu.compile.codegen.ops import NpuOverrides, NpuProxy, seen_as, value_of
from torch_npu.compile.codegen.program import (
    NARROW,
    STORAGE,
    Builder,
    Segment,
    TooLarge,
    Unsupported,
    Value,
    compute_type,
    finish,
    is_float,
    text_of,
    used,
)
from torch_npu.compile.codegen.space import Space, plain, static
from torch_npu.compile.run import autotune

MAX_OPERANDS, MAX_PARAMS = 64, 32

_FOLDS = {"sum": "sum", "prod": "prod", "max": "max", "min": "min", "any": "or", "xor_sum": "xor"}
_RELATIONS = {
    sympy.Eq: "eq",
    sympy.Ne: "ne",
    sympy.Lt: "lt",
    sympy.Le: "le",
    sympy.Gt: "gt",
    sympy.Ge: "ge",
}


class NpuKernel(SIMDKernel):
    overrides = NpuOverrides
    sexpr = kexpr = pexpr
    kind: str | None = None  # of the command, where the program does not decide it
    template = None  # what gives the command its sums (lowerings/template.py)

    def __init__(self, tiling, **kwargs) -> None:
        super().__init__(tiling, **kwargs)
        self.builder = Builder()
        self.after = Segment("row")  # stores of what the current each segment folds
        self.space: Space | None = None
        self.operands: dict[tuple, str] = {}  # (argument, offset, strides): name in the program
        self.params: dict[sympy.Expr, str] = {}
        self.leading: list[tuple] = []  # operands in front of those that the program uses: a template's inputs

    def __enter__(self):
        super().__enter__()
        self.exit_stack.enter_context(V.set_ops_handler(NpuProxy(self, self.overrides())))
        return self

    def dtype_to_str(self, dtype: torch.dtype) -> str:
        return str(dtype)

    # The index space and addresses.

    def finalize_indexing(self, indices) -> None:
        simplified = [self.prepare_indexing(i) for i in indices]
        scan = any(n.node.get_reduction_type() == "scan" for n in self.features.scheduler_nodes() if n.is_reduction())
        self.space = Space(self.range_trees, simplified, single_inner=scan)

    def address(self, index: sympy.Expr) -> sympy.Expr:
        return self.space.coordinates(self.prepare_indexing(index), self.range_tree_nodes)

    def split(self, index: sympy.Expr):
        """Offset, strides and what has to be computed of an address."""
        offset, strides, rest = self.space.split(self.address(index))
        if rest != 0 and not V.graph.sizevars.statically_known_geq(offset, 0):
            rest, offset = rest + offset, sympy.S.Zero  # an operand with computed addresses begins inside its buffer
        return offset, strides, rest

    def operand(self, argument: str, offset, strides) -> str:
        key = (argument, offset, strides)
        if key not in self.operands:
            others = sum(k[0] == argument for k in self.operands)
            self.operands[key] = f"{argument}_{others}" if others else argument
        return self.operands[key]

    def param(self, expr: sympy.Expr) -> str:
        return self.params.setdefault(expr, f"n{len(self.params)}")

    def expression(self, expr) -> Value:
        """The value of an index expression."""
        return self._compute(self.address(sympy.sympify(expr)))

    def _compute(self, expr: sympy.Expr) -> Value:
        b = self.builder
        known = static(expr)
        if known is not None:
            return b.const(known, "i64")
        if expr.is_Symbol:
            if expr in self.space.number:
                return b.emit("index", imm=str(self.space.number[expr]), type="i64")
            if expr.name in b.names:
                return b.cast(b.names[expr.name], "i64")
            return b.emit("param", imm=self.param(expr), type="f64" if expr.is_integer is False else "i64")
        if isinstance(expr, (sympy.Float, sympy.Rational)) or expr in (sympy.oo, -sympy.oo):
            return b.const(float(expr), "f64")
        if not any(s in self.space.number or s.name in b.names for s in expr.free_symbols) and expr.is_integer:
            return b.emit("param", imm=self.param(expr), type="i64")  # the host computes it
        args = expr.args

        def chain(op):
            values = [self._compute(a) for a in args]
            type = "f64" if any(is_float(v.type) for v in values) else "i64"
            return functools.reduce(lambda x, y: b.emit(op, [x, y]), [b.cast(v, type) for v in values])

        match expr:
            case sympy.Add():
                return chain("add")
            case sympy.Mul():
                return chain("mul")
            case sf.FloorDiv() | sf.CleanDiv():
                return chain("floordiv")
            case sf.ModularIndexing():
                base, divisor, length = args
                quotient = self._compute(base) if divisor == 1 else self._compute(sf.FloorDiv(base, divisor))
                return b.emit("mod", [quotient, self._compute(length)])
            case sf.PythonMod() | sf.Mod():
                return chain("mod")
            case sf.Min() | sympy.Min():
                return chain("min")
            case sf.Max() | sympy.Max():
                return chain("max")
            case sf.Identity():
                return self._compute(args[0])
            case sympy.Abs():
                return b.emit("abs", [self._compute(args[0])])
            case sf.Where():
                return b.emit("where", [self._truth(args[0]), *map(self._compute, args[1:])], type="i64")
            case sympy.Pow() if static(args[1]) is not None and static(args[1]) > 0:
                base = self._compute(args[0])
                return functools.reduce(lambda x, y: b.emit("mul", [x, y]), [base] * static(args[1]))
            case sf.ToFloat():
                return b.cast(self._compute(args[0]), "f64")
            case sf.TruncToInt():
                return b.cast(self._compute(args[0]), "i64")
            case sf.FloatTrueDiv() | sf.IntTrueDiv():
                return b.emit("div", [b.cast(self._compute(a), "f64") for a in args])
            case sf.LShift() | sf.RShift():
                return chain("shl" if isinstance(expr, sf.LShift) else "shr")
        raise Unsupported(f"the index {expr} ({type(expr).__name__})")

    def _truth(self, expr) -> Value:
        if type(expr) in _RELATIONS:
            return self.builder.emit(_RELATIONS[type(expr)], [self._compute(a) for a in expr.args], type="bool")
        if isinstance(expr, (sympy.And, sympy.Or)):
            op = "and" if isinstance(expr, sympy.And) else "or"
            return functools.reduce(lambda x, y: self.builder.emit(op, [x, y]), map(self._truth, expr.args))
        raise Unsupported(f"the condition {expr}")

    # Memory.

    def load(self, name: str, index: sympy.Expr) -> Value:
        argument = self.args.input(name)
        offset, strides, rest = self.split(index)
        dtype = V.graph.get_dtype(name)
        imm, type = self.operand(argument, offset, strides), compute_type(dtype)
        seen = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
        op, args = ("load", []) if rest == 0 else ("load_at", [self._compute(rest)])
        loaded = self.builder.emit(op, args, imm=imm, type=type, dtype=seen, mask=self._load_mask)
        loaded.source, loaded.argument, loaded.memory = name, argument, _mutated(name)
        return loaded

    def load_seed(self, name: str, offset) -> Value:
        return self.load(name, sympy.sympify(offset))

    def store(self, name: str, index: sympy.Expr, value: Value, mode=None) -> None:
        argument = self.args.output(name)
        offset, strides, rest = self.split(index)
        dtype = V.graph.get_dtype(name)
        value = value_of(value)
        if value.op == "cast" and value.imm and value.dtype == dtype:
            value = value.args[0]  # a store narrows as well
        if mode is None and rest == 0:
            stored = self.builder.emit(
                "store", [value], imm=self.operand(argument, offset, strides), mask=self._load_mask, effect=True
            )
        elif mode in (None, "atomic_add"):
            if dtype == torch.bool and mode:
                raise Unsupported("a sum of bool")
            value = self.builder.cast(value, compute_type(dtype))
            imm = f"{self.operand(argument, offset, strides)} {'add' if mode else 'set'}"
            stored = self.builder.emit(
                "store_at", [value, self._compute(rest)], imm=imm, mask=self._load_mask, effect=True
            )
        else:
            raise Unsupported(f"a store with mode {mode}")
        stored.buffer, stored.argument, stored.memory = name, argument, _mutated(name)
        stored.exact = STORAGE[dtype] == value.type

    def check_bounds(self, expr, size, lower, upper) -> None:
        if lower or upper:
            index = self.expression(expr)
            self.builder.emit(
                "check_index", [index, self.expression(size)], imm="check", mask=self._load_mask, effect=True
            )

    def device_assert_async(self, cond, msg) -> None:
        raise Unsupported("an assertion")

    # Folds. The each segment ends where Inductor ends its loop; rows and later loops then see what was folded.

    def store_reduction(self, name: str, index: sympy.Expr, value: Value) -> None:
        segment, self.builder.current = self.builder.current, self.after
        inside, self.inside_reduction = self.inside_reduction, False
        try:
            self.store(name, index, value)
        finally:
            self.builder.current, self.inside_reduction = segment, inside

    def reduction(self, dtype, src_dtype, reduction_type, value):
        b = self.builder
        values = [value_of(v) for v in value] if isinstance(value, tuple) else [value_of(value)]

        def members(fold, types):
            return [b.emit("get", [fold], imm=str(k), type=t) for k, t in enumerate(types)]

        if reduction_type in ("argmax", "argmin"):
            position = values[1] if len(values) > 1 else self._position()
            fold = b.emit("fold", [values[0], b.cast(position, "i64")], imm=reduction_type)
            return members(fold, [values[0].type, "i64"])[1]
        if reduction_type in ("welford_reduce", "welford_combine"):
            type = compute_type(dtype)
            values = [b.cast(v, type) for v in values]
            return tuple(members(b.emit("fold", values, imm="welford"), [type] * 3))
        if reduction_type not in _FOLDS:
            raise Unsupported(f"the reduction {reduction_type}")
        type = "bool" if reduction_type == "any" else compute_type(dtype)
        fold = b.emit("fold", [b.cast(values[0], type)], imm=_FOLDS[reduction_type])
        return seen_as(fold, dtype) if dtype in NARROW else fold

    def _position(self) -> Value:
        """The place of the current element in its row."""
        flat, count = sympy.S.Zero, sympy.S.One
        for tree in reversed([t for t in self.range_trees if t.is_reduction]):
            flat += self.space.flat(tree) * count
            count *= plain(tree.numel)
        return self._compute(flat)

    def codegen_body(self) -> None:
        kind = "each" if self.inside_reduction or not self.features.is_reduction() else "row"
        seen = self.builder.close(kind)
        if self.after.values:
            self.builder.current, self.after = self.after, Segment("row")
            seen += self.builder.close("row")
        self.cse.invalidate(OrderedSet(self.builder.visible.values()))

    def remove_kernel_local_buffers(self) -> None:
        """A buffer that later loops of this kernel loaded need not be there if they do not load it any more."""
        self.codegen_body()
        self.builder.segments = passes.merge(self.builder.segments)
        count = static(sympy.Mul(*(plain(t.numel) for t in self.range_trees if t.is_reduction)))
        if count:
            self.builder.segments = passes.moments_by_sums(self.builder.segments, count)
        strides = {name: key[2] for key, name in self.operands.items()}
        self.builder.segments = passes.once_per_row(
            self.builder.segments, lambda v: not any(strides[v.imm][-self.space.inner_rank :])
        )
        self._share_buffers()
        self.must_keep_buffers = OrderedSet(self._loaded())
        super().remove_kernel_local_buffers()

    def _loaded(self) -> set[str]:
        values = used(self.builder.segments, lambda s, v: v.effect or s.kind == "combine")
        return {v.source for v in values if v.source is not None}

    def _share_buffers(self) -> None:
        scheduler, args = V.graph.scheduler, self.args
        if scheduler is None:
            return
        stored = {n for n in self.store_buffer_names if n in scheduler.name_to_buf}
        made = stored.difference(args.input_buffers, scheduler.mutation_renames, scheduler.mutation_real_name)
        nodes = OrderedSet(scheduler.name_to_buf[n].defining_op_name() for n in stored)
        ending = {n for n in made if scheduler.can_buffer_be_removed_through_fusion(n, nodes)}
        unloaded = ending - self._loaded()

        def arguments(buffers: set[str]) -> set[str]:
            """The tensors of which all names are among these."""
            inplace = [b for b in args.inplace_buffers.values() if isinstance(b, InplacedBuffer)]
            single = {inner for outer, inner in args.output_buffers.items() if outer in buffers}
            return single | {b.inner_name for b in inplace if buffers.issuperset(b.other_names)}

        keys = {name: key[1:] for key, name in self.operands.items()}
        segments = finish(self.builder.segments, unloaded.__contains__)
        passes.share(
            segments,
            arguments(made),
            arguments(ending),
            lambda v: (*keys[v.imm], V.graph.get_dtype(v.buffer or v.source)),
        )

    # The result.

    def _number(self, expr) -> int | str:
        known = static(expr)
        if known is not None:
            return known
        text = pexpr(plain(expr))
        self.numbers.setdefault(text, plain(expr))
        return text

    def codegen_kernel(self, name=None) -> str:
        """The definition in generated code."""
        self.codegen_body()
        segments = finish(self.builder.segments, is_buffer_removed)
        values = [v for s in segments for v in s.values]
        if not values:
            raise Unsupported("a kernel that stores nothing")
        kind = self.kind or _kind(segments)
        uses = {v.imm.split()[0] for v in values if v.op in ("load", "load_at", "store", "store_at")}
        operands = [(k, f"factor{n}") for n, k in enumerate(self.leading)]
        operands += [(k, n) for k, n in self.operands.items() if n in uses]
        params = [(e, n) for e, n in self.params.items() if any(v.op == "param" and v.imm == n for v in values)]
        if len(operands) > MAX_OPERANDS or len(params) > MAX_PARAMS:
            raise TooLarge(f"{len(operands)} operands and {len(params)} parameters")
        program = text_of(KERNEL_NAME, segments, [n for _, n in operands], [n for _, n in params])
        if broken := _C.check_program(program):
            raise (TooLarge if "at most" in broken else RuntimeError)(f"{broken}\n{program}")
        if self.template is not None and [v.op for v in values] == ["acc", "store"]:
            program = ""  # which is what the command does by itself
        return self._definition(kind, operands, params, program)

    def _definition(self, kind, operands, params, program: str) -> str:
        arg_defs, call_args, _, _ = self.args.python_argdefs()
        tensors = {d.name: c for d, c in zip(arg_defs, call_args) if d.name not in self.args.sizevars.values()}
        used = [t for t in tensors if any(k[0] == t for k, _ in operands)]
        self.numbers: dict[str, sympy.Expr] = {}
        sizes = tuple(map(self._number, self.space.sizes))
        described = [(k[0], self._number(k[1]), tuple(map(self._number, k[2]))) for k, _ in operands]
        given = tuple(self._number(e) for e, _ in params)
        inner = {"reduce": self.space.inner_rank, "scan": 1}.get(kind, 0)
        more = self.template.numbers if self.template is not None else {}
        more = {k: tuple(map(self._number, v)) if isinstance(v, tuple) else self._number(v) for k, v in more.items()}
        self.tensors = [tensors[t] for t in used]
        definition = Definition(
            *(kind, tuple(used), sizes, described, program, tuple(self.numbers), given, inner),
            **more,
            tune=autotune.wanted(kind),
        )
        return definition.cpp() if V.graph.cpp_wrapper else definition.python()

    def call_kernel(self, name: str, node=None, deallocate_ws=True) -> None:
        V.graph.wrapper_code.call_kernel(name, self.tensors, self.numbers.values())


def _mutated(name: str) -> str | None:
    """The name of the tensor that this buffer overwrites, or that others overwrite."""
    real = V.graph.scheduler.mutation_real_name if V.graph.scheduler is not None else {}
    return real.get(name) or (name if name in real.values() else None)


def _kind(segments: list[Segment]) -> str:
    ops = {v.op for s in segments for v in s.values}
    rows = "fold" in ops or any(s.kind == "row" for s in segments)
    if (rows and ops & {"store_at", "scan"}) or {"store_at", "scan"} <= ops:
        raise TooLarge("a scatter or scan beside a reduction")
    if "store_at" in ops:
        return "scatter"
    return "scan" if "scan" in ops else "reduce" if rows or len(segments) > 1 else "map"
