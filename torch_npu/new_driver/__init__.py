"""A vendor's own driver project, written from the template: python -m torch_npu new-driver NAME."""

import re
import shutil
from pathlib import Path

HERE = Path(__file__).parent


def template_source() -> Path:
    """drivers/template/template.c, or the copy that an installed package carries."""
    installed = HERE / "template.c"
    return installed if installed.exists() else HERE.parent.parent / "drivers" / "template" / "template.c"


def contract_version(headers: Path) -> str:
    text = (headers / "runtime.h").read_text()
    return ".".join(re.findall(rf"NPU_ABI_{part}\D*(\d+)", text)[0] for part in ("MAJOR", "MINOR"))


def check_name(name: str, taken: list[str]) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", name):
        raise ValueError(f"expected a name of lower-case letters, digits and _ that begins with a letter, got {name!r}")
    if name in taken:
        raise ValueError(f"expected a name that no driver has ({', '.join(taken)}), got {name!r}")


def write(name: str, folder: Path, headers: Path) -> list[Path]:
    """Writes the project into `folder`, which must not exist yet, and returns its files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"expected a folder that is not there yet or empty, got {folder}; choose one with --out")
    source = template_source().read_text()
    renamed, count = re.subn(r'\.name = "[Tt]emplate"', f'.name = "{name}"', source)
    if count != 2:  # of the driver and of its devices
        raise RuntimeError(f"expected the template to name itself twice, got another file: {template_source()}")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(headers, folder / "include" / "npu")
    (folder / f"{name}.c").write_text(renamed)
    for text in HERE.glob("*.in"):
        filled = text.read_text().replace("@NAME@", name).replace("@VERSION@", contract_version(headers))
        (folder / text.stem).write_text(filled)
    return sorted(p for p in folder.rglob("*") if p.is_file())
