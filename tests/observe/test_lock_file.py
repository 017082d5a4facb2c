"""torch_npu.lock: a model that starts or stops to use the CPU is noticed."""

import pytest
import torch

import torch_npu
from tests.support.command_line import called
from torch_npu.fallback import FallbackChanged, locked

SVD, FFT = "aten::linalg_svd", "aten::_fft_r2c"


def run(*ops):
    x = torch.ones(4, 4, device="npu")
    if SVD in ops:
        torch.linalg.svdvals(x)
    if FFT in ops:
        torch.fft.rfft(x)
    return x + 1


def test_new_and_unneeded_entries_raise(tmp_path):
    lock = tmp_path / "torch_npu.lock"
    with pytest.raises(FileNotFoundError, match="update=True"), locked(lock):
        run()
    with locked(lock, update=True):
        run(FFT)
    lock.write_text(lock.read_text().replace(FFT, f"{FFT}  # the chip has no FFT"))
    with locked(lock):
        run(FFT)
    with pytest.raises(FallbackChanged) as caught, locked(lock):
        run(FFT, SVD)
    assert len(caught.value.new) == 1 and "svd" in caught.value.new[0] and caught.value.gone == []
    with pytest.raises(FallbackChanged, match="runs on the device now") as caught, locked(lock):
        run()
    assert caught.value.gone == [FFT] and caught.value.new == []
    with locked(lock, update=True):
        run(FFT, SVD)
    assert f"{FFT}  # the chip has no FFT" in lock.read_text() and lock.read_text().count("\n") == 3
    torch_npu.fallback.reset()


def test_a_script_is_checked(module, tmp_path):
    script, lock = tmp_path / "model.py", str(tmp_path / "torch_npu.lock")
    script.write_text("import sys, torch\nx = torch.ones(4, 4).npu()\nif len(sys.argv) > 1: torch.fft.rfft(x)\n")
    result = module("lock", "--file", lock, str(script))
    assert result.status == 0 and "0 ops" in result.out
    result = module("lock", "--file", lock, str(script), "more")
    assert result.status == 1 and f"+ {FFT}" in result.err
    assert f"lock --update --file {lock} {script} -- more, if" in result.err
    assert module("lock", "--update", "--file", lock, str(script), "more").status == 0
    result = module("lock", "--file", lock, str(script))
    assert result.status == 1 and f"- {FFT}" in result.err


def test_what_is_no_lock_file_is_refused(tmp_path):
    (tmp_path / "lock").write_text("svd please\n")
    result = called("lock", "--file", str(tmp_path / "lock"), __file__)
    assert result.status == 2 and "line 1: expected the name of an op" in result.err and "--update" in result.err
    assert called("lock", "--update", "--file", str(tmp_path / "lock"), __file__).status == 0
    assert (tmp_path / "lock").read_text().startswith("# Ops that run on the CPU")
    (tmp_path / "bad.py").write_text("raise SystemExit(3)")
    result = called("lock", "--file", str(tmp_path / "new"), str(tmp_path / "bad.py"))
    assert result.status == 1 and not (tmp_path / "new").exists()
