"""Which segments of a program become one: torch_npu.compile.codegen.passes."""

import pytest

from torch_npu.compile.codegen import passes
from torch_npu.compile.codegen.program import Builder, finish, text_of


class Program:
    """A program by hand, one segment after the other."""

    def __init__(self):
        self.builder = Builder()

    def load(self, name, *, mask=None):
        value = self.builder.emit("load", imm=name, type="f32", mask=mask)
        value.argument = name.split("_")[0]
        return value

    def store(self, name, value, *, exact=True, mask=None):
        stored = self.builder.emit("store", [value], imm=name, mask=mask, effect=True)
        stored.argument, stored.exact = name.split("_")[0], exact

    def emit(self, op, *args, imm=""):
        return self.builder.emit(op, list(args), imm=imm)

    def fold(self, value):
        return self.emit("fold", value, imm="sum")

    def end(self, kind="each"):
        self.builder.close(kind)

    def merged(self) -> str:
        return self._text(passes.merge(self.builder.segments))

    def by_sums(self, count) -> str:
        return self._text(passes.moments_by_sums(self.builder.segments, count))

    def per_row(self, of_row=("w",)) -> str:
        return self._text(passes.once_per_row(self.builder.segments, lambda v: v.imm in of_row))

    def shared(self, own, ending, layout=lambda v: ()) -> str:
        passes.share(self.builder.segments, set(own), set(ending), layout)
        return self._text(self.builder.segments)

    def _text(self, segments) -> str:
        return text_of("p", finish(segments, lambda name: False), [], [])


def two_sums(between=lambda p: None) -> str:
    p = Program()
    first = p.fold(p.load("a"))
    p.end()
    p.store("r", first)
    p.end("row")
    between(p)
    p.store("s", p.fold(p.emit("mul", p.load("a"), p.load("b"))))
    p.end()
    return p.merged()


def test_sums_that_need_nothing_of_each_other_are_one_pass():
    text = two_sums()
    assert text.count("each:") == 1 and text.count("fold sum") == 2 and text.count("load a") == 1


def test_what_needs_a_sum_stays_behind_it():
    p = Program()
    total = p.fold(p.load("a"))
    p.end()
    p.store("c", p.emit("sub", p.load("a"), total))
    p.end()
    assert p.merged().count("each:") == 2


def test_a_row_that_writes_what_is_read_later_keeps_them_apart():
    def write(p):
        p.store("b", p.load("r"))
        p.end("row")

    assert two_sums(write).count("each:") == 2


def chain(store="t", load="t", **stored) -> str:
    """Two segments with a tensor between them."""
    p = Program()
    p.store(store, p.emit("exp", p.load("a")), **stored)
    p.end()
    p.store("c", p.emit("mul", p.load(load), p.load("b")))
    p.end()
    return p.merged()


def test_what_was_stored_is_not_loaded():
    text = chain()
    assert text.count("each:") == 1 and "load t" not in text and "store t" in text


@pytest.mark.parametrize("case", [{"load": "t_1"}, {"exact": False}])
def test_other_places_and_narrower_types_are_loaded(case):
    text = chain(**case)
    assert text.count("each:") == 2 and "load t" in text


def test_a_second_store_to_one_place_comes_last():
    p = Program()
    p.store("t", p.emit("exp", p.load("a")))
    p.end()
    p.store("t", p.emit("neg", p.load("t")))
    p.end()
    p.store("c", p.load("t"))
    p.end()
    lines = p.merged().splitlines()
    assert sum("load t" in line for line in lines) == 0
    stores = [line.split()[-1] for line in lines if "store t" in line]
    assert len(stores) == 2 and lines[-1].endswith(stores[-1]), lines


def test_no_more_folds_than_a_segment_may_have():
    p = Program()
    for k in range(3):
        for sign in ("neg", "abs"):
            p.store(f"r{sign}{k}", p.fold(p.emit(sign, p.load(f"a{k}"))))
        p.end()
    text = p.merged()
    assert text.count("each:") == 2


def moments(op="exp", summed=True, **stored) -> str:
    """Moments of what is stored, then a norm."""
    p = Program()
    x = p.emit(op, p.load("a")) if op else p.load("a")
    p.store("t", x, **stored)
    total = p.fold(x) if summed else None
    fold = p.emit("fold", x, imm="welford")
    mean, squares = (p.emit("get", fold, imm=str(k)) for k in range(2))
    p.end()
    if summed:
        p.store("s", total)
    p.store("v", squares)
    p.end("row")
    p.store("c", p.emit("sub", p.load("a"), mean))
    p.end()
    return p.by_sums(1000)


@pytest.mark.parametrize("summed", [True, False])
def test_moments_of_what_a_loop_computes_and_stores_are_two_sums(summed):
    lines = [line.strip() for line in moments(summed=summed).splitlines()]
    assert not any("welford" in line or "get" in line for line in lines)
    names = {line.split(" = ")[1]: line.split(" = ")[0] for line in lines if " = " in line}
    computed = next(line.split()[-1] for line in lines if line.startswith("store t"))
    mean = names[f"div {names[f'fold sum {computed}']}, {names['const 1000.0 : f32']}"]
    difference = names[f"sub {names['load t : f32']}, {mean}"]
    squares = names[f"fold sum {names[f'mul {difference}, {difference}']}"]
    assert f"store v, {squares}" in lines and any(line.endswith(f", {mean}") for line in lines[-2:])
    assert (f"store s, {names[f'fold sum {computed}']}" in lines) == summed


@pytest.mark.parametrize("case", [{"op": None}, {"exact": False}])
def test_moments_of_loads_and_of_what_is_not_stored_as_it_is_stay(case):
    assert "fold welford" in moments(**case)


def moments_of_a_sum(op="add", count=1000, over=None, mask=False) -> str:
    """m2(a + b), of which nothing is stored."""
    p = Program()
    condition = p.emit("lt", p.load("c"), p.load("c")) if mask else None
    a, b = p.load("a", mask=condition), p.load("b")
    fold = p.emit("fold", p.emit(op, a, b), imm="welford")
    squares = p.emit("get", fold, imm="1")
    if over:
        p.store(over, a)
    p.end()
    p.store("v", squares)
    p.end("row")
    return p.by_sums(count)


def test_moments_of_what_is_cheap_to_compute_again_are_two_sums():
    text = moments_of_a_sum()
    for part in text.split("each:")[1:]:
        assert "load a" in part and "load b" in part and "add" in part and "fold sum" in part
    assert text.count("each:") == 2 and "welford" not in text and "store v" in text.split("row:")[-1]


@pytest.mark.parametrize("case", [{"op": "pow"}, {"count": 5000}, {"over": "a"}, {"mask": True}])
def test_moments_of_what_is_dear_or_gone_in_another_pass_stay(case):
    assert "fold welford" in moments_of_a_sum(**case)


def scaled(row=lambda p, total: None, **load) -> str:
    """a * (2 * sum(a) * w) + 3"""
    p = Program()
    total = p.fold(p.load("a"))
    p.end()
    row(p, total)
    p.end("row")
    two, three = p.builder.const(2.0, "f32"), p.builder.const(3.0, "f32")
    factor = p.emit("mul", p.emit("mul", total, two), p.load("w", **load))
    p.store("r", p.emit("add", p.emit("mul", p.load("a"), factor), three))
    p.end()
    return p.per_row()


def test_what_a_row_has_in_common_is_computed_once_for_it():
    _, row, each = scaled(lambda p, total: p.store("s", total)).split(":\n")[1:]
    assert row.count("mul") == 2 and row.count("load w") == 1 and row.count("const") == 1
    assert each.count("mul") == 1 and each.count("load") == 1 and each.count("const") == 1
    assert scaled().count("row:") == 1  # of its own, where there was none


def test_what_the_kernel_writes_is_loaded_where_it_was():
    _, row, each = scaled(lambda p, total: p.store("w", total)).split(":\n")[1:]
    assert "load w" not in row and row.count("mul") == 1
    assert "load w" in each and each.count("mul") == 2


def test_a_first_segment_and_points_of_a_row_stay():
    p = Program()
    p.store("r", p.emit("mul", p.load("a"), p.emit("exp", p.load("w"))))
    p.end()
    assert "row:" not in p.per_row()
    assert "load w" not in scaled().split("each:")[-1]
    p = Program()
    total = p.fold(p.load("a"))
    p.end()
    p.store("r", p.emit("mul", total, p.load("b")))
    p.end()
    assert "row:" not in p.per_row()


def norms() -> Program:
    """Three tensors in a row: each is stored by one segment and loaded by the next, which folds in between."""
    p = Program()
    x = p.load("a")
    for name in ("t", "u", "v"):
        value = p.emit("exp", x)
        p.store(name, value)
        total = p.fold(value)
        p.end()
        x = p.emit("sub", p.load(name), total)
    p.store("out", x)
    p.end()
    return p


def places(text: str) -> list[str]:
    return [line.split()[1].rstrip(",") for line in text.splitlines() if line.strip().startswith("store")]


def test_tensors_that_end_with_the_kernel_lie_where_the_result_will():
    text = norms().shared({"t", "u", "v", "out"}, {"t", "u", "v"})
    assert places(text) == ["out"] * 4 and text.count("load out") == 3 and "load a" in text


def test_a_tensor_that_is_needed_later_keeps_its_place():
    assert places(norms().shared({"t", "u", "v", "out"}, {"t", "v"})) == ["u", "u", "out", "out"]


def test_only_tensors_of_the_kernel_take_others():
    """Another may be read by its other name meanwhile."""
    assert places(norms().shared({"t", "u"}, {"t", "u"})) == ["u", "u", "v", "out"]


def test_points_must_lie_alike():
    text = norms().shared({"t", "u", "v", "out"}, {"t", "u", "v"}, layout=lambda v: v.imm in ("t", "v"))
    assert places(text) == ["v", "out", "v", "out"]


def test_two_tensors_that_live_at_once_lie_apart():
    p = Program()
    x = p.load("a")
    p.store("t", p.emit("exp", x))
    p.store("u", p.emit("neg", x))
    total = p.fold(x)
    p.end()
    p.store("out", p.emit("mul", p.emit("sub", p.load("t"), total), p.load("u")))
    p.end()
    assert places(p.shared({"t", "u", "out"}, {"t", "u"})) == ["out", "u", "out"]
