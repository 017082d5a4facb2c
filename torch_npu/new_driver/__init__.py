"""A vendor's own driver project: python -m torch_npu new-driver NAME [--with PARTS]. Without parts it is written from
drivers/template, with them from rooms of drivers/complete."""

import re
import shutil
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = HERE.parent.parent  # of the repository, if there is one
PAGES = ("isa.md", "driver-guide.md")

# What everybody writes. Of two rooms that do one thing, a part names the one that it brings.
COMMON = ("device", "program", "commands", "streams")
PARTS = {
    "interpreter": {},
    "async": {"queue": "queue/worker"},
    "to-c": {"units": "units/compiled"},
}
CHOICES = {"queue": "queue/in_call", "units": "units/interpreted"}


def carried(installed: str, source: str) -> Path:
    """What an installed package carries beside this file, or its source in the repository."""
    return HERE / installed if (HERE / installed).exists() else SOURCES / source


def contract_version(headers: Path) -> str:
    text = (headers / "runtime.h").read_text()
    return ".".join(re.findall(rf"NPU_ABI_{part}\D*(\d+)", text)[0] for part in ("MAJOR", "MINOR"))


def check_name(name: str, taken: list[str]) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", name):
        raise ValueError(f"expected a name of lower-case letters, digits and _ that begins with a letter, got {name!r}")
    if name in taken:
        raise ValueError(f"expected a name that no driver has ({', '.join(taken)}), got {name!r}")


def read_parts(text: str) -> list[str]:
    """ "async,to-c": in the order of PARTS; each stands on the interpreter."""
    asked = text.split(",")
    for part in asked:
        if part not in PARTS:
            raise ValueError(f"expected parts of {', '.join(PARTS)}, with commas between them, got {part!r}")
    return [part for part in PARTS if part in asked or part == "interpreter"]


def rooms_of(parts: list[str]) -> tuple[str, ...]:
    """The folders of drivers/complete that a driver with these parts has."""
    chosen = dict(CHOICES)
    for part in parts:
        chosen |= PARTS[part]
    return (*COMMON, *chosen.values())


def named(path: Path, old: str, name: str) -> str:
    """The text of a source that says how the driver and its devices are called."""
    renamed, count = re.subn(rf'\.name = "{old}"', f'.name = "{name}"', path.read_text(), flags=re.IGNORECASE)
    if count == 0:
        raise RuntimeError(f"expected a file that names the driver {old}, got another: {path}")
    return renamed


def write_template(name: str, folder: Path) -> None:
    (folder / f"{name}.c").write_text(named(carried("template.c", "drivers/template/template.c"), "template", name))


def write_parts(name: str, folder: Path, parts: list[str]) -> None:
    complete = carried("complete", "drivers/complete")
    rooms = {room: complete / room for room in rooms_of(parts)}
    for room, source in rooms.items():
        shutil.copytree(source, folder / "src" / room)
    shutil.copy(complete / "table.c", folder / "src")
    for file in ("src/table.c", "src/device/device.c"):
        (folder / file).write_text(named(folder / file, "complete", name))
    if "async" in parts:
        shutil.copytree(complete / "test", folder / "test")


def write(name: str, folder: Path, headers: Path, parts: list[str]) -> list[Path]:
    """Writes the project into `folder`, which must not exist yet, and returns its files. No parts: the template."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"expected a folder that is not there yet or empty, got {folder}; choose one with --out")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(headers, folder / "include" / "npu")
    (folder / "docs").mkdir()
    for page in PAGES:
        shutil.copy(carried(f"docs/{page}", f"docs/{page}"), folder / "docs")
    if parts:
        write_parts(name, folder, parts)
    else:
        write_template(name, folder)
    readme = "README.complete.md.in" if parts else "README.template.md.in"
    filled = {"NAME": name, "VERSION": contract_version(headers), "PARTS": ",".join(parts), "OPTIONS": ":devices=2"}
    for text in (HERE / "Makefile.in", HERE / "model.py.in", HERE / readme):
        content = text.read_text()
        for key, value in filled.items():
            content = content.replace(f"@{key}@", value)
        (folder / text.name.removesuffix(".in").replace(".template", "").replace(".complete", "")).write_text(content)
    return sorted(p for p in folder.rglob("*") if p.is_file())
