"""examples/lora_qwen.py follows the CPU, repeats bit for bit, survives a kill; Trainer gives the same losses."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import torch_npu
from tests.support import ROOT

EXAMPLES = ROOT / "examples"


@pytest.fixture
def lora(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import lora_qwen

    return lora_qwen


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "losses.jsonl").read_text().splitlines()]


def run(lora, out: Path, *arguments: str) -> list[float]:
    assert lora.main(["--out", str(out), "--batch", "2", "--length", "32", *arguments]) == 0
    return losses(out)


def test_steps_follow_the_cpu_and_repeat_bit_for_bit_without_fallback(lora, tmp_path):
    arguments = ("--steps", "40", "--accumulate", "1", "--dropout", "0")
    torch_npu.fallback.reset()
    first = run(lora, tmp_path / "first", *arguments)
    assert torch_npu.fallback.report() == {}
    again = run(lora, tmp_path / "again", *arguments)
    assert first == again
    for name in ("adapter/adapter_model.safetensors", "merged/model.safetensors"):
        weights = [load_file(tmp_path / which / name) for which in ("first", "again")]
        assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    on_cpu = run(lora, tmp_path / "cpu", *arguments, "--device", "cpu")
    assert len(first) == len(on_cpu) == 40
    assert max(abs(a / b - 1) for a, b in zip(first, on_cpu, strict=True)) < 0.01


def test_a_killed_run_resumes_with_exactly_the_losses_it_would_have_had(lora, tmp_path):
    """With dropout: the device's random numbers have to go on where they were, too."""
    arguments = ("--steps", "120", "--checkpoint-every", "4", "--dropout", "0.2", "--accumulate", "1")
    whole = run(lora, tmp_path / "whole", *arguments)
    out = tmp_path / "killed"
    command = [sys.executable, EXAMPLES / "lora_qwen.py", "--out", out, "--batch", "2", "--length", "32", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        said = [line for line in iter(child.stdout.readline, "") if "checkpoint" in line and child.kill() is None]
    assert child.returncode == -signal.SIGKILL and said
    assert 4 <= len(losses(out)) < 120
    assert run(lora, out, *arguments, "--resume") == whole


def test_trainer_has_the_losses_of_the_loop(lora, tmp_path):
    arguments = ("--steps", "8", "--dropout", "0", "--checkpoint-every", "4")
    by_loop = run(lora, tmp_path / "loop", *arguments)
    out = ["--out", str(tmp_path / "trainer"), "--batch", "2", "--length", "32"]
    assert lora.main([*out, *arguments, "--trainer"]) == 0
    state = json.loads((tmp_path / "trainer" / "checkpoint-8" / "trainer_state.json").read_text())
    by_trainer = [entry["loss"] for entry in state["log_history"] if "loss" in entry]
    assert by_trainer == pytest.approx(by_loop, rel=1e-4)


def test_halves_learn_without_fallback(lora, tmp_path):
    for dtype in ("bfloat16", "float16"):
        torch_npu.fallback.reset()
        # What is learned is this project's documentation: steps enough for any state of it.
        run(lora, tmp_path / dtype, "--steps", "40", "--lr", "0.01", "--dtype", dtype)
        assert torch_npu.fallback.report() == {}


def test_resuming_without_a_checkpoint_says_so(lora, tmp_path, capsys):
    assert lora.main(["--out", str(tmp_path), "--resume"]) == 2
    assert f"expected a checkpoint in {tmp_path}, got none" in capsys.readouterr().err
