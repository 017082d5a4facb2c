"""A report for a terminal."""

from __future__ import annotations

from torch_npu.console.table import table
from torch_npu.report.advice import duration, percent, size

ROWS = 10


def text(facts: dict) -> str:
    total = facts["total_us"]
    lines = [facts["headline"], "", *(f"note: {note}" for note in facts["notes"])]
    spent = facts["shares"]["time"]
    parts = ", ".join(f"{place} {duration(us)} ({percent(us / total)})" for place, us in spent.items() if us)
    lines.append(f"time: {parts}")
    for what in ("ops", "flops", "bytes"):
        share = facts["shares"][what]
        whole = sum(share.values())
        if whole:
            lines.append(f"{what}: {percent(share['device'] / whole)} on the device")
    lines.append(f"peak memory: {size(facts['memory']['peak'])}; {facts['counts']['commands']} commands")
    if facts["advice"]:
        lines += ["", "what to do next, and what it would gain at most"]
        lines += [f"  {percent(e['share']):>6}  {e['do']}: {e['why']}" for e in facts["advice"]]
    rows = [
        (
            r["op"],
            r["where"],
            r["calls"],
            duration(r["us"]),
            percent(r["share"]),
            r["lines"][0]["at"] if r["lines"] else "",
        )
        for r in facts["ops"][:ROWS]
    ]
    return "\n".join([*lines, "", table(("op", "ran on", "calls", "time", "share", "line"), rows)])
