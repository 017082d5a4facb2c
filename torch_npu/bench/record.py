"""benchmarks/RESULTS.md, written by `bench ... --record FILE`: a section per kind, with processor, date and commit.

A section stands between `<!-- bench: KIND -->` and `<!-- bench: end -->`; the one of the same kind is replaced, a new
one goes behind the line `<!-- bench: here -->`.
"""

import datetime
import platform
import re
import subprocess
from pathlib import Path

PLACE = "<!-- bench: here -->\n"


def processor() -> str:
    """The processor's name, its cores and the instruction sets that decide about figures."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    name = re.search(r"model name\s*: (.*)", text)
    flags = re.search(r"^flags\s*: (.*)", text, re.MULTILINE)
    sets = [s for s in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16") if flags and s in flags[1].split()]
    cores = len(re.findall(r"^processor\s*:", text, re.MULTILINE))
    return f"{name[1] if name else platform.machine()}, {cores} cores, {' '.join(sets)}"


def commit() -> str:
    """The commit of the tree that is measured, with a + where the tree has changes."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--abbrev=10"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no commit"


def record(file: Path, kind: str, text: str, what: str, threads: int) -> None:
    """Writes a section with the text of a run; `what` says how it was called."""
    import torch

    today = datetime.date.today().isoformat()
    facts = f"{today}, commit {commit()}, {processor()}, threads {threads}, torch {torch.__version__}"
    section = f"<!-- bench: {kind} -->\n### {kind}\n\n`{what}`: {facts}.\n\n```text\n{text.strip()}\n```\n"
    section += "<!-- bench: end -->\n"
    page = file.read_text() if file.exists() else f"# Results\n\n{PLACE}"
    old = re.compile(rf"<!-- bench: {re.escape(kind)} -->\n.*?<!-- bench: end -->\n", re.DOTALL)
    if old.search(page):
        page = old.sub(lambda _: section, page)
    elif PLACE in page:
        page = page.replace(PLACE, f"{PLACE}\n{section}", 1)
    else:
        raise ValueError(f"expected the line {PLACE.strip()!r} in {file}")
    file.write_text(page)
