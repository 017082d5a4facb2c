"""The map of the house (docs/design/README.md) is the tree's: every folder of sources, and no other."""

import re
import subprocess

from tests.support import ROOT

SOURCE = re.compile(r"\.(cpp|c|h|hpp|py|sv|ops|toml|npu|def|js|css|in)$")
APART = {".", ".ci", "docs"}  # no rooms: the top, what CI runs, pages
PRESCRIBED = "csrc/aoti/torch"  # folders below it have the names under which PyTorch includes a header


def drawn() -> list[str]:
    """The folders on the map, in its order."""
    picture = re.search(r"<!-- map -->\n```text\n(.*?)```", (ROOT / "docs/design/README.md").read_text(), re.DOTALL)[1]
    wing, folders = "", []
    for line in picture.splitlines():
        if title := re.match(r"┌─ (\S+)/ ", line):
            wing = title[1]
            folders.append(wing)
        elif rooms := re.match(r"│ ((?:\S+/ )+)", line):
            folders += [f"{wing}/{room.rstrip('/')}" for room in rooms[1].split()]
    return folders


def folders_of_sources() -> set[str]:
    """By git: what is ignored is no part of the house."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    sources = [ROOT / name for name in listed if SOURCE.search(name)]
    folders = {str(file.parent.relative_to(ROOT)) for file in sources if file.exists()}
    return {folder for folder in folders if not folder.startswith(PRESCRIBED)}


def test_every_folder_of_sources_is_on_the_map():
    assert folders_of_sources() - APART - set(drawn()) == set()


def test_every_folder_on_the_map_exists_once():
    folders = drawn()
    assert len(folders) > 40, "the map was not found"
    assert [f for f in folders if not (ROOT / f).is_dir()] == []
    assert len(folders) == len(set(folders))


def test_lines_of_the_map_are_equally_long():
    text = (ROOT / "docs/design/README.md").read_text()
    assert len({len(line) for line in text.splitlines() if line.startswith(("┌", "│", "└"))}) == 1
