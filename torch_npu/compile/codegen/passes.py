"""Fewer passes over the folded range.

Inductor ends a loop wherever one reduction follows another, so the gradient of a batch norm is four loops: two sums, of
which neither needs the other, and what is made of them in two steps by way of a buffer. An each segment that needs
nothing of what lies between joins an earlier one, and what that one has stored at a point is not loaded again there.
Moments of what a loop stores, or computes with little effort, are two sums, since loops add up in registers. What is
the same for all points of a row is computed once for the row. Buffers between the loops of one kernel take each other's
place where they can, so that a chain of norms walks over one tensor and not over five."""

import itertools
from collections.abc import Callable

from torch_npu.compile.codegen.program import MAX_FOLDS, Segment, Value, number_text

_READS, _WRITES = ("load", "load_at"), ("store", "store_at")
_CHEAP, _MOST_CHEAP = ("add", "sub", "mul", "neg"), 4
_NEAR = 1 << 13  # elements that stay near from one pass over a row to the next
_CONSTANTS, _OF_POINTS = ("const", "param"), (*_READS, "fold", "scan", "get")


def merge(segments: list[Segment]) -> list[Segment]:
    out: list[Segment] = []
    replaced: dict[Value, Value] = {}
    for segment in segments:
        for value in segment.values:
            _rename(value, replaced)
        place = _place_for(segment, out)
        if place is None:
            out.append(Segment(segment.kind, list(segment.values)))
        else:
            _join(out[place], segment, replaced)
    return out


def moments_by_sums(segments: list[Segment], count: int) -> list[Segment]:
    """Where the moments of what a segment computes are folded, over `count` elements: the sum, and in a pass of its own
    the sum of squares of what differs from the mean. Loops add up in registers what they compute, and a sum that is
    asked for as well is there already. The second pass loads what was stored, or computes it again if that is cheap."""
    out: list[Segment] = []
    replaced: dict[Value, Value] = {}
    for segment in segments:
        for value in segment.values:
            _rename(value, replaced)
        out.append(segment)
        for fold in [v for v in segment.values if v.op == "fold" and v.imm == "welford" and len(v.args) == 1]:
            again = _again(fold, segment, count)
            if again:
                out += _two_passes(fold, again, segment, count, replaced)
    return out


def _again(fold: Value, segment: Segment, count: int) -> list[Value]:
    """What makes the folded value once more, itself last; nothing where that takes longer than its moments."""
    value = fold.args[0]
    if value.op == "load":
        return []
    stores = (v for v in segment.values if v.op == "store" and v.args[0] is value)
    store = next((v for v in stores if v.exact and v.mask is None), None)
    if store is not None:
        return [_loaded_again(fold, store)]
    needed = _needed(value, segment)
    return _computed_again(fold, needed) if _is_cheap(needed, segment, count) else []


def _loaded_again(fold: Value, store: Value) -> Value:
    loaded = Value(f"{fold.name}_again", "load", [], store.imm, fold.type, fold.dtype, None, False)
    loaded.source, loaded.argument, loaded.memory = store.buffer, store.argument, store.memory
    return loaded


def _computed_again(fold: Value, needed: list[Value]) -> list[Value]:
    copies: dict[Value, Value] = {}
    for v in needed:
        args = [copies.get(a, a) for a in v.args]
        copy = Value(f"{fold.name}_{v.name}", v.op, args, v.imm, v.type, v.dtype, None, False)
        copy.source, copy.argument, copy.memory = v.source, v.argument, v.memory
        copies[v] = copy
    return list(copies.values())


def _is_cheap(needed: list[Value], segment: Segment, count: int) -> bool:
    loads = [v for v in needed if v.op == "load"]
    stored = {name for v in segment.values if v.op in _WRITES for name in v.tensors()}
    return (
        all(v.mask is None and v.op in (*_CHEAP, *_CONSTANTS, "load") for v in needed)
        and len(needed) - len(loads) <= _MOST_CHEAP
        and count * len(loads) <= _NEAR
        and all(stored.isdisjoint(v.tensors()) for v in loads)
    )


def _needed(value: Value, segment: Segment) -> list[Value]:
    """The segment's instructions that make the value, in order."""
    needed = {value}
    for v in reversed(segment.values):
        if v in needed:
            needed.update(v.inputs())
    return [v for v in segment.values if v in needed]


def _two_passes(
    fold: Value, again: list[Value], segment: Segment, count: int, replaced: dict[Value, Value]
) -> list[Segment]:
    names = (f"{fold.name}_{k}" for k in itertools.count())

    def make(op: str, *args: Value, imm: str = "") -> Value:
        return Value(next(names), op, list(args), imm, fold.type, fold.dtype, None, False)

    computed = fold.args[0]
    sums = (v for v in segment.values if v.op == "fold" and v.imm == "sum" and v.args == [computed])
    total = next(sums, None) or make("fold", computed, imm="sum")
    number = make("const", imm=number_text(count, fold.type))
    mean = make("div", total, number)
    difference = make("sub", again[-1], mean)
    square = make("mul", difference, difference)
    squares = make("fold", square, imm="sum")
    members = [v for v in segment.values if v.op == "get" and v.args == [fold]]
    replaced.update((v, (mean, squares, number)[int(v.imm)]) for v in members)
    segment.values = [v for v in segment.values if v not in (fold, total, *members)] + [total]
    return [Segment("row", [number, mean]), Segment("each", [*again, difference, square, squares])]


def once_per_row(segments: list[Segment], is_of_row: Callable[[Value], bool]) -> list[Segment]:
    """Values that an each segment computes of folds, of rows and of nothing else become values of the row, in a segment
    before it. `is_of_row`: of a load, whether it is the same for all points of a row."""
    stored = {name for s in segments for v in s.values if v.op in _WRITES for name in v.tensors()}
    out: list[Segment] = []
    for segment in segments:
        moved = []
        if segment.kind == "each" and out:
            moved = _of_row(segment, lambda v: stored.isdisjoint(v.tensors()) and v.mask is None and is_of_row(v))
        if moved:
            if out[-1].kind != "row":
                out.append(Segment("row"))
            out[-1].values += moved
            segment.values = [v for v in segment.values if v not in moved]
        out.append(segment)
    return out


def _of_row(segment: Segment, is_of_row: Callable[[Value], bool]) -> list[Value]:
    own, same, computed = set(segment.values), set(), []
    for value in segment.values:
        if value.op in _CONSTANTS or (value.op == "load" and is_of_row(value)):
            same.add(value)
        elif value.args and not value.effect and value.op not in _OF_POINTS:
            if all(a in same or (a not in own and a.op != "scan") for a in value.inputs()):
                same.add(value)
                computed.append(value)
    needed = {a for v in computed for a in v.args if a in own and a.op == "load"}
    constants = {a: _copy(a) for v in computed for a in v.args if a.op in _CONSTANTS and a in own}
    for value in computed:
        _rename(value, constants)
    return [*constants.values(), *(v for v in segment.values if v in needed or v in computed)]


def _copy(value: Value) -> Value:
    return Value(f"{value.name}_row", value.op, [], value.imm, value.type, value.dtype, None, False)


def share(segments: list[Segment], own: set[str], ending: set[str], layout: Callable[[Value], tuple]) -> None:
    """Puts a tensor that ends with this kernel where another of its `own` lies that is not touched before the last use
    of the first. Both are known by the kernel's names for them, and hold the same points in the same way."""
    accesses: dict[str, list[tuple[int, Value]]] = {}
    fit = set(own)
    for position, (segment, value) in enumerate((s, v) for s in segments for v in s.values):
        if value.op in (*_READS, *_WRITES):
            accesses.setdefault(value.argument, []).append((position, value))
            if segment.kind != "each" or "_at" in value.op or value.mask is not None:
                fit.discard(value.argument)
    layouts = {name: {layout(v) for _, v in accesses[name]} for name in accesses if name in fit}
    names = [name for name in layouts if len(layouts[name]) == 1]
    for place, name in enumerate(names):
        if name not in ending:
            continue
        last = accesses[name][-1][0]
        for other in names[place + 1 :]:
            first, store = accesses[other][0]
            if first > last and store.op == "store" and layouts[other] == layouts[name]:
                for _, value in accesses[name]:
                    _move(value, store)
                accesses[other] = accesses[name] + accesses[other]
                break


def _move(value: Value, store: Value) -> None:
    """An access to the place of this store."""
    value.imm, value.argument = store.imm, store.argument
    if value.op == "store":
        value.buffer = store.buffer
    else:
        value.source = store.buffer


def _rename(value: Value, replaced: dict[Value, Value]) -> None:
    value.args = [replaced.get(a, a) for a in value.args]
    if value.mask is not None:
        value.mask = replaced.get(value.mask, value.mask)


def _place_for(segment: Segment, before: list[Segment]) -> int | None:
    """The number of the first each segment that this one can be part of."""
    if not _is_plain(segment):
        return None
    needs = {a for v in segment.values for a in v.inputs()}.difference(segment.values)
    place = None
    for k in reversed(range(len(before))):
        other = before[k]
        if not needs.isdisjoint(other.values):
            break
        pairs = _conflicts(other, segment)
        if _is_plain(other) and _folds(other) + _folds(segment) <= MAX_FOLDS and all(_in_order(*p) for p in pairs):
            place = k
        if pairs:
            break
    return place


def _is_plain(segment: Segment) -> bool:
    return segment.kind == "each" and not any(v.op in ("scan", "store_at") for v in segment.values)


def _folds(segment: Segment) -> int:
    return sum(v.op == "fold" for v in segment.values)


def _conflicts(first: Segment, second: Segment) -> list[tuple[Value, Value]]:
    """Accesses of one tensor, at least one of which writes."""
    accesses = [[v for v in s.values if v.op in (*_READS, *_WRITES)] for s in (first, second)]
    return [
        (a, b)
        for a in accesses[0]
        for b in accesses[1]
        if (a.op in _WRITES or b.op in _WRITES) and not a.tensors().isdisjoint(b.tensors())
    ]


def _in_order(a: Value, b: Value) -> bool:
    """Whether it is enough that `a` comes before `b` at each point: both are at the same place of the tensor, and what
    was stored need not be loaded."""
    if a.imm != b.imm or "_at" in a.op + b.op:
        return False
    return b.op == "store" or (a.exact and a.mask is None and b.mask is None)


def _is_of(tensors: set[str] | None, store: Value) -> bool:
    """Whether what is known by these names may be what the store overwrites."""
    return tensors is None or not tensors.isdisjoint(store.tensors())


def _join(into: Segment, segment: Segment, replaced: dict[Value, Value]) -> None:
    known: dict[tuple, Value] = {}
    own = set(segment.values)
    tensors = {v.imm: v.tensors() for v in (*into.values, *segment.values) if v.op == "load"}
    for value in (*into.values, *segment.values):
        _rename(value, replaced)
        if value.op == "store":
            for key in [k for k in known if k[0] in _READS and _is_of(tensors.get(k[2]), value)]:
                del known[key]
            if value.exact and value.mask is None:
                known["load", (), value.imm, value.args[0].type, None] = value.args[0]
        if not value.effect:
            same = known.setdefault((value.op, tuple(value.args), value.imm, value.type, value.mask), value)
            if same is not value and value in own:
                replaced[value] = same
    into.values += [v for v in segment.values if v not in replaced]
