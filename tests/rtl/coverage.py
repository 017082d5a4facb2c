"""python -m tests.rtl.coverage: how much of rtl/ the benches reach, by file: lines and toggles, and the lines left.

A second simulation, with assertions, random initial values and coverage counters. A line of a module counts as reached
if any instance reaches it, a bit as toggled if it rises and falls in any. Exit status 1 below --least percent of lines.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import os
import re
import sys
from pathlib import Path

from tests.rtl.__main__ import bench
from tests.rtl.build import ROOT, build, module_names

FIELD = re.compile("\x01([^\x02]*)\x02([^\x01]*)")


def read(path: Path, counts: dict) -> None:
    """Adds the counters of one run: `C '<fields>' <count>`, where a field is \\1 name \\2 value."""
    for entry in path.read_text(errors="replace").splitlines():
        if not entry.startswith("C "):
            continue
        text, _, count = entry[3:].rpartition("' ")
        field = dict(FIELD.findall(text))
        kind = field.get("page", "").split("/")[0].removeprefix("v_")
        name = Path(field["f"]).name
        # The wrapper and generated constants are none of ours.
        if (ROOT / "rtl" / name).exists():
            where = field.get("S") or field["l"]
            counts[name, kind, int(field["l"]), field.get("o", ""), where] += int(count)


def lines_of(where: str) -> list[int]:
    """'12-14,17' as numbers."""
    found = []
    for part in where.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def report(counts: dict) -> tuple[str, float]:
    lines, toggles = collections.defaultdict(dict), collections.defaultdict(list)
    for (name, kind, _, _, where), count in counts.items():
        if kind in ("line", "branch"):
            for line in lines_of(where):
                # A line with several branches is reached when all are.
                lines[name][line] = lines[name].get(line, True) and count > 0
        elif kind == "toggle":
            toggles[name].append(count > 0)
    text = ["| file | lines | reached | toggles | seen | lines not reached |", "|---|---|---|---|---|---|"]
    share = lambda values: f"{100 * sum(values) / max(len(values), 1):.1f} %" if values else "none"  # noqa: E731
    all_lines, all_toggles = [], []
    for name in sorted(set(lines) | set(toggles)):
        reached, seen = list(lines[name].values()), toggles[name]
        missed = ", ".join(str(line) for line, good in sorted(lines[name].items()) if not good) or "none"
        text.append(f"| {name} | {len(reached)} | {share(reached)} | {len(seen)} | {share(seen)} | {missed} |")
        all_lines += reached
        all_toggles += seen
    text.append(f"| all | {len(all_lines)} | {share(all_lines)} | {len(all_toggles)} | {share(all_toggles)} | |")
    return "\n".join(text), 100 * sum(all_lines) / max(len(all_lines), 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rtl.coverage", description=__doc__)
    parser.add_argument("--work", type=float, default=2, help="multiple of the benches' usual traffic")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--least", type=float, default=90, help="percent of lines")
    options = parser.parse_args()
    program = build(ROOT / "build" / "benches" / "coverage", coverage=True)
    runs = [(module, seed) for module in module_names() for seed in range(1, options.seeds + 1)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda run: bench(program, *run, options.work), runs))
    for run, (passed, text) in zip(runs, results):
        if not passed:
            raise SystemExit(f"{run[0]}, seed {run[1]}: {text}")
    counts = collections.Counter()
    for module, seed in runs:
        read(program.parent / f"{module}-{seed}" / "coverage.dat", counts)
    text, lines = report(counts)
    print(text)
    return int(lines < options.least)


if __name__ == "__main__":
    sys.exit(main())
