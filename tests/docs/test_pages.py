"""Links, quotes and file names of the pages lead somewhere."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.support import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")
QUOTE = re.compile(r"<!-- quote: (\S+/\S+) -->\n```\w*\n(.*?)```", re.DOTALL)
FILE = re.compile(r"`([\w./*-]+\.(?:cpp|c|h|py|sv|ops|toml|npu|js|css|def|md))`")
FOLDER = re.compile(r"`((?:csrc|codegen|drivers|support|tools|tests|torch_npu)(?:/\w+)*/?)`")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
SOURCES = ("csrc", "codegen", "drivers", "include", "support", "tools", "tests", "torch_npu", "rtl", "examples", "docs")
MADE = {"npu_pkg.sv", "npu_hw.h", "_build_info.py"}  # by the build
USERS = {"train.py", "mychip.c", "model.py", "lenet.py", "script.py", "data.py", "file.md", "page.md"}


def anchors(page: Path) -> set[str]:
    """The ids that GitHub and the site give to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", h).lower() for h in headings]
    return {re.sub(r"[^\w\- ]", "", h).strip().replace(" ", "-") for h in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page):
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{target}: no such file"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{target}: {file.name} has no such heading"


@cache
def names() -> set[str]:
    """Every file of the tree, as its path and as each end of it."""
    found = set()
    for folder in SOURCES:
        for file in (ROOT / folder).rglob("*"):
            parts = file.relative_to(ROOT).parts
            found |= {"/".join(parts[k:]) for k in range(len(parts))}
    return found


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "design").glob("*.md")), ids=lambda p: p.stem)
def test_files_that_a_design_page_names_exist(page):
    for name in FILE.findall(page.read_text()):
        if name in MADE | USERS or name.startswith("torch.") or (ROOT / name).exists():
            continue
        if "*" in name:
            found = any(Path(n).match(name) for n in names())
        else:
            found = name in names()
        assert found, f"{name} is nowhere"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_folders_that_a_page_names_exist(page):
    for name in FOLDER.findall(page.read_text()):
        assert (ROOT / name).is_dir(), f"{name} is nowhere"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_quotes_are_what_the_file_says(page):
    for place, quoted in QUOTE.findall(page.read_text()):
        files = list(ROOT.glob(place))
        assert len(files) == 1, f"{place}: expected one file, got {len(files)}"
        assert quoted.rstrip("\n") in files[0].read_text(), f"{place} does not say:\n{quoted}"


def test_every_design_page_is_on_the_map():
    text = (ROOT / "docs" / "design" / "README.md").read_text()
    pages = {p.name for p in (ROOT / "docs" / "design").glob("*.md")} - {"README.md"}
    assert pages <= set(LINK.findall(text))
