"""The debug log: what ran where, in text for people and in JSON for programs."""

import json
import os
import pty
import re

import pytest
import torch

import torch_npu
from torch_npu import debug


def test_a_fallback_has_its_transfers_below_it(log):
    x = torch.randn(96, 96, device="npu")
    assert log(lambda: torch.linalg.eigvalsh(x), level=1)[0].startswith("[CPU<->NPU] ")
    lines = log(lambda: torch.linalg.eigvalsh(x), level=2)
    assert lines[0] == "[CPU<->NPU] _linalg_eigh [96x96]" and "    -> [D->H] 36.00 KB" in lines
    assert lines[-1] == "    -> [H->D] 384 B"


def test_a_driver_that_refuses_everything_is_all_fallback(python):
    code = "import torch, torch_npu; x = torch.ones(98304, device='npu'); torch_npu.debug.enable(2); torch.rsqrt(x)"
    result = python(code, TORCH_NPU_DRIVER="template", TORCH_NPU_FALLBACK="quiet")
    assert result.err.splitlines() == [
        "[CPU<->NPU] rsqrt [98304]",
        "    -> [D->H] 384.00 KB",
        "    -> [H->D] 384.00 KB",
    ]


def test_views_copies_and_cpu_ops_have_their_tags(log):
    x, host = torch.randn(4, 6, device="npu"), torch.randn(4, 6)

    def work():
        x.reshape(6, 4)
        x.t().contiguous()
        x.t().reshape(24)
        host @ host.t()
        x[0, 0].item()

    assert (
        log(work)
        == """\
[VIEW] reshape
[VIEW] t
[COPY] contiguous [6x4] npu:0 -> npu:0
[VIEW] t
[COPY] clone [6x4] npu:0 -> npu:0
[CPU] matmul [4x6] @ [6x4]
[VIEW] select
[VIEW] select
[COPY] item [] npu:0 -> cpu""".splitlines()
    )


def test_other_types_are_named(log):
    x = torch.ones(8, 8, device="npu", dtype=torch.bfloat16)
    assert log(lambda: x @ x) == ["[NPU] mm [8x8]bf16 @ [8x8]bf16"]


def test_the_backward_pass_on_its_own_thread_is_there(log):
    x = torch.randn(4, 6, device="npu")
    w = torch.randn(6, 2, device="npu", requires_grad=True)
    loss = (x @ w).sum()
    lines = log(loss.backward)
    assert "[NPU] mm [6x4] @ [4x2]" in lines


def test_compiled_code_shows_its_commands(log):
    @torch.compile(backend="inductor")
    def f(x, y):
        return (x @ y).relu().sin() + 1

    x, y = torch.randn(16, 24, device="npu"), torch.randn(24, 8, device="npu")
    f(x, y)
    lines = log(lambda: f(x, y))
    assert lines and all(line.startswith("[NPU] ") for line in lines)
    assert any("[16x24] @ [24x8]" in line for line in lines)


def test_a_replayed_graph_shows_its_commands(log):
    x = torch.ones(8, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = x * 3
    assert log(graph.replay) == ["[NPU] mul [8]"]
    assert y.tolist() == [3.0] * 8


WAYS = """
import torch
x, w = torch.ones(1, 8, 16, 16, device="npu"), torch.ones(8, 8, 3, 3, device="npu", requires_grad=True)
torch.mm(x.view(64, 32), x.view(32, 64))
torch.nn.functional.conv2d(x, w).sum().backward()
torch.npu.synchronize()
"""


def test_level_three_names_the_way_of_a_product_and_of_convolutions_and_why_not_another(python):
    said = python(WAYS, TORCH_NPU_DEBUG="3", TORCH_NPU_DEBUG_FORMAT="json").err.splitlines()
    ways = [line for line in map(json.loads, said) if line["event"] == "way"]
    product, forward, gradient = [w for w in ways if w["op"] == "aten::mm" or w["command"] == "CONV"]
    assert product["size"] == "64x64" and product["way"] in ("register tiles", "dense")
    assert product["refused"]["vectors"] == "the result has more than three rows and columns"
    assert forward["size"] == "1x8x14x14" and forward["way"] == "packed"
    assert list(forward["refused"]) == ["pointwise", "depthwise channels last", "lanes"]
    assert forward["refused"]["pointwise"] == "the kernel has several points"
    assert gradient["size"] == "8x8x3x3" and gradient["refused"]["depthwise"] == "a group has several channels"

    text = python(WAYS, TORCH_NPU_DEBUG="3").err
    assert re.search(r"-> way of MATMUL aten::mm \[64x64\]: .*not vectors \(the result has more than three", text)
    assert re.search(r"-> way of CONV \S+ \[1x8x14x14\]: packed; not pointwise \(the kernel has several points\)", text)
    assert "way of" not in python(WAYS, TORCH_NPU_DEBUG="2").err


ENGINE_WAYS = """
import torch
x = torch.ones(64, 100, device="npu")
x + x, x + x[:1], x.sum(0), x.t().contiguous(), x.cumsum(1), x.index_add(0, torch.zeros(64, device="npu").int(), x)
torch.npu.synchronize()
"""


def test_level_three_names_the_ways_of_the_engines_commands(python):
    said = python(ENGINE_WAYS, TORCH_NPU_DEBUG="3", TORCH_NPU_DEBUG_FORMAT="json").err.splitlines()
    ways = {
        (way["op"], way["size"]): (way["way"], way["refused"]) for way in map(json.loads, said) if way["event"] == "way"
    }
    assert ways["aten::add", "6400"] == ("one kernel call", {})
    way, refused = ways["aten::add", "64x100"]
    assert way == "a kernel call per row" and refused == {"one kernel call": "an argument is not contiguous"}
    way, refused = ways["aten::sum", "100x64"]
    assert way == "lanes of rows" and list(refused) == ["compiled loops by row"]
    way, refused = ways["aten::copy_", "100x64"]
    assert way == "tiles" and refused["dense copy"] == "one side does not lie dense"
    way, refused = ways["aten::cumsum", "64x100"]
    assert way == "rows side by side" and refused == {"lanes of rows": "neighbours in memory are of one row"}
    assert ways["aten::index_add", "64x100"][0] == "one thread"  # few points


def test_json_lines_carry_the_same(log):
    x = torch.randn(96, 96, device="npu")
    first, *rest = map(json.loads, log(lambda: torch.linalg.eigvalsh(x), level=2, format="json"))
    assert first["event"] == "op" and first["tag"] == "CPU<->NPU" and first["op"] == "aten::_linalg_eigh"
    assert first["tensors"] == [{"shape": [96, 96], "dtype": "float32", "device": "npu:0"}]
    (read,) = [line for line in rest if line["bytes"] == 96 * 96 * 4]
    assert read["event"] == "transfer" and read["direction"] == "D->H"
    assert read["op"] == first["op"] and read["thread"] == first["thread"] and read["time"] >= first["time"]


def colours(python_arguments: list[str], **variables: str) -> str:
    """What a child writes to a terminal."""
    parent, child = pty.openpty()
    pid = os.fork()
    if pid == 0:
        os.dup2(child, 2)
        os.execve(python_arguments[0], python_arguments, {**os.environ, **variables})
    os.close(child)
    out = b""
    try:
        while chunk := os.read(parent, 4096):
            out += chunk
    except OSError:  # the terminal is gone
        pass
    os.waitpid(pid, 0)
    return out.decode()


def test_tags_are_coloured_on_a_terminal_and_nowhere_else(python):
    import sys

    code = (
        "import torch; x = torch.ones(4, 4).to('npu'); y = x.view(16) + 1; torch.linalg.eigvalsh(x); torch.ones(2) + 1"
    )
    command = [sys.executable, "-c", code]
    settings = {"TORCH_NPU_DEBUG": "1", "TORCH_NPU_FALLBACK": "quiet", "TERM": "xterm"}
    seen = colours(command, **settings)
    for tag, number in {"NPU": 32, "CPU<->NPU": 33, "VIEW": 36, "CPU": 31, "COPY": 34}.items():
        assert f"\033[{number}m[{tag}]\033[0m " in seen
    assert "\033[" not in colours(command, **settings, NO_COLOR="1")
    piped = python(code, **settings).err
    assert "\033[" not in piped and "[VIEW] view" in piped


def test_the_environment_enables_it(python, tmp_path):
    code = "import torch; torch.ones(2, device='npu') + 1"
    file = str(tmp_path / "log")
    assert python(code, TORCH_NPU_DEBUG="1", TORCH_NPU_DEBUG_FORMAT="json", TORCH_NPU_DEBUG_FILE=file).err == ""
    assert [json.loads(line)["tag"] for line in open(file)] == ["NPU", "NPU"]


def test_enable_disable_and_nesting():
    assert debug.level() == 0
    with debug.debug_mode(1, file=os.devnull):
        assert debug.level() == 1
        with debug.debug_mode(3, file=os.devnull):
            assert debug.level() == 3
        assert debug.level() == 1
    assert debug.level() == 0
    with pytest.raises(ValueError, match="expected a level from 1 to 3"):
        debug.enable(4)
    with pytest.raises(ValueError, match='expected format to be "text" or "json"'):
        debug.enable(1, format="xml")
    with pytest.raises(RuntimeError, match="expected a file for the debug log that can be written"):
        debug.enable(1, file="/nowhere/log")
    assert debug.level() == 0 and torch_npu.debug is debug
