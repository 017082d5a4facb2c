"""The wheel: what is in it, and that it works in an environment that has torch and nothing of this repository."""

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What every Linux of manylinux_2_28 and torch itself bring.
SYSTEM = re.compile(r"(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|ld-linux-[\w-]+)\.so\.\d+")
TORCH = re.compile(r"lib(torch|torch_cpu|torch_python|c10)\.so")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Made from the libraries of build/, as `make wheel` does: nothing is compiled twice."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([*command, "--wheel-dir", folder, ROOT], check=True, timeout=900)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """Its Python. Of this environment's packages it sees all but this one."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    others = folder / "others"
    others.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "torch_npu" not in entry.name:
            (others / entry.name).symlink_to(entry)
    (packages / "others.pth").write_text(f"{others}\n")
    interpreter = folder / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", interpreter, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, wheel], check=True)
    return interpreter


def run(environment, *arguments) -> str:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TORCH_NPU"))}
    done = subprocess.run(
        [environment, *arguments], capture_output=True, text=True, timeout=300, env=variables, cwd=environment.parent
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_program_runs_on_the_device(environment):
    code = "import torch, torch_npu; print((torch.ones(2, device='npu') + 1).tolist(), torch_npu.__file__)"
    result, file = run(environment, "-c", code).rsplit(" ", 1)
    assert result == "[2.0, 2.0]" and str(environment.parents[1]) in file


def test_the_tools_run(environment):
    text = run(environment, "-m", "torch_npu", "info")
    assert str(ROOT) not in text.replace(str(environment), "") and "cmodel" in text
    assert " 0 failed, " in run(environment, "-m", "torch_npu", "driver-test", "template", "--filter", "MAP")


TRAIN_LORA = """
import copy, runpy
import torch, torch_npu

torch.manual_seed(0)
made = runpy.run_path("small_models.py")["qwen2_lora"]()

def losses(device):
    model, inputs, named = copy.deepcopy(made)
    model = model.to(device)
    named = {name: x.to(device) for name, x in named.items()}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    answers = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(*[x.to(device) for x in inputs], **named)
        loss.backward()
        optimizer.step()
        answers.append(loss.item())
    return answers

npu, cpu = losses("npu"), losses("cpu")
torch.testing.assert_close(npu, cpu, rtol=2e-3, atol=0)
print(torch.npu.get_device_name(), npu[0] > npu[-1], torch_npu.fallback.report())
"""

SESSION = """set -e
python -m torch_npu new-driver mychip --with interpreter
make -s -j2 -C mychip
make -s -C mychip test PYTHON=python
TORCH_NPU_DRIVER=mychip/libnpu_mychip.so python train.py
"""


def test_a_whole_driver_is_written_built_tested_and_trained_on(environment, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN_LORA)
    (tmp_path / "small_models.py").write_text((ROOT / "tests" / "support" / "small_models.py").read_text())
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TORCH_NPU"))}
    variables["PATH"] = f"{environment.parent}:{variables['PATH']}"
    done = subprocess.run(
        ["sh", "-c", SESSION], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " 0 failed, 0 unsupported" in done.stdout
    assert done.stdout.splitlines()[-1] == "mychip True {}"


def test_programs_that_need_no_python_are_on_path(environment):
    done = subprocess.run([environment.parent / "npu-replay", "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("usage: npu-replay")


def test_its_libraries_need_only_each_other_torch_and_the_system(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    libraries = [*tmp_path.rglob("*.so"), *tmp_path.rglob("npu-*")]
    own = {file.name for file in libraries}
    assert {"libtorch_npu.so", "libnpu_cmodel.so", "libnpu_template.so", "npu-driver-test"} <= own
    assert not [name for name in own if name.endswith("-test") and name != "npu-driver-test"]
    for file in libraries:
        text = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
        for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", text):
            assert needed in own or SYSTEM.fullmatch(needed) or TORCH.fullmatch(needed), f"{file.name}: {needed}"
        for path in re.findall(r"\(RUNPATH\).*\[(.*)\]|\(RPATH\).*\[(.*)\]", text):
            assert all(part.startswith("$ORIGIN") for part in "".join(path).split(":")), f"{file.name}: {path}"
