"""Lock-step, recordings and their replay: docs/verification.md. Python starts slowly, so few processes do much each."""

import json
import os
import struct
import subprocess
import sys
import textwrap
import zlib

import pytest

from tests.support import LIBRARIES, ROOT
from tests.support.lenet import line_of, script

PLANTED = LIBRARIES / "testing" / "libnpu_planted.so"
LENET = script("max_pool2d")


def replay(*arguments):
    command = [LIBRARIES / "npu-replay", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def lenet(tmp_path_factory):
    """A script that runs a LeNet on the device, and the line of its layer fc2."""
    path = tmp_path_factory.mktemp("lenet") / "lenet.py"
    path.write_text(LENET + 'print(model.to("npu")(inputs.to("npu")).sum().item())\n')
    return path, line_of("fc2", LENET)


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """One addition, recorded: float32, a column plus a row."""
    folder = tmp_path_factory.mktemp("recording")
    script = folder / "add.py"
    script.write_text(
        'import torch\nx = torch.arange(6.).view(3, 2).to("npu")\n'
        'y = torch.tensor([10., 20.]).to("npu")\nprint((x + y).tolist())\n'
    )
    command = [sys.executable, "-m", "torch_npu", "record", "--driver", "cmodel:mode=exact"]
    result = subprocess.run([*command, folder / "out.npt", script], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert "1 commands" in result.stdout and "[[10.0, 21.0], [12.0, 23.0], [14.0, 25.0]]" in result.stdout
    return folder / "out.npt"


def test_a_recording_replays_without_python_on_any_driver(recording):
    for driver in ("cmodel", "cmodel:mode=exact"):
        result = replay(recording, "--driver", driver)
        assert result.returncode == 0, result.stdout + result.stderr
        assert f"1 of 1 commands compared on {driver}: 1 bit for bit" in result.stdout
    # A driver that has no command at all is given the recorded results.
    result = replay(recording, "--driver", "template")
    assert result.returncode == 0 and "1 unsupported" in result.stdout


def test_a_recording_can_be_read_by_people(recording):
    lines = replay(recording, "--list").stdout.splitlines()
    assert any(line.startswith("     1  MAP (aten::add") and "of [3, 2]" in line for line in lines), lines
    assert any("write 24 bytes" in line for line in lines) and any("read 24 bytes" in line for line in lines)


def test_a_command_becomes_a_recording_and_a_test_vector(recording, tmp_path):
    one, vector = tmp_path / "one.npt", tmp_path / "one.json"
    assert replay(recording, "--command", 1, "--out", one).returncode == 0
    assert replay(one).returncode == 0
    assert replay(one, "--vector", vector).returncode == 0
    facts = json.loads(vector.read_text())
    assert facts["kind"] == "MAP" and facts["size"] == [3, 2] and facts["label"].startswith("aten::add")
    memory = {piece["address"]: bytes.fromhex(piece["bytes"]) for piece in facts["memory"]}

    def element(operand, *point):
        o = facts["operands"][operand]
        at = o["address"] + 4 * sum(p * s for p, s in zip(point, o["strides"], strict=True))
        base = max(a for a in memory if a <= at)
        return struct.unpack_from("<f", memory[base], at - base)[0]

    (expected,) = facts["expected"]
    loads = [i["imm"] for i in facts["program"]["instructions"] if i["op"] == "load"]
    values = struct.unpack("<6f", bytes.fromhex(expected["bytes"]))
    assert values == (10.0, 21.0, 12.0, 23.0, 14.0, 25.0)
    for k, value in enumerate(values):
        assert sum(element(operand, *divmod(k, 2)) for operand in loads) == value
    result = replay(recording, "--command", 7, "--out", one)
    assert result.returncode == 2 and "no command has this number" in result.stderr


def test_a_changed_result_is_found_and_shown(recording, tmp_path):
    # The same values in another order of bytes: a recording with a result that is wrong in one element.
    data = bytearray(recording.read_bytes())
    at = data.rindex(struct.pack("<f", 23.0))
    data[at : at + 4] = struct.pack("<f", 24.0)
    end = len(data) - 12 - 12  # the last entry: frame, number of commands, checksum of all before it
    data[-4:] = struct.pack("<I", zlib.crc32(data[:end]))
    bad = tmp_path / "bad.npt"
    bad.write_bytes(data)
    result = replay(bad, "--driver", "cmodel")
    assert result.returncode == 1
    assert "1 of 6 elements differ" in result.stdout
    assert "[1, 1]: expected 24 (0x41c00000), got 23 (0x41b80000)" in result.stdout, result.stdout


def test_bad_files_and_drivers_are_refused_in_one_sentence(recording, tmp_path):
    data = recording.read_bytes()
    cases = {
        "foreign": (b"PK\x03\x04 not ours", "a file of another kind"),
        "cut": (data[:20], "cut off at its beginning"),
        "damaged": (data[:100] + bytes([data[100] ^ 1]) + data[101:], "got "),
        "future": (data[:8] + struct.pack("<I", 9) + data[12:], "version 9; this program reads version 1"),
    }
    for name, (content, sentence) in cases.items():
        path = tmp_path / f"{name}.npt"
        path.write_bytes(content)
        result = replay(path)
        assert result.returncode == 2 and sentence in result.stderr, (name, result.stderr)
        assert len(result.stderr.splitlines()) == 1
    calls = [
        ([tmp_path / "none.npt"], "got no such file"),
        ([recording, "--driver", "nowhere"], 'got "nowhere"'),
        ([recording, "--driver", "cmodel:memory=1M"], "bytes of device memory for the recording, got"),
        ([recording, "--device", "5"], "expected a device below 1, got 5"),
        ([recording, "--command", "x"], "expected a number after --command"),
    ]
    for arguments, sentence in calls:
        result = replay(*arguments)
        assert result.returncode == 2 and sentence in result.stderr, (arguments, result.stderr)


@pytest.mark.parametrize("bug", ["rounding", "stride", "stray"])
def test_a_planted_bug_is_named(module, lenet, tmp_path, bug):
    script, line = lenet
    device = f"{PLANTED}:bug={bug}:kind=MATMUL:last=84"
    result = module(
        "verify", "--device", device, "--out", str(tmp_path), "--json-file", str(tmp_path / "r.json"), str(script)
    )
    assert result.status == 1, result.out + result.err
    difference = json.loads((tmp_path / "r.json").read_text())["difference"]
    assert difference["op"] == "aten::addmm" and difference["kind"] == "MATMUL"
    assert difference["line"] == f"{script}:{line}: x = torch.relu(self.fc2(x))  # fc2"
    assert f"DIFFERENCE in aten::addmm, command {difference['command']} (MATMUL)" in result.out
    assert "Traceback" not in result.err
    (file,) = tmp_path.glob("difference-*.npt")
    assert difference["reproduction"] == str(file)
    assert "MATMUL (aten::addmm) of [2, 84], k 120" in replay(file, "--list").stdout
    assert replay(file, "--driver", "cmodel:mode=exact").returncode == 0
    if bug == "stray":
        assert "was changed" in difference["text"]
        return  # npu-replay compares results, and those are right
    assert difference["elements"][0]["expected"] != difference["elements"][0]["got"]
    assert "elements differ" in replay(file, "--driver", device).stdout
    if bug == "rounding":
        assert len(difference["elements"]) == 1


SCENARIOS = """
    import sys
    import torch_npu
    _, planted, out = sys.argv
    before = torch.ones(2, device="npu")  # a driver is loaded, and stays
    exact = "cmodel:mode=exact"

    def step(model, x):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(2):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), torch.tensor([1, 2], device=x.device)).backward()
            optimizer.step()

    r = torch_npu.verify(model, inputs, device=exact, out=out)
    assert r.ok and r.commands > 8 and r.same_bits == r.commands and not r.fallbacks, r
    torch.testing.assert_close(r.result, model(inputs))
    again = torch_npu.verify(model, inputs, device=exact, out=out)
    assert again.ok and again.commands == r.commands and torch.npu.device_count() == 2, again

    r = torch_npu.verify(model, inputs, device=exact, step=step, out=out)
    assert r.ok and r.commands > 60 and r.within_budget == 0, r
    assert all(p.grad is None for p in model.parameters())  # a copy was trained

    # A device without exact mode: bit for bit is too much, the budget is not.
    r = torch_npu.verify(model, inputs, device="cmodel", out=out)
    assert not r.ok and "exact=no" in r.difference.text, r
    r = torch_npu.verify(model, inputs, device="cmodel", step=step, exact=False, out=out)
    assert r.ok and r.within_budget > 0 and 0 < r.budget_used <= 1, r
    half = torch_npu.verify(model.bfloat16(), inputs.bfloat16(), device="cmodel", exact="split", out=out)
    assert "bit for bit (exact=no" in half.difference.text, half  # bf16 is not split
    r = torch_npu.verify(model.float(), inputs, device="cmodel", exact="split", out=out)
    assert r.ok and r.within_budget >= 4, r
    # Functions are approximated, whatever the mode: only those that use one need a budget.
    r = torch_npu.verify(lambda x: (x.exp() + x.tanh() * x.erf()).softmax(1) + 1, (torch.randn(64, 64),),
                         reference="isa", device="cmodel", exact=False, out=out)
    assert r.ok and r.within_budget >= 3 and r.same_bits >= 2, r

    # The reference refuses: docs/isa.md itself is the judge. The device refuses: the CPU does it.
    r = torch_npu.verify(model, inputs, device=exact, reference="template", out=out)
    assert r.ok and r.by_isa == r.commands, r
    with torch_npu.fallback.mode("quiet"):
        r = torch_npu.verify(model, inputs, device="template", out=out)
    assert not r.ok and r.difference is None and r.commands == 0, r
    assert "NOTHING COMPARED" in str(r) and r.fallbacks["aten::addmm"] > 0, r

    # A bug in backward: the line is that of backward.
    r = torch_npu.verify(model, inputs, device=planted + ":bug=stride:kind=CONV:last=8", step=step, out=out)
    assert r.difference.op == "aten::convolution_backward" and ".backward()" in r.difference.line, r
    r = torch_npu.verify(model, inputs, device=planted + ":bug=index:kind=MATMUL:last=120", out=out)
    assert "expected NPU_OK, got NPU_ERROR_INDEX" in r.difference.text and "fc1" in r.difference.line, r

    def broken(x):
        raise KeyError("my own")

    try:
        torch_npu.verify(broken, inputs, device=exact, out=out)
    except KeyError as error:
        assert "my own" in str(error)
    else:
        raise AssertionError
    for device, sentence in (("nowhere", "nowhere"), ("cmodel:devices=x", "option devices"), ("cmodel[", "brackets")):
        try:
            torch_npu.verify(model, inputs, device=device, out=out)
        except (RuntimeError, ValueError) as error:
            assert sentence in str(error), error
        else:
            raise AssertionError(device)
    print(before.sum().item(), "done")
"""


def test_verify_in_python(tmp_path):
    """In one process: agreement, a training step, budgets, refusals, bugs, a model that raises."""
    script = tmp_path / "scenarios.py"
    script.write_text(LENET + textwrap.dedent(SCENARIOS))
    environment = {**os.environ, "TORCH_NPU_DRIVER": "cmodel", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, script, PLANTED, tmp_path]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert result.returncode == 0 and result.stdout.endswith("2.0 done\n"), result.stderr


def test_a_script_that_fails_and_wrong_calls(module, tmp_path):
    script = tmp_path / "raises.py"
    script.write_text('import torch\nprint((torch.ones(3, device="npu") + 1).tolist())\nraise KeyError("my own")\n')
    result = module("verify", "--device", "cmodel:mode=exact", str(script))
    assert result.status == 1
    assert "KeyError: 'my own'" in result.err and "the script itself failed" in result.out
    assert "no difference" in result.out
    for arguments, sentence in (
        (("verify", "--device", "nowhere", str(script)), 'got "nowhere"'),
        (("verify", "--device", "cmodel", str(tmp_path / "none.py")), "no such file"),
        (("record", str(tmp_path / "no" / "out.npt"), str(script)), "expected to write the recording"),
    ):
        result = module(*arguments)
        assert result.status == 2 and sentence in result.err, result.err
        assert len(result.err.splitlines()) == 1


def test_options_in_brackets_and_info(module):
    two = "devices=2:memory=64M"
    spec = f"lockstep:device=[cmodel:{two}]:reference=[cmodel:{two}:mode=exact],template"
    result = module("info", TORCH_NPU_DRIVER=spec)
    assert result.status == 0, result.out + result.err
    assert result.out.count("lockstep (wraps another driver)") == 2 and "npu:2" in result.out
    assert "lockstep of C model and C model" in result.out and "of 64 MiB free" in result.out
    result = module("info", TORCH_NPU_DRIVER="lockstep:device=[cmodel")
    assert result.status == 1 and "brackets in options must pair" in result.out


@pytest.mark.parametrize(
    "driver", ["lockstep:device=[cmodel:mode=exact]:reference=isa", "record:driver=[cmodel]:file=[{tmp}/a.npt]"]
)
def test_wrappers_keep_the_contract(driver, tmp_path):
    command = [LIBRARIES / "npu-driver-test", driver.format(tmp=tmp_path), "--count", "4"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stdout


def test_random_commands_find_a_planted_bug_and_save_it(tmp_path):
    def random(driver, *arguments):
        command = [LIBRARIES / "npu-driver-test", driver, "--random", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    good = random("cmodel:mode=exact", 300, "--exact")
    assert good.returncode == 0 and "300 random commands, 300 compared, no difference" in good.stdout, good.stdout
    assert (
        sum(kind in good.stdout for kind in ("COPY", "MAP", "REDUCE", "SCAN", "SORT", "SCATTER", "MATMUL", "CONV")) == 8
    )
    planted, saved = f"{PLANTED}:bug=rounding:kind=MATMUL:last=17", tmp_path / "saved.npt"
    bad = random(planted, 400, "--filter", "MATMUL: random", "--save", saved)
    assert bad.returncode == 1 and "saved as" in bad.stdout, bad.stdout
    number = bad.stdout.partition(" --case ")[2].partition(":")[0]
    again = random(planted, 1, "--filter", "MATMUL: random", "--case", number)
    assert again.returncode == 1 and "MATMUL size" in again.stdout
    assert replay(saved, "--driver", planted).returncode == 1
    assert replay(saved, "--driver", "cmodel").returncode == 0
    assert "no random test has 'magic'" in random("cmodel", 5, "--filter", "magic").stderr
