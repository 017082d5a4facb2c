"""Keeps docs/driver-guide.md honest: every quoted block equals its region in the tested driver.

A block of the guide stands behind the line `<!-- quote: NAME -->`; its region in tests/drivers/guide/mychip.c lies
between `/* guide: NAME */` and `/* guide: end */`. `--write` copies the regions into the guide.
"""

import re
import sys

from tests.support import ROOT

GUIDE = ROOT / "docs" / "driver-guide.md"
SOURCE = ROOT / "tests" / "drivers" / "guide" / "mychip.c"
BLOCK = re.compile(r"<!-- quote: ([^>]+?) -->\n```c\n(.*?)```\n", re.DOTALL)


def regions() -> dict[str, str]:
    found = re.findall(r"/\* guide: (?!end)(.+?) \*/\n(.*?)/\* guide: end \*/\n", SOURCE.read_text(), re.DOTALL)
    return dict(found)


def check() -> list[str]:
    """One line per difference between the guide and the source."""
    source, quoted, problems = regions(), set(), []
    for name, text in BLOCK.findall(GUIDE.read_text()):
        quoted.add(name)
        if name not in source:
            problems.append(f"the guide quotes '{name}', which is no region of {SOURCE.name}")
        elif text != source[name]:
            problems.append(
                f"the guide's '{name}' differs from {SOURCE.name}: run python -m tests.docs.test_driver_guide --write"
            )
    for name in source.keys() - quoted:
        problems.append(f"the region '{name}' of {SOURCE.name} is not quoted in the guide")
    return problems


def write() -> None:
    source = regions()
    text = BLOCK.sub(lambda m: f"<!-- quote: {m[1]} -->\n```c\n{source.get(m[1], m[2])}```\n", GUIDE.read_text())
    GUIDE.write_text(text)


def test_guide_quotes_the_tested_driver():
    assert regions(), "no regions found in the source"
    assert check() == []


if __name__ == "__main__":
    if "--write" in sys.argv:
        write()
    lines = check()
    print("\n".join(lines) or f"{len(regions())} quotes of the guide equal the source")
    sys.exit(bool(lines))
