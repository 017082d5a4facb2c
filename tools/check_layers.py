"""Holds every #include and import to the map of the house, tools/rooms.toml. Exit status 1 names each violation.

- a room uses the floors below it and what its wing names; every folder with code is a room of the map
- only wings with `torch` include or import PyTorch
- a header of include/npu compiles alone as C99, C11 and C++
"""

import argparse
import ast
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
CPP = {".h", ".c", ".cpp", ".def", ".inc"}
CODE = CPP | {".py", ".sv", ".js"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
TORCH = re.compile(r"(torch|ATen|c10|caffe2|pybind11|Python\.h)(/|$)")


@dataclass
class Wing:
    folder: str
    floors: list[list[str]]
    uses: list[str] = field(default_factory=list)
    asks: list[str] = field(default_factory=list)
    torch: bool = False

    def rooms(self) -> list[str]:
        return [self.path(room) for floor in self.floors for room in floor]

    def path(self, room: str) -> str:
        return self.folder if room == "." else f"{self.folder}/{room}"

    def floor(self, path: str) -> int:
        return next(n for n, floor in enumerate(self.floors) if path in map(self.path, floor))


class House:
    def __init__(self, plan: dict):
        self.wings = {folder: Wing(folder, **facts) for folder, facts in plan.items()}
        self.wing_of_room = {room: wing for wing in self.wings.values() for room in wing.rooms()}

    def room(self, path: str) -> str | None:
        """Of a file; None: it is outside the house, or its folder is no room."""
        folder = str(PurePosixPath(path).parent)
        return folder if folder in self.wing_of_room else None

    def may_use(self, user: str, used: str, is_asked: bool) -> bool:
        wing = self.wing_of_room[user]
        if is_asked and self.asks(user):
            return True
        if used not in wing.rooms():
            return any(used in (name, *(self.wings[name].rooms() if name in self.wings else ())) for name in wing.uses)
        return user == used or wing.floor(used) < wing.floor(user)

    def asks(self, user: str) -> bool:
        wing = self.wing_of_room[user]
        return user in map(wing.path, wing.asks)


def code_files(root: Path, folders: set[str]) -> list[str]:
    """The sources under these folders, without what a build puts there."""
    files = (file for folder in sorted(folders) for file in sorted((root / folder).rglob("*")))
    found = (file.relative_to(root) for file in files if file.suffix in CODE)
    return [str(file) for file in found if file.parts[:2] != ("torch_npu", "lib") and file.name != "_build_info.py"]


def included(root: Path, file: str) -> list[tuple[str, bool]]:
    """What a C or C++ file includes, as a path from the root where it is one of ours."""
    names = INCLUDE.findall((root / file).read_text())
    result = []
    for name in names:
        beside = (root / file).parent / name
        roots = (".", "include", "csrc/aoti", "drivers/complete")
        places = [beside, *(root / folder / name for folder in roots)]
        place = next((p.resolve() for p in places if p.is_file()), None)
        result.append((str(place.relative_to(root)) if place else name, False))
    return result


def imported(root: Path, file: str) -> list[tuple[str, bool]]:
    """What a Python file imports, as a path where it is one of ours, and whether only a call does it. What only a type
    checker imports does not count."""
    tree = ast.parse((root / file).read_text())
    for_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test).endswith("TYPE_CHECKING")
        for node in ast.walk(block)
    }
    in_calls = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    is_program = PurePosixPath(file).name == "__main__.py"  # begins what was asked for
    package = PurePosixPath(file).parent.parts
    result = []
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        result += [(module_path(root, name), is_program or id(node) in in_calls) for name in names]
    return result


def module_path(root: Path, name: str) -> str:
    """torch_npu.cli.table.Table: torch_npu/cli/table.py. A name that is none of ours stays, with slashes."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        for end in (".py", "/__init__.py"):
            path = "/".join(parts[:length]) + end
            if (root / path).is_file():
                return path
    return "/".join(parts)


def wrong_uses(root: Path, house: House, files: list[str]) -> list[str]:
    found = []
    for file in files:
        user = house.room(file)
        if user is None:
            continue
        wing = house.wing_of_room[user]
        uses = included(root, file) if Path(file).suffix in CPP else []
        uses = imported(root, file) if file.endswith(".py") else uses
        for name, is_asked in dict.fromkeys(uses):
            used = house.room(name)
            if used and not house.may_use(user, used, is_asked):
                found.append(f"{file} uses {name}: expected {reason(house, user, used)}")
            elif not used and TORCH.match(name) and not wing.torch and not (is_asked and house.asks(user)):
                found.append(f"{file} uses {name}: expected no PyTorch in {wing.folder}/")
    return found


def reason(house: House, user: str, used: str) -> str:
    wing = house.wing_of_room[user]
    if used in wing.rooms():
        return f"a room on a floor below {user} (tools/rooms.toml), got {used}"
    return f"one of {', '.join(wing.uses) or 'no other wing'} (tools/rooms.toml), got {used}"


def wrong_rooms(house: House, files: list[str]) -> list[str]:
    """The map and the tree have the same rooms."""
    folders, rooms = {str(PurePosixPath(file).parent) for file in files}, {*house.wing_of_room}
    strange = [f"{folder}/ has code: expected a room of tools/rooms.toml" for folder in sorted(folders - rooms)]
    return strange + [f"tools/rooms.toml: expected code in {room}/, got none" for room in sorted(rooms - folders)]


def wrong_headers(root: Path) -> list[str]:
    """Headers of the contract that are not plain C."""
    found = []
    compilers = (("gcc", "c99", "c"), ("gcc", "c11", "c"), ("g++", "c++20", "cpp"))
    for header in sorted((root / "include" / "npu").glob("*.h")):
        for compiler, standard, suffix in compilers:
            with tempfile.TemporaryDirectory() as folder:
                source = Path(folder) / f"alone.{suffix}"
                source.write_text(f'#include "npu/{header.name}"\nint alone(void);\nint alone(void) {{ return 0; }}\n')
                command = [compiler, f"-std={standard}", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
                result = subprocess.run(
                    [*command, f"-I{root / 'include'}", str(source)], capture_output=True, text=True
                )
                if result.returncode:
                    found.append(f"include/npu/{header.name} is not plain {standard}:\n{result.stderr.rstrip()}")
    return found


def asked(description: str | None) -> tuple[Path, House, list[str]]:
    """The tree of the command line, its map and its files."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--root", type=Path, default=ROOT, help="the tree to look at")
    root = options.parse_args().root.resolve()
    house = House(tomllib.loads((root / "tools" / "rooms.toml").read_text()))
    return root, house, code_files(root, {folder.split("/")[0] for folder in house.wings})


def tell(found: list[str]) -> int:
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    root, house, files = asked(__doc__)
    sys.exit(tell(wrong_rooms(house, files) + wrong_uses(root, house, files) + wrong_headers(root)))
