"""import torch loads the device, cheaply, and is not broken by it, only by a setting that it does not have."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import torch_npu
from tests.support import ROOT

PACKAGE = Path(torch_npu.__file__).parent


def test_import_torch_alone_makes_the_device_known(python):
    assert python("import torch; print(torch.ones(2, device='npu').device)").lines() == ["npu:0"]


def test_import_torch_npu_first_works(python):
    assert python("import torch_npu, torch; print(torch.ones(2, device='npu').cpu().tolist())").lines() == [
        "[1.0, 1.0]"
    ]


def test_import_works_without_autoload(python):
    code = """
        import torch
        print(hasattr(torch, "npu"))
        import torch_npu
        print(torch.ones(2, device="npu").is_npu)
    """
    assert python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").lines() == ["False", "True"]


def test_autoload_can_be_called_again(python):
    code = """
        import torch_npu
        torch_npu._autoload()
        torch_npu._autoload()
        import torch
        print(torch.npu.is_available())
    """
    assert python(code).lines() == ["True"]


def test_import_loads_no_driver_and_nothing_heavy(python):
    code = """
        import os
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        import sys, torch
        before = set(sys.modules)
        import torch_npu
        new = set(sys.modules) - before
        print([m for m in new if m.split(".")[0] != "torch_npu" and not m.startswith("torch.npu")])
        print(torch.npu.is_initialized())
        print("cmodel" in open("/proc/self/maps").read())
    """
    heavy, initialized, mapped = python(code).lines()
    assert not any(name in heavy for name in ("dynamo", "inductor", "numpy", "sympy"))
    assert (initialized, mapped) == ("False", "False")


def test_version_and_include_path():
    assert torch_npu.__version__.count(".") == 2
    assert (Path(torch_npu.include_path()) / "npu" / "runtime.h").is_file()


def test_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = torch_npu.nonsense


def copy_of_package(folder: Path) -> Path:
    """A torch_npu of its own, without libraries, found before the installed one."""
    shutil.copytree(PACKAGE, folder / "torch_npu", ignore=shutil.ignore_patterns("*.so", "lib", "__pycache__"))
    return folder / "torch_npu"


def run_in(folder: Path, code: str) -> subprocess.CompletedProcess:
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=folder)


def test_library_for_another_torch_leaves_import_torch_working_and_says_so(tmp_path):
    (copy_of_package(tmp_path) / "_build_info.py").write_text('torch_version = "2.9.1"\n')
    result = run_in(tmp_path, "import torch; print(torch.ones(2).sum().item())")
    assert (result.returncode, result.stdout.strip()) == (0, "2.0")
    assert "torch_npu was built for torch 2.9, found 2." in result.stderr
    assert "pip install --no-build-isolation ." in result.stderr


def test_library_for_another_torch_is_an_import_error_of_torch_npu(tmp_path):
    (copy_of_package(tmp_path) / "_build_info.py").write_text('torch_version = "2.9.1"\n')
    result = run_in(tmp_path, "import warnings; warnings.simplefilter('ignore')\nimport torch\nimport torch_npu")
    assert result.returncode == 1
    assert result.stderr.strip().splitlines()[-1].startswith("ImportError: torch_npu was built for torch 2.9, found 2.")


@pytest.mark.parametrize("version", ["2.10.0", "2.14.0a0+git1234567", "3.0.1"])
def test_a_torch_that_it_is_not_for_is_refused_with_a_sentence(tmp_path, version):
    (copy_of_package(tmp_path) / "_build_info.py").write_text(f"torch_version = {version!r}\n")
    code = f"""
import os
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
torch.__version__ = {version!r}
import torch_npu
"""
    result = run_in(tmp_path, code)
    lowest, highest = torch_npu.version.TORCH
    found = ".".join(version.split(".")[:2])
    sentence = f"torch_npu is for torch {lowest} to {highest}, found {found}: pip install torch=={highest}.0"
    assert result.stderr.strip().splitlines()[-1].startswith(f"ImportError: {sentence}")


@pytest.mark.parametrize("version", ["2.10.0", "2.14.0"])
def test_cmake_refuses_a_torch_that_it_is_not_for(tmp_path, version):
    fake = tmp_path / "fake" / "torch"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text(f"__version__ = {version!r}\nclass _C:\n    _GLIBCXX_USE_CXX11_ABI = True\n")
    options = [f"-DPython3_EXECUTABLE={sys.executable}", f"-DNPU_OUTPUT={tmp_path}/lib", "-DNPU_DRIVERS=template"]
    command = ["cmake", "-S", ROOT, "-B", tmp_path / "build", "-DNPU_TESTS=OFF", *options]
    environment = {**os.environ, "PYTHONPATH": str(fake.parent)}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    lowest, highest = torch_npu.version.TORCH
    said = " ".join(result.stderr.split())  # CMake breaks lines
    assert result.returncode == 1
    assert f"expected PyTorch {lowest} to {highest} in" in said and f"got {version}: pip install" in said


def test_the_versions_of_torch_are_those_that_pip_is_told():
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lowest, highest = torch_npu.version.TORCH
    major, minor = highest.split(".")
    expected = f"torch>={lowest},<{major}.{int(minor) + 1}"
    assert expected in told["project"]["dependencies"] and expected in told["build-system"]["requires"]


def test_package_that_is_not_built_says_how_to_build_it(tmp_path):
    (copy_of_package(tmp_path) / "_build_info.py").write_text("raise ImportError")  # as if absent
    result = run_in(tmp_path, "import torch; print('alive')")
    assert result.stdout.strip() == "alive"
    assert "torch_npu is not built: run `make build`" in result.stderr


def test_library_that_cannot_be_loaded_is_named(tmp_path):
    package = copy_of_package(tmp_path)
    extension = next(PACKAGE.glob("_C*.so")).name
    (package / extension).write_bytes(b"not a library")
    result = run_in(tmp_path, "import torch; print('alive')")
    assert result.stdout.strip() == "alive"
    assert "the npu device is not available" in result.stderr and extension in result.stderr


WRONG = {
    "TORCH_NPU_FALLBACK": ("eror", "warn or quiet or error"),
    "TORCH_NPU_DEBUG": ("loud", "0 or 1 or 2 or 3"),
    "TORCH_NPU_DEBUG_FORMAT": ("xml", "text or json"),
    "TORCH_NPU_BLOCKING": ("yes", "0 or 1"),
    "TORCH_NPU_SANITIZE_REPORT": ("print", "raise or log"),
}


@pytest.mark.parametrize("module, variable", [*(("torch", name) for name in WRONG), ("torch_npu", "TORCH_NPU_DEBUG")])
def test_a_value_that_no_setting_has_fails_the_import(python, module, variable):
    value, expected = WRONG[variable]
    result = python(f"import {module}; print('went on')", **{variable: value})
    assert result.status == 1 and result.out == ""
    assert f'{variable}: expected {expected}, got "{value}"' in result.err


def test_an_empty_value_is_no_setting(python):
    assert python("import torch", **dict.fromkeys(WRONG, "")).status == 0
