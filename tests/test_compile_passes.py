"""Which segments of a program become one: torch_npu.compile.passes."""

import pytest

from torch_npu.compile import passes
from torch_npu.compile.program import Builder, finish, text_of


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
        return text_of("p", finish(passes.merge(self.builder.segments), lambda name: False), [], [])


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
