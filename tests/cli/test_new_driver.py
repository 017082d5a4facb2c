"""python -m torch_npu new-driver and doctor, as a newcomer runs them."""

import json

import pytest

from tests.support.command_line import called
from torch_npu import new_driver


def test_names_and_folders_are_checked_before_anything_is_written(tmp_path):
    for name, reason in (("My-Chip", "lower-case"), ("cmodel", "no driver has"), ("../x", "lower-case")):
        with pytest.raises(ValueError, match=reason):
            new_driver.check_name(name, ["cmodel"])
    result = called("new-driver", "cmodel", "--out", str(tmp_path / "out"))
    assert result.status == 2 and "no driver has" in result.err and not (tmp_path / "out").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("keep")
    result = called("new-driver", "mine", "--out", str(tmp_path / "mine"))
    assert result.status == 2 and "--out" in result.err and len(list((tmp_path / "mine").iterdir())) == 1
    facts = json.loads(called("new-driver", "mine", "--out", str(tmp_path / "fresh"), "--json").out)
    assert f"{tmp_path}/fresh/mine.c" in facts["files"]


def test_doctor_finds_nothing_here(module):
    result = module("doctor")
    assert result.status == 0 and "no problems" in result.out and "npu:0: C model computes" in result.out


@pytest.mark.parametrize(
    "variables, found, remedy",
    [
        ({"TORCH_NPU_DRVER": "rtl"}, "TORCH_NPU_DRVER is no setting", "did you mean TORCH_NPU_DRIVER?"),
        ({"TORCH_NPU_DRIVER": "nochip"}, 'the driver "nochip", expected one of', "python -m torch_npu info"),
        ({"TORCH_NPU_DRIVER": "template"}, "without CONV, COPY, MAP", "torch_npu.fallback.report()"),
        ({"TORCH_NPU_DRIVER": "cmodel:memori=1G"}, 'got "memori=1G"', "correct the options in TORCH_NPU_DRIVER"),
        ({"TORCH_NPU_BLOCKING": "yes"}, 'TORCH_NPU_BLOCKING: expected 0 or 1, got "yes"', "unset it"),
        ({"TORCH_NPU_FALLBACK": "eror"}, 'expected warn or quiet or error, got "eror"', "TORCH_NPU_FALLBACK"),
        ({"PYTORCH_ALLOC_CONF": "foo:1"}, "PYTORCH_ALLOC_CONF=foo:1: ", "docs/configuration.md"),
        ({"OMP_NUM_THREADS": "4096"}, "OMP_NUM_THREADS=4096", "or less"),
        ({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, "does not load torch_npu", "import torch_npu"),
        ({"TORCHINDUCTOR_CACHE_DIR": "/proc/nowhere"}, "takes no files", "TORCHINDUCTOR_CACHE_DIR"),
    ],
)
def test_doctor_names_the_problem_and_the_remedy(module, variables, found, remedy):
    result = module("doctor", "--json", **variables)
    facts = json.loads(result.out)
    match = [f for f in facts["findings"] if found in f["found"]]
    assert match and remedy in match[0]["remedy"], result.out
    assert result.status == (match[0]["state"] == "problem") == (not facts["well"])
