"""A chip that hangs, crashes or answers nonsense at some command: never a hang, never a silent wrong answer
(docs/design/bad-chips.md). Real processes, because some of them end."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support import LIBRARIES, ROOT

BAD = LIBRARIES / "testing" / "libnpu_bad.so"

BEGIN = """
import sys, torch
x = torch.ones(4, 8, device="npu")
def work():
    y = torch.mm(x, x.t())
    return (y + 1).sum().item()
"""
TRY = (
    BEGIN
    + """
try:
    print("got", work())
except Exception as error:
    print(type(error).__name__, error)
torch.npu.reset_device(0)
x = torch.ones(4, 8, device="npu")
print("again", work())
"""
)


def start(does: str, script: str, at: int = 2, **environment: str) -> subprocess.Popen:
    settings = os.environ | {"TORCH_NPU_DRIVER": f"{BAD}:does={does}:at={at}"} | environment
    command = [sys.executable, "-X", "faulthandler", "-c", script]
    return subprocess.Popen(command, cwd=ROOT, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(does: str, script: str = TRY, **options) -> tuple[int, str, str]:
    process = start(does, script, **options)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.mark.parametrize("does", ["hang", "hang_submit"])
def test_a_wait_ends_at_the_time_limit_and_the_device_works_again(does):
    code, out, err = run(does, TORCH_NPU_TIMEOUT="0.7")
    assert code == 0, err
    failed, again = out.splitlines()
    assert failed.startswith("AcceleratorError")
    assert "did not answer for" in failed and "TORCH_NPU_TIMEOUT allows 0.7 s" in failed
    assert "MATMUL aten::mm [4, 4], k = 8, f32 f32 f32" in failed
    assert again == "again 144.0"


def test_the_process_ends_where_not_even_a_reset_returns():
    code, out, err = run("hang_reset", TORCH_NPU_TIMEOUT="0.7")
    assert code == -signal.SIGABRT
    assert "nor did device_reset help" in err and "MATMUL aten::mm" in err
    assert "got" not in out


@pytest.mark.parametrize(
    ("does", "where"), [("crash", "in submit of driver"), ("crash_later", "in a thread of driver")]
)
def test_a_crash_names_the_commands_under_way(does, where):
    code, out, err = run(does)
    assert code == -signal.SIGSEGV
    assert f'signal 11 (Segmentation fault) {where} "bad"' in err
    assert "  MATMUL aten::mm [4, 4], k = 8, f32 f32 f32\n" in err
    assert "Current thread" in err or "Fatal Python error" in err, "who had the signal before gets it as well"


def test_a_crash_elsewhere_is_not_blamed_on_the_driver():
    code, _, err = run("hang", BEGIN + "import ctypes; ctypes.string_at(8)")
    assert code == -signal.SIGSEGV
    assert "torch_npu" not in err


def test_a_recording_has_the_command_that_crashed(tmp_path):
    script, file = tmp_path / "script.py", tmp_path / "crash.npt"
    script.write_text(BEGIN + "work()")
    command = [sys.executable, "-m", "torch_npu", "record", "--driver", f"{BAD}:does=crash:at=2", file, script]
    crashed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert crashed.returncode == -signal.SIGSEGV
    replay = [LIBRARIES / "npu-replay", file]
    listed = subprocess.run([*replay, "--list"], capture_output=True, text=True, timeout=60)
    assert listed.returncode == 0 and "MATMUL" in listed.stdout.splitlines()[-1], listed.stdout
    assert "is cut off after" in listed.stderr
    played = subprocess.run([*replay, "--driver", "cmodel"], capture_output=True, text=True, timeout=60)
    assert played.returncode == 0, played.stdout + played.stderr


def test_verify_says_that_only_the_device_fails(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(BEGIN + "work()")
    command = [
        sys.executable,
        "-m",
        "torch_npu",
        "verify",
        "--device",
        f"{BAD}:does=lost:at=2",
        "--out",
        tmp_path,
        script,
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1
    assert "DIFFERENCE in aten::mm, command 2 (MATMUL)" in ran.stdout
    assert "expected NPU_OK, got NPU_ERROR_DEVICE_LOST" in ran.stdout and "only the device fails" in ran.stdout
    assert list(tmp_path.glob("difference-*.npt")), "there is a recording of the command"


def test_a_status_that_is_none_is_an_error_with_its_number():
    code, out, err = run("status")
    assert code == 0, err
    assert "submit: expected a status of the contract, got 77" in out
    assert out.endswith("again 144.0\n")


def test_a_lost_device_says_how_it_is_used_again():
    code, out, err = run("lost")
    assert code == 0, err
    assert "torch.npu.reset_device(0) makes the device usable again" in out
    assert out.endswith("again 144.0\n")


def test_a_second_interrupt_ends_a_wait():
    # A handler that does nothing: one that comes before the wait does not end the script.
    quiet = "import signal; signal.signal(signal.SIGINT, lambda *_: None)"
    process = start("hang", BEGIN + quiet + "\nprint('go', flush=True)\nwork()")
    assert process.stdout.readline() == "go\n"
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (1, -signal.SIGINT), err  # one more may come while the process ends
    assert "torch_npu: interrupted in" in err and "MATMUL aten::mm [4, 4], k = 8" in err
    assert "AcceleratorError" in err and "Ctrl-C came twice" in err


def test_a_time_limit_that_is_none_is_refused():
    code, out, err = run("hang", "import torch; torch.ones(1, device='npu')", TORCH_NPU_TIMEOUT="soon")
    assert code == 1
    assert 'TORCH_NPU_TIMEOUT is "soon", expected seconds, or 0 for no limit' in err
