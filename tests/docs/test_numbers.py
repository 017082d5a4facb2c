"""Numbers that a page quotes are those of the code.

A page marks a number: `eight<!-- = max-rank -->`. NUMBERS says where the code has it: a file and what stands around it
there, or a count of what is found. `<!-- ~ name -->` is a rounded one. PHRASES are pages without marks.
"""

import re
from pathlib import Path

import pytest

from tests.support import ROOT
from torch_npu import config
from torch_npu.cli import make_parser

MARK = re.compile(r"(?:(\d[\d,.]*)|(\w+))\s*<!-- ([=~]) ([\w-]+) -->")
WORDS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()
WORD = {word: n for n, word in enumerate(WORDS)} | {"seventy": 70, "eighty": 80, "ninety": 90}
ROUNDED = 0.2  # how far a rounded number may be off

CACHE = "csrc/core/memory/caching"
# name: file, and a pattern with the value
NUMBERS = {
    "max-rank": ("include/npu/program.h", r"NPU_MAX_RANK = (\d+)"),
    "storage-types": ("include/npu/program.h", r"NPU_DTYPE_COUNT = (\d+)"),
    "size-classes": (f"{CACHE}/block.h", r"kCount = (\d+)"),
    "small-limit-mib": (f"{CACHE}/block.h", r"kSmallLimit = (\d+)u << 20"),
    "small-segment-mib": (f"{CACHE}/block.h", r"kSmallSegment = (\d+)u << 20"),
    "large-segment-mib": (f"{CACHE}/types.h", r"large_segment = (\d+)u << 20"),
    "own-segment-mib": (f"{CACHE}/block.h", r"kOwnSegment = (\d+)u << 20"),
    "streams-per-priority": ("csrc/core/device/stream.cpp", r"kStreamsPerPriority = (\d+)"),
    "redzone": ("csrc/core/memory/sanitizer_calls.h", r"kGap = (\d+)"),
    "quarantine-mib": ("csrc/core/memory/quarantine.cpp", r"kMostBytes = (\d+)u << 20"),
    "oom-largest": ("csrc/core/memory/oom.cpp", r"largest_live\(device\.index, (\d+)\)"),
    "inline-ns": ("drivers/cmodel/runtime/options.h", r"inline_ns = ([\d']+)"),
    "sum-lanes": ("drivers/cmodel/simd/fold.h", r"keep (\d+) partial"),
    "lanes": ("rtl/npu.toml", r"^LANES = (\d+)"),
    "axi-reads": ("rtl/npu.toml", r"^READS = (\d+)"),
    "axi-writes": ("rtl/npu.toml", r"^WRITES = (\d+)"),
    "report-slices": ("torch_npu/report/timeline.py", r"SLICES = ([\d_]+)"),
    "report-memory-points": ("torch_npu/report/memory.py", r"POINTS = ([\d_]+)"),
    "report-roofline-groups": ("torch_npu/report/facts.py", r"COMMANDS = ([\d_]+)"),
    "torch-first": ("torch_npu/version.py", r'TORCH = \("([\d.]+)"'),
    "torch-last": ("torch_npu/version.py", r'TORCH = \("[\d.]+", "([\d.]+)"'),
}
COUNTS = {
    "instructions": ("include/npu/ops.def", r"^NPU_OP\("),
    "driver-tests": ("tools/driver_test/tests/*_tests.cpp", r"^(?:RANDOM_)?TEST\("),
}
SHIFTS = {
    "spare-mb": ("csrc/core/memory/spare.h", r"kMost = uint64_t\{1\} << (\d+)", 1 << 20),
    "attention-scores": ("csrc/aten/attention/attention_tiles.cpp", r"kScratchScores = 17 << (\d+)", 1 / 17),
}
PHRASES = {
    "docs/isa.md": [
        (r"(\d+) operands, \d+ parameters", "include/npu/program.h", r"NPU_MAX_OPERANDS = (\d+)"),
        (r"operands, (\d+) parameters", "include/npu/program.h", r"NPU_MAX_PARAMS = (\d+)"),
        (r"parameters, (\d+) constants", "include/npu/program.h", r"NPU_MAX_CONSTS = (\d+)"),
        (r"constants, (\d+) instructions", "include/npu/program.h", r"NPU_MAX_INSTRS = (\d+)"),
        (r"list of at most (\d+) instructions", "include/npu/program.h", r"NPU_MAX_INSTRS = (\d+)"),
        (r"(\d+) folds or scans per segment", "include/npu/program.h", r"NPU_MAX_FOLDS = (\d+)"),
        (r"(\d+) members per tuple", "include/npu/program.h", r"NPU_MAX_TUPLE = (\d+)"),
        (r"(\d+) live\s+values", "include/npu/program.h", r"NPU_MAX_LIVE = (\d+)"),
    ],
}


def _number(text: str) -> float:
    return WORD[text.lower()] if text.lower() in WORD else float(re.sub("[,_']", "", text))


def _found(place: str, pattern: str) -> list[str]:
    files = sorted(ROOT.glob(place))
    assert files, f"no file {place}"
    return [m for file in files for m in re.findall(pattern, file.read_text(), re.MULTILINE)]


def _one(place: str, pattern: str) -> str:
    found = _found(place, pattern)
    assert found, f"nothing in {place} is like {pattern}"
    return found[0]


def value(name: str) -> float:
    """What the code says."""
    if name in COUNTS:
        return len(_found(*COUNTS[name]))
    if name == "full-run-dtypes":
        return _one("torch_npu/testing/databases.py", r"^DTYPES = (.*)").count(",") + 1
    if name == "abi":
        return float(".".join(_one("include/npu/runtime.h", rf"NPU_ABI_{part} (\d+)") for part in ("MAJOR", "MINOR")))
    if name in SHIFTS:
        place, pattern, unit = SHIFTS[name]
        return (1 << int(_one(place, pattern))) / unit
    return _number(_one(*NUMBERS[name]))


def marks() -> list[tuple[Path, str, str, str]]:
    return [
        (page.relative_to(ROOT), digits or word, exact, name)
        for page in sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
        for digits, word, exact, name in MARK.findall(page.read_text())
    ]


@pytest.mark.parametrize(("page", "text", "exact", "name"), marks(), ids=lambda x: str(x))
def test_marked_number_is_that_of_the_code(page, text, exact, name):
    real = value(name)
    said = _number(text.rstrip(".,"))
    assert said == real if exact == "=" else abs(said - real) <= ROUNDED * real, f"{page}: {name} is {real:g} now"


def test_every_mark_was_found_and_every_name_is_used():
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    written = [n for page in pages for n in re.findall(r"<!-- [=~] ([\w-]+) -->", page.read_text())]
    assert sorted(written) == sorted(name for *_, name in marks()), "a mark has no number before it"
    assert set(written) == {*NUMBERS, *COUNTS, *SHIFTS, "full-run-dtypes", "abi"}


@pytest.mark.parametrize("page", PHRASES)
def test_phrases_have_the_numbers_of_the_code(page):
    text = (ROOT / page).read_text()
    for phrase, place, pattern in PHRASES[page]:
        said = re.search(phrase, text)
        assert said, f"{page} has nothing like {phrase}"
        assert _number(said[1]) == _number(_one(place, pattern)), f"{page}: {said[0]!r}"


def test_command_line_page_lists_every_command():
    page = (ROOT / "docs" / "design" / "cli.md").read_text()
    rows = page.split("## Commands")[1].split("\n\n", 2)[1]
    listed = set(re.findall(r"`([\w-]+)`", "".join(row.split("|")[1] for row in rows.splitlines())))
    registered = {action.dest: action for action in make_parser()._actions}["command"].choices
    assert listed == {*registered}


def test_variables_that_pages_name_are_settings():
    known = {setting.name for setting in config.VARIABLES} | {"TORCH_NPU_BUILD"}  # of setup.py
    for page in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]:
        named = set(re.findall(r"\b(?:TORCH_NPU|NPU_CMODEL)_[A-Z]+(?:_[A-Z]+)*\b", page.read_text()))
        assert named <= known, page


def test_operators_page_adds_up():
    page = (ROOT / "docs" / "operators.md").read_text()
    rows = re.findall(r"^\| (.*?), (\d+)(?: entries)? \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    assert len(rows) == 5
    for name, total, *parts in rows:
        assert int(total) == sum(map(int, parts)), name
