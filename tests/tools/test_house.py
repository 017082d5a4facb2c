"""`make lint` finds what is planted: an include that points up, a room nobody has named, a function of 101 lines."""

import subprocess
import sys
from pathlib import PurePosixPath

import pytest

from tests.support import ROOT

MAP = """
["include/npu"]
floors = [["."]]
[device]
uses = ["include/npu"]
floors = [["ground"], ["left", "right"], ["roof"]]
[host]
torch = true
uses = ["device/roof"]
asks = ["."]
floors = [["."], ["cli"]]
"""
# A tree that is in order.
FILES = {
    "tools/rooms.toml": MAP,
    "include/npu/runtime.h": "#include <stdint.h>\n",
    "device/ground/a.h": '#include "npu/runtime.h"\n',
    "device/left/a.cpp": '#include "device/ground/a.h"\n',
    "device/right/a.h": "",
    "device/roof/a.cpp": '#include "../left/b.h"\n#include "device/right/a.h"\n',
    "device/left/b.h": "",
    "host/__init__.py": "import torch\ndef command():\n    from host.cli import run\n",
    "host/cli/__init__.py": "from .. import command\n",
}


def check(tool, tree):
    command = [sys.executable, str(ROOT / "tools" / tool), "--root", str(tree)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert not result.stderr
    assert result.returncode == bool(result.stdout)
    return result.stdout


def plant(tree, files):
    for name, text in {**FILES, **files}.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)


@pytest.mark.parametrize(
    "file, text, sentence",
    [
        ("device/ground/b.h", '#include "device/roof/a.cpp"\n', "expected a room on a floor below device/ground"),
        ("device/left/c.h", '#include "../right/a.h"\n', "expected a room on a floor below device/left"),
        ("device/ground/b.h", "#include <torch/torch.h>\n", "expected no PyTorch in device/"),
        ("host/b.cpp", '#include "device/left/b.h"\n', "expected one of device/roof"),
        ("host/b.cpp", '#include "device/roof/a.cpp"\n', ""),
        ("host/c.py", "from host.cli import run\n", "expected a room on a floor below host"),
        ("host/__main__.py", "from .cli import run\n", ""),
        ("host/cli/c.py", "import host\n", ""),
        ("host/c.py", "import typing\nif typing.TYPE_CHECKING:\n    from host.cli import run\n", ""),
        ("device/ground/c.py", "def f():\n    import host.cli\n", "expected one of include/npu"),
        ("device/cellar/a.c", "", "device/cellar/ has code: expected a room of tools/rooms.toml"),
        (
            "tools/rooms.toml",
            MAP + "[attic]\nfloors = [['.']]\n",
            "tools/rooms.toml: expected code in attic/, got none",
        ),
        ("include/npu/bad.h", "bool broken;\n", "include/npu/bad.h is not plain c99"),
    ],
)
def test_uses_that_the_map_forbids_are_named(tmp_path, file, text, sentence):
    plant(tmp_path, {file: text})
    found = check("check_layers.py", tmp_path)
    assert sentence in found if sentence else not found
    assert not sentence or str(PurePosixPath(file).parent) in found


def statements(count):
    return "  f(0);\n" * count


@pytest.mark.parametrize(
    "file, text, sentence",
    [
        ("device/ground/a.cpp", "int f(int a) {\n" + statements(99) + "}\n", "a.cpp:1: expected at most 100 lines"),
        ("device/ground/a.cpp", "int f(int a) {\n" + statements(98) + "}\n", ""),
        (
            "device/ground/a.cpp",
            'namespace n {\n#define BRACE {\nconst char* kText = "{";\nstruct S {\n  // {\n  S()\n      : a{1} {\n'
            + statements(99)
            + "  }\n};\n}\n",
            "a.cpp:6: expected at most 100 lines in a function, got 102 in S",
        ),
        ("device/ground/a.cpp", "int table[] = {\n" + "  1,\n" * 200 + "};\n", ""),
        ("device/ground/a.py", "def f():\n" + "    f()\n" * 100, "a.py:1: expected at most 100 lines"),
        ("device/ground/a.py", "x = 1\n" * 501, "a.py: expected at most 500 lines, got 501"),
        ("device/ground/a.py", "x = 1\n" * 500, ""),
    ],
)
def test_what_is_too_long_is_named(tmp_path, file, text, sentence):
    plant(tmp_path, {file: text})
    found = check("check_sizes.py", tmp_path)
    assert sentence in found if sentence else not found


@pytest.mark.parametrize("count, is_wrong", [(24, False), (25, True)])
def test_a_room_with_too_many_files_is_named(tmp_path, count, is_wrong):
    plant(tmp_path, {f"device/ground/{n}.c": "" for n in range(count)})  # and a.h
    found = check("check_sizes.py", tmp_path)
    assert found == ("device/ground/: expected at most 25 files of code in a room, got 26\n" if is_wrong else "")
