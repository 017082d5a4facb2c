"""The op table: expressions, entries, and an op added from a table outside the repository."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support import LIBRARIES, ROOT

sys.path.insert(0, str(ROOT / "codegen"))

from expression import TableError, compile_paired, compile_program  # noqa: E402
from generate import find, generate  # noqa: E402
from sequences import SOURCE, compile_functions  # noqa: E402
from table import read_table  # noqa: E402

TABLE = ROOT / "codegen" / "pointwise.ops"


def program(body, kind="float", operands=("x", "y"), params=("p",)):
    text = compile_program("test", list(operands), list(params), body, kind)
    return [line.strip() for line in text.splitlines()[2:]]


def table(tmp_path, text):
    path = tmp_path / "some.ops"
    path.write_text(text)
    return read_table(path)


def test_equal_subexpressions_are_computed_once():
    assert program("(x + y) * (x + y)") == [
        "%0 = load x : $t",
        "%1 = load y : $t",
        "%2 = add %0, %1",
        "%3 = mul %2, %2",
        "store out, %3",
    ]


def test_arithmetic_on_numbers_is_done_here():
    assert "%1 = const 0.5 : $t" in program("x * (1 / (3 - 1))")


def test_a_number_takes_the_type_of_its_neighbour():
    assert "%1 = const 0 : $t" in program("where(x > 0, x, 1)", "int")
    assert "%2 = const true : bool" in program("isnan(x) & true")


def test_a_truth_value_beside_a_number_becomes_one():
    assert "%3 = cast %2 : $t" in program("(x > y) + x")


def test_named_values_and_two_results():
    lines = program("s = exp(x); s * y, s")
    assert lines[-2:] == ["store out0, %3", "store out1, %1"]


def test_bool_programs_refuse_arithmetic():
    with pytest.raises(TableError, match="add has no form for bool"):
        program("x + y", "bool")


def test_complex_values_are_pairs():
    text, pairs = compile_paired("test", ["x", "m: bool"], ["p"], "where(m, x * p, 0)", "complex")
    assert text.splitlines()[0] == "program test(out_re, out_im, x_re, x_im, m; p_re, p_im)"
    assert pairs == 0b011  # the result and x, not the mask
    assert sum(" mul " in line for line in text.splitlines()) == 4
    text, pairs = compile_paired("test", ["x"], [], "abs(x)", "complex")
    assert text.splitlines()[0] == "program test(out, x_re, x_im)" and pairs == 0b10


def test_a_real_number_beside_a_complex_value_stays_real():
    assert program("1 - x", "complex", ["x"], [])[-4:] == [
        "%3 = sub %2, %0",
        "%4 = neg %1",
        "store out_re, %3",
        "store out_im, %4",
    ]


def test_functions_without_a_complex_form_are_errors():
    with pytest.raises(TableError, match="erf has no form for complex numbers"):
        program("erf(x)", "complex")
    with pytest.raises(TableError, match="expected a real value, got a complex one"):
        program("i64(x)", "complex")


def test_a_fraction_in_an_integer_program_is_an_error():
    with pytest.raises(TableError, match="expected a whole number"):
        program("x * 0.5", "int")


def test_errors_name_the_line(tmp_path):
    with pytest.raises(TableError, match=r"some.ops:2: .*got z"):
        table(tmp_path, "neg(x): -x\nexp(x): exp(z)\n")
    with pytest.raises(TableError, match="some.ops:1: expected a function of docs/isa.md, got foo|some.ops:1: .*foo"):
        table(tmp_path, "neg(x): foo(x)\n")


def test_lines_of_one_op_become_one_entry(tmp_path):
    (entry,) = table(tmp_path, "add.Tensor(x, y) [float int]: x + y\nadd.Tensor(x, y) [bool]: x | y\n")
    assert set(entry.variants[0].texts) == {"float", "int", "bool"}


def test_a_name_without_overload_stands_for_all_structured_ones():
    (entry,) = [e for e in read_table(TABLE) if e.name == "eq"]
    assert {op.name for op in find(entry)} == {"eq.Tensor", "eq.Scalar"}


@pytest.mark.skipif(torch.__version__.split(".")[1] != "13", reason="the table is written for the newest PyTorch")
def test_every_op_of_the_table_exists(tmp_path):
    assert generate(TABLE, tmp_path, "table", 2) == []


def test_unchanged_files_are_not_written_again(tmp_path):
    generate(TABLE, tmp_path, "table", 2)
    before = {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    generate(TABLE, tmp_path, "table", 2)
    assert before == {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()}


def test_no_change_of_the_generator_changes_a_bit_of_a_function():
    """docs/isa.md defines functions by their instructions: another sum is a change of the page (docs/abi-policy.md)."""
    programs = compile_functions(SOURCE.read_text()).split("\n\n", 1)[1]
    instructions = "\n".join(line for line in programs.splitlines() if not line.startswith("#"))
    assert hashlib.sha256(instructions.encode()).hexdigest() == (
        "9cd5145a68929eeef184aad4d9e98f3df47e5a0c9cb3083f9d9afb0895e2fe13"
    )


def test_functions_become_sequences_of_instructions():
    half = "def twice(x):\n    return x + x\ndef sign(x):\n    # a helper\n    return twice(x) if x < 0 else -x\n"
    lines = compile_functions(half).split("each:\n")[1].splitlines()
    assert [line.split(" = ")[-1].strip() for line in lines] == [
        "load x : f32", "const 0.0 : f32", "lt %0, %1", "add %0, %0", "neg %0", "where %2, %3, %4", "store out, %5"
    ]  # fmt: skip
    with pytest.raises(TableError, match="expected an f32 as result"):
        compile_functions("def sign(x):\n    return bits(x)\n")


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    """A library with the ops of extension/: the generator and one call of the compiler."""
    folder = tmp_path_factory.mktemp("extension")
    source = ROOT / "tests" / "codegen" / "extension"
    script = [sys.executable, str(ROOT / "codegen" / "generate.py"), "--table", str(source / "extra.ops")]
    subprocess.run([*script, "--out", str(folder / "extra"), "--namespace", "extra", "--shards", "1"], check=True)
    torch_folder = Path(torch.__file__).parent
    minor = torch.__version__.split(".")[1]
    library = folder / "libextra.so"
    flags = ["-std=c++20", "-O0", "-fPIC", "-shared", "-DTORCH_NPU_TORCH_MAJOR=2", f"-DTORCH_NPU_TORCH_MINOR={minor}"]
    flags += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    include = ["-include", str(ROOT / "csrc" / "pch.h"), f"-I{ROOT}", f"-I{ROOT / 'include'}", f"-I{folder}"]
    include += [f"-isystem{torch_folder / 'include'}", f"-isystem{torch_folder / 'include/torch/csrc/api/include'}"]
    sources = [source / "custom.cpp", folder / "extra/programs.cpp", folder / "extra/registrations_0.cpp"]
    link = [f"-L{LIBRARIES}", f"-L{torch_folder / 'lib'}", "-ltorch_npu", "-ltorch_cpu", "-lc10"]
    done = subprocess.run(
        ["c++", *flags, *include, *map(str, sources), *link, "-o", str(library)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return str(library)


def test_ops_from_a_table_outside_the_repository(extension, python):
    lines = python(
        """
        import sys, torch, torch_npu
        torch_npu.fallback.set_mode("error")
        torch.ops.load_library(sys.argv[1])
        x = torch.randn(5, 7)
        with torch_npu.native.counting():
            y = torch.rad2deg(x.to("npu"))
            torch.rad2deg(x.to("npu"), out=torch.empty(0, device="npu"))
            x.to("npu").rad2deg_()
        assert torch_npu.native.report()["aten::rad2deg"] == 3, torch_npu.native.report()
        torch.testing.assert_close(y.cpu(), torch.rad2deg(x))
        print("one line")

        z = x.to("npu").requires_grad_()
        torch.round(z).sum().backward()
        assert z.grad.cpu().eq(1).all()
        c = x.clone().requires_grad_()
        torch.round(c).sum().backward()
        assert c.grad.eq(0).all()
        print("gradient")

        results = []
        for device in ("cpu", "npu"):
            a, b = (t.to(device).detach().requires_grad_() for t in (x, x.flip(0)))
            out = torch.ops.npu.silu_mul(a, b)
            out.sum().backward()
            results.append([out.detach().cpu(), a.grad.cpu(), b.grad.cpu()])
        torch.testing.assert_close(results[1], results[0])
        assert torch.ops.npu.silu_mul(x.to("meta"), x.to("meta")).shape == (5, 7)
        with torch.autocast("npu", dtype=torch.bfloat16):
            assert torch.ops.npu.silu_mul(a, b).dtype == torch.bfloat16
        print("custom")
        """,
        extension,
    ).lines()
    assert lines == ["one line", "gradient", "custom"]


def test_a_custom_op_from_python(python):
    lines = python(
        """
        import torch, torch_npu
        torch_npu.fallback.set_mode("error")
        library = torch.library.Library("npu", "FRAGMENT")
        library.define("scaled_sum(Tensor x, Tensor y, float scale) -> Tensor")

        @torch.library.impl(library, "scaled_sum", "CompositeImplicitAutograd")
        def scaled_sum(x, y, scale):
            return torch.add(x, y, alpha=scale)

        x = torch.ones(3, device="npu", requires_grad=True)
        y = torch.ones(3, device="npu", requires_grad=True)
        torch.ops.npu.scaled_sum(x, y, 0.5).sum().backward()
        print(y.grad.tolist(), torch.ops.npu.scaled_sum(x.to("meta"), y.to("meta"), 2.0).shape)
        """
    ).lines()
    assert lines == ["[0.5, 0.5, 0.5] torch.Size([3])"]
