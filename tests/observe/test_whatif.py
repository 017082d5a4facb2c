"""Predicted times of a chip that need not exist: the arithmetic of docs/whatif.md, events, the command line."""

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from tests.support import ROOT
from tests.support.command_line import called

CHIP = """
name = "test" # a comment
clock_mhz = 100
launch_cycles = 7
overlap = false
[matrix]
rows = 8
columns = 4
fill_cycles = 5
f32_passes = 3
[vector]
lanes = 10
op_cycles = 2
function_cycles = 20
[memory]
dram_gbps = 0.4 # 4 bytes per cycle
host_gbps = 0.1
"""

SCRIPT = """
import torch
a, b = torch.ones(20, 6, device="npu"), torch.ones(6, 9, device="npu")
start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
start.record()
c = a @ b
end.record()
torch.npu.synchronize()
print("mm", start.elapsed_time(end))
start.record()
torch.exp(c)
end.record()
torch.npu.synchronize()
print("exp", start.elapsed_time(end))
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "chip.toml").write_text(CHIP)
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def test_events_and_rows_are_the_arithmetic_of_the_model(module, files):
    result = module("whatif", "--json", str(files / "chip.toml"), str(files / "script.py"))
    assert result.status == 0, result.err
    facts = json.loads(result.out)
    rows = {row["op"]: row for row in facts["rows"]}
    # ceil(20 / 8) * ceil(9 / 4) tiles of 6 * 3 steps and 5 more; 20 * 6, 6 * 9 and 20 * 9 floats; a launch
    assert rows["aten::mm"]["matrix"] == 3 * 3 * (6 * 3 + 5) and rows["aten::mm"]["memory"] == 120 + 54 + 180
    assert rows["aten::mm"]["cycles"] == 207 + 354 + 7 and rows["aten::mm"]["bound"] == "memory"
    assert rows["aten::exp"]["vector"] == 180 * 20 / 10 and rows["aten::exp"]["cycles"] == 360 + 360 + 7
    said = dict(line.split() for line in result.err.splitlines() if line.startswith(("mm ", "exp ")))
    assert float(said["mm"]) == pytest.approx(568 / 100e3, rel=1e-3)
    assert float(said["exp"]) == pytest.approx(727 / 100e3, rel=1e-3)
    # Twice the rows of multipliers: ceil(20 / 16) instead of 3 columns of tiles, and all else as before.
    by_rows = dict(map(tuple, facts["sweep"]["matrix.rows"]))
    saved = (by_rows[8.0] - by_rows[16.0]) * 100e3
    assert saved == pytest.approx(3 * 23, rel=1e-3)


def test_bottleneck_and_sweep_are_shown(module, files):
    plot = files / "sweep.svg"
    result = module(
        "whatif",
        "--sweep",
        "memory.dram_gbps=0.4,40",
        "--plot",
        str(plot),
        str(files / "chip.toml"),
        str(files / "script.py"),
    )
    assert result.status == 0, result.err
    assert "bottleneck: memory" in result.out and "memory.dram_gbps" in result.out and "aten::exp" in result.out
    drawing = ElementTree.fromstring(plot.read_text())
    assert len(drawing.findall(".//{http://www.w3.org/2000/svg}polyline")) == 1


def test_streams_have_clocks_and_events_carry_them(python, files):
    result = python(
        """
        import torch
        x = torch.ones(1000, device="npu")
        torch.npu.synchronize()
        side = torch.npu.Stream()
        start, middle, end = (torch.npu.Event(enable_timing=True) for _ in range(3))
        start.record()
        for _ in range(3):
            x.exp()
        middle.record()
        with torch.npu.stream(side):
            end.record()
            alone = end
            before = torch.npu.Event(enable_timing=True)
            side.wait_event(middle)
            before.record(side)
        torch.npu.synchronize()
        print(start.elapsed_time(middle), middle.elapsed_time(before), middle.elapsed_time(alone) < 0)
        """,
        TORCH_NPU_DRIVER=f"cmodel:chip={files / 'chip.toml'}",
    )
    three, waited, behind = result.lines()[0].split()
    assert (
        float(three) == pytest.approx(3 * (2000 + 2000 + 7) / 100e3, rel=1e-3)
        and float(waited) == 0
        and behind == "True"
    )


MODELS = """
import json
import torch
from tests.support import small_models
from transformers import Qwen2Config, Qwen2ForCausalLM

def time(run):
    run()
    start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    torch.npu.synchronize()
    return start.elapsed_time(end)

torch.manual_seed(0)
lenet, inputs, _ = small_models.lenet()
lenet, inputs = lenet.npu(), [value.npu() for value in inputs]
times = {"LeNet": time(lambda: lenet(*inputs).backward())}

config = Qwen2Config(hidden_size=64, intermediate_size=172, num_hidden_layers=1, num_attention_heads=4,
                     num_key_value_heads=2, vocab_size=128, max_position_embeddings=64)
model = Qwen2ForCausalLM(config).model.npu()
layer, hidden = model.layers[0], torch.randn(1, 16, 64).npu()
rotary = model.rotary_emb(hidden, torch.arange(16)[None].npu())
times["Qwen2 layer"] = time(lambda: layer(hidden, position_embeddings=rotary)[0].sum().backward())
with torch.no_grad():
    times["Qwen2 layer, forward"] = time(lambda: layer(hidden, position_embeddings=rotary))
encoder = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True).npu()
with torch.no_grad():
    times["encoder layer, forward"] = time(lambda: encoder(hidden))
print(json.dumps(times))
"""


@pytest.mark.skipif(not (ROOT / "torch_npu/lib/libnpu_rtl.so").exists(), reason="driver rtl was not built")
def test_models_of_the_rtl_are_predicted_within_15_percent(python):
    drivers = {"rtl": "rtl:memory=512M", "model": f"cmodel:chip={ROOT / 'rtl/chip.toml'}"}
    times = {name: json.loads(python(MODELS, TORCH_NPU_DRIVER=d).lines()[-1]) for name, d in drivers.items()}
    for name, simulated in times["rtl"].items():
        assert times["model"][name] == pytest.approx(simulated, rel=0.15), times


WRONG = {
    "clock_mhz = fast": 'line 1: expected a number of at least 0.001000 for clock_mhz, got "fast"',
    "\nmatrix.rws = 3": "line 2: expected one of name, clock_mhz",
    "[matrix\n": "line 1: expected a section in brackets",
    "[vector]\nlanes = 0": "for vector.lanes",
    "functions.add = 3": "functions.exp and so on, got functions.add",
}


def test_a_wrong_chip_is_refused_with_the_line(python, tmp_path):
    code = """
        import os, sys, torch
        for chip in sys.argv[1:]:
            os.environ["TORCH_NPU_DRIVER"] = f"cmodel:chip=[{chip}]"
            try:
                torch.ones(1, device="npu")
            except RuntimeError as error:
                print(str(error).splitlines()[0])
    """
    chips = [tmp_path / f"{number}.toml" for number in range(len(WRONG))]
    for chip, text in zip(chips, WRONG, strict=True):
        chip.write_text(text)
    said = python(code, *map(str, chips), TORCH_NPU_DRIVER=None).lines()
    for line, chip, reason in zip(said, chips, WRONG.values(), strict=True):
        assert reason in line and str(chip) in line


def test_wrong_command_lines(module, files):
    chip, script = str(files / "chip.toml"), str(files / "script.py")
    assert called("whatif", "nochip.toml", script).status == 2
    result = called("whatif", "--sweep", "matrix.rows=many", chip, script)
    assert result.status == 2 and "expected --sweep KEY=NUMBER" in result.err
    result = module("whatif", "--sweep", "matrix.rws=1", chip, script)
    assert result.status == 2 and "--sweep: expected one of name" in result.err and "mm" not in result.out
    result = module("whatif", "--plot", str(files / "nowhere" / "plot.svg"), chip, script)
    assert result.status == 2 and f"expected a folder that exists, got {files / 'nowhere'}" in result.err
    result = module("whatif", script, chip)
    assert result.status == 2 and f"{script}: expected the description of a chip" in result.err
    (files / "wrong.toml").write_text(CHIP.replace("rows = 8", 'rows = "a"'))
    result = module("whatif", str(files / "wrong.toml"), script)
    assert result.status == 2 and "wrong.toml: line 7: expected a number" in result.err, result.err


def test_what_is_not_predicted_is_said(module, files):
    chip, script = str(files / "chip.toml"), files / "model.py"
    script.write_text("import torch\nx = torch.ones(4, 4).npu()\ntorch.linalg.svdvals(x)\nraise SystemExit(3)\n")
    result = module("whatif", chip, str(script), "--json-file", str(files / "facts.json"), TORCH_NPU_FALLBACK="quiet")
    assert result.status == 1 and "the script itself failed (exit status 3)" in result.out, result.err
    assert "run on the CPU and not in the prediction: aten::_linalg_svd.U 1" in result.out
    facts = json.loads((files / "facts.json").read_text())
    assert facts["fallbacks"] == {"aten::_linalg_svd.U": 1} and facts["script_status"] == 3
    script.write_text("import torch\ntorch.ones(4) + 1\n")
    result = module("whatif", chip, str(script))
    assert result.status == 1 and "nothing ran on the device" in result.err


def test_a_file_is_fitted_to_a_drivers_times(module, files):
    """The driver's times are those of a chip that is known."""
    script = files / "many.py"
    script.write_text(
        "import torch\n"
        "for n in (8, 30, 64, 150, 300):\n"
        "    a, b = torch.ones(n, 2 * n, device='npu'), torch.ones(2 * n, n, device='npu')\n"
        "    torch.exp(a @ b) + 1\n"
    )
    fitted = files / "fitted.toml"
    fitted.write_text("clock_mhz = 100\n[vector]\nlanes = 10\n")  # what times do not tell
    result = module("whatif", "--fit", f"cmodel:chip={files / 'chip.toml'}", str(fitted), str(script))
    assert result.status == 0, result.err
    error = re.search(r"half of them within (\d+) %, the worst off by a factor of ([\d.]+)", fitted.read_text())
    assert int(error[1]) <= 3 and float(error[2]) < 1.2, error[0]
    assert re.search(r"^memory.dram_gbps = (\S+)", fitted.read_text(), re.MULTILINE)
    result = module("whatif", "--fit", "template", str(fitted), str(script))
    assert result.status == 1 and "expected commands that" in result.err
