"""A conformance run as a whole: totals, the share without fallback, and whether it counts as passed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from torch_npu.console.table import table
from torch_npu.testing.exceptions import ACCEPTED, Accepted
from torch_npu.testing.result import HOW, STATUSES, Result

# What has to run without fallback, of the ops that coverage.in_scope names.
TARGET = 0.95


@dataclass
class Run:
    """Results and what they were measured with."""

    facts: dict[str, Any]
    results: list[Result]
    stale: list[Accepted] = field(default_factory=list)  # accepted failures that passed

    def as_dict(self) -> dict[str, Any]:
        return {"facts": self.facts, "results": [r.as_dict() for r in self.results]}

    def save(self, path: str) -> None:
        with open(path, "w") as file:
            json.dump(self.as_dict(), file, indent=1)

    @classmethod
    def read(cls, path: str) -> Run:
        with open(path) as file:
            content = json.load(file)
        return cls(content["facts"], [Result(**r) for r in content["results"]])

    def excuse(self, accepted: tuple[Accepted, ...] = ACCEPTED) -> None:
        """Marks the failures that are accepted, and finds entries that are no longer needed.

        Only a run of all samples with gradients can show that an entry is no longer needed.
        """
        reasons = {(a.database, a.name, a.dtype): a for a in accepted}
        complete = self.facts.get("grad") and not self.facts.get("limit")
        self.stale = []
        for result in self.results:
            entry = reasons.get((result.database, result.name, result.dtype))
            failed = result.status not in ("passed", "skipped")
            result.excused = entry.reason if entry and failed else ""
            if entry and not failed and complete:
                self.stale.append(entry)

    @property
    def failures(self) -> list[Result]:
        return [r for r in self.results if r.failed]

    @property
    def ok(self) -> bool:
        return not self.failures and not self.stale

    def dtypes(self) -> list[str]:
        return list(dict.fromkeys(r.dtype for r in self.results))

    def databases(self) -> list[str]:
        return list(dict.fromkeys(r.database for r in self.results))

    def ran_in_scope(self, dtype: str | None = None) -> dict[str, set[str]]:
        """Name of each op that has to run without fallback and ran, to the ops in it that fell back (all dtypes)."""
        from torch_npu.testing.coverage import in_scope

        found: dict[str, set[str]] = {}
        for r in self.results:
            if r.database == "ops" and r.how and in_scope(r.name) and dtype in (None, r.dtype):
                found.setdefault(r.name, set()).update(r.fallbacks)
        return found

    def share(self, dtype: str | None = None) -> float | None:
        """The share of ops in scope that ran without fallback; None if none ran."""
        found = self.ran_in_scope(dtype)
        return sum(not fallbacks for fallbacks in found.values()) / len(found) if found else None


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def totals(run: Run) -> list[tuple[str, str, Counter]]:
    """Per database and dtype: how many results of each status, and of each way to run."""
    counts: dict[tuple[str, str], Counter] = {}
    for r in run.results:
        counter = counts.setdefault((r.database, r.dtype), Counter())
        counter[r.status] += 1
        counter["excused"] += bool(r.excused)
        counter[r.how] += 1
    return [(database, dtype, counter) for (database, dtype), counter in counts.items()]


def _line(text: str, width: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 3] + "..."


def failure_line(r: Result) -> str:
    return f"{r.status:8} {r.name} ({r.dtype}): {_line(r.message)}"


def text(run: Run) -> str:
    """The summary that the command prints."""
    out: list[str] = []
    for r in sorted(run.failures, key=lambda r: (r.status, r.database, r.name)):
        out.append(failure_line(r))
    for r in run.results:
        if r.excused:
            out.append(f"accepted {r.name} ({r.dtype}), {r.status}: {r.excused}")
    for entry in run.stale:
        out.append(f"stale    {entry.name} ({entry.dtype}) passes now: remove it from torch_npu/testing/exceptions.py")
    if out:
        out.append("")
    header = ("database", "dtype", *STATUSES, *HOW, "no fallback in scope")
    rows = []
    for database, dtype, count in totals(run):
        share = _percent(run.share(dtype)) if database == "ops" else ""
        rows.append((database, dtype, *(count[s] for s in STATUSES), *(count[h] for h in HOW), share or "-"))
    out.append(table(header, rows))
    out.append("")
    sums = Counter()
    for r in run.results:
        for key in ("samples", "gradients", "forms", "random", "by_truth", "refused"):
            sums[key] += getattr(r, key)
    out.append(
        f"{sums['samples']} samples, {sums['gradients']} with gradients, {sums['forms']} more in place or with out=; "
        f"{sums['random']} random ones compared in shape only, {sums['by_truth']} decided by double precision, "
        f"{sums['refused']} refused by the CPU itself"
    )
    out += _coverage_lines(run)
    return "\n".join(out)


def _coverage_lines(run: Run) -> list[str]:
    found = run.ran_in_scope()
    if not found:
        return []
    falling = {name: ops for name, ops in sorted(found.items()) if ops}
    share = run.share()
    verdict = "met" if share >= TARGET else "missed"
    out = [
        f"{_percent(share)} of {len(found)} ops outside linalg, fft, sparse and signal windows run without fallback "
        f"in every dtype above (target {100 * TARGET:.0f} %: {verdict})"
    ]
    out += [f"  falls back: {name} ({_line(', '.join(sorted(ops)), 160)})" for name, ops in falling.items()]
    return out
