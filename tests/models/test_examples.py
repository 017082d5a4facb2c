"""The examples do what they print: exit status 0 means that the device followed the CPU, or that a loss went down."""

import importlib
import subprocess
import sys

import pytest

import torch_npu
from tests.support import ROOT

EXAMPLES = ROOT / "examples"
# Small enough for a test; lora_qwen.py has tests of its own (test_lora.py).
SMALL = {
    "custom_op": ["--steps", "150"],
    "resnet_shapes": ["--steps", "80", "--width", "8"],
    "resnet_shapes --amp": ["--steps", "80", "--width", "8"],
    "gpt_text": ["--steps", "60", "--width", "64", "--letters", "20"],
    "gpt_text --amp": ["--steps", "60", "--width", "64", "--letters", "20"],
    "generate_qwen --check": ["--tokens", "32"],
    "generate_qwen --dtype bfloat16 --sample": ["--tokens", "8"],
}


def load(name: str, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module(name)


def test_the_demo_follows_the_cpus_loss_curve(tmp_path):
    run = subprocess.run(
        [sys.executable, EXAMPLES / "lenet_digits.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-1000:]
    assert "agrees with the CPU" in run.stdout


@pytest.mark.parametrize("call", SMALL)
def test_an_example_succeeds_without_fallback(call, monkeypatch, capsys):
    name, *arguments = call.split()
    example = load(name, monkeypatch)
    torch_npu.fallback.reset()
    assert example.main([*arguments, *SMALL[call]]) == 0, capsys.readouterr().out
    assert torch_npu.fallback.report() == {}


@pytest.mark.parametrize("name", ["custom_op", "resnet_shapes", "gpt_text", "generate_qwen", "lora_qwen"])
def test_an_example_explains_itself(name, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="0"):
        load(name, monkeypatch).main(["--help"])
    assert "--device" in capsys.readouterr().out


BAD = {
    "generate_qwen --model nowhere": "expected --model to be a folder with a saved model, got nowhere",
    "generate_qwen --tokens 0": "expected --tokens of at least 1",
    "lora_qwen --length 1": "expected --length of at least 2",
    "lora_qwen --batch 0": "of at least 1",
    "gpt_text --length 0": "of at least 1",
    "resnet_shapes --steps 0": "of at least 1",
}


@pytest.mark.parametrize("call", BAD)
def test_an_example_says_what_it_expected(call, monkeypatch, capsys):
    name, *arguments = call.split()
    with pytest.raises(SystemExit, match="2"):
        load(name, monkeypatch).main(arguments)
    assert BAD[call] in capsys.readouterr().err


def test_generating_from_what_lora_saved(monkeypatch, tmp_path, capsys):
    lora, generate = load("lora_qwen", monkeypatch), load("generate_qwen", monkeypatch)
    assert lora.main(["--steps", "30", "--batch", "2", "--length", "32", "--out", str(tmp_path)]) == 0
    assert generate.main(["--model", str(tmp_path / "merged"), "--prompt", "A driver", "--tokens", "8", "--check"]) == 0
    assert "A driver" in capsys.readouterr().out
