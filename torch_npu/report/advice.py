"""What to do next, with what it would gain at most. Every figure was measured in this run."""

from __future__ import annotations

UNITS = {"compute": "multipliers", "memory": "memory"}
DOING = {"transfer": "moving less data in", "device": "tuning"}  # kinds of advice in the headline
WORTH = 0.02  # of the time: below that nobody would notice


def percent(share: float) -> str:
    """99.96 % is not 100 %: something is left."""
    value = 100 * share
    if 0 < value < 1 or 99 < value < 100:
        return f"{min(max(value, 0.1), 99.9):.1f} %"
    return f"{value:.0f} %"


def duration(us: float) -> str:
    if us < 1000:
        return f"{us:.3g} µs"
    return f"{us / 1e3:.3g} ms" if us < 999_500 else f"{us / 1e6:.3g} s"


def size(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def _place(row: dict) -> str:
    return f" ({row['lines'][0]['at']})" if row.get("lines") else ""


def rank(facts: dict) -> list[dict]:
    """{"do", "why", "us", "share"}, the largest gain first."""
    spent, total = facts["shares"]["time"], facts["total_us"]
    found = []
    for number, row in enumerate(facts["fallbacks"]):
        copies = row["to_host"] + row["to_device"]
        moved = size(row["to_host_bytes"] + row["to_device_bytes"])
        why = f"{row['calls']} {_calls(row['calls'])} took {duration(row['us'])}{_place(row)}"
        meanwhile = row["us"] - row["saved_us"]
        why += f", {duration(meanwhile)} of it while the device still worked; " if meanwhile > 0.1 * row["us"] else "; "
        why += f"{copies} transfers of {moved} would vanish. "
        if row["least_us"]:
            why += f"On the device, its memory alone takes {duration(row['least_us'])}."
        do = f"Implement {row['op']} next" if number == 0 else f"Implement {row['op']}"
        found.append({"kind": "fallback", "do": do, "why": why, "us": row["saved_us"]})
    if facts["counts"]["commands"] and not facts["simulated"] and spent["host"] > 0.1 * total:
        why = f"The device stood still for {duration(spent['host'])} while Python and PyTorch prepared its next work. "
        why += "Larger batches, torch.compile or torch.npu.graph give it more work per call."
        found.append({"kind": "host", "do": "Keep the device busy", "why": why, "us": spent["host"]})
    for row in facts["transfers"][:3]:
        what, way = row["op"], "to the host" if row["direction"] == "DtoH" else "to the device"
        copies = "1 copy" if row["calls"] == 1 else f"{row['calls']} copies"
        why = f"{copies} {way}, {size(row['bytes'])}{_place(row)}; the host waited {duration(row['wait_us'])}"
        why += " in them, which includes the work before." if row["direction"] == "DtoH" else "."
        found.append({"kind": "transfer", "do": f"Move less data in {what}", "what": what, "why": why, "us": row["us"]})
    found += _below_the_roof(facts["commands"])
    for entry in found:
        entry["share"] = entry["us"] / total
    kept = [e for e in found if e["share"] >= WORTH or e["kind"] == "fallback"]
    return sorted(kept, key=lambda e: -e["us"])[:8]


def _below_the_roof(commands: list[dict]) -> list[dict]:
    """Commands of one op and kind together, whatever their shapes, where half of the roof or more is missing."""
    groups: dict[tuple, list[dict]] = {}
    for row in commands:
        if 0 < row["of_roof"] < 0.5:
            groups.setdefault((row["op"], row["kind"]), []).append(row)
    found = []
    for (op, kind), rows in groups.items():
        lost = [row["count"] * row["median_us"] * (1 - row["of_roof"]) for row in rows]
        worst = rows[lost.index(max(lost))]
        rate = f"{worst['gflops']:.3g} GFLOP/s" if worst["bound"] == "compute" else f"{worst['gbps']:.3g} GB/s"
        roof = f"{percent(worst['of_roof'])} of what the {UNITS[worst['bound']]} would allow"
        calls = sum(row["count"] for row in rows)
        shapes = "shape" if len(rows) == 1 else "shapes"
        why = f"{calls} commands of {len(rows)} {shapes} stay below half of the roof; most is lost in "
        why += f"{worst['shape'] or 'a single value'}, {rate}: {roof}{_place(worst)}."
        what = f"{op} {kind}"
        found.append({"kind": "device", "do": f"Tune {what}", "what": what, "why": why, "us": sum(lost)})
    return found


def _calls(count: int) -> str:
    return "call" if count == 1 else "calls"


def headline(facts: dict) -> str:
    """The finding in one sentence: what ran on the device, and the first advice; the first fallback too."""
    spent, total = facts["shares"]["time"], facts["total_us"]
    if not facts["counts"]["commands"] and not facts["fallbacks"]:
        return "Nothing ran on the device."
    share = percent(spent["device"] / total)
    whose = " of the computed chip" if facts["simulated"] else ""
    start = f"{share} of the time{whose} ran on the device"
    first, parts = facts["advice"][0] if facts["advice"] else {"kind": "none"}, []
    if first["kind"] == "host":
        parts.append(f"it waited for the host {percent(first['share'])} of the time")
    elif first["kind"] in DOING:
        parts.append(f"{DOING[first['kind']]} {first['what']} would save up to {percent(first['share'])}")
    if not facts["fallbacks"]:
        return "; ".join([f"{start} and nothing fell back", *parts]) + "."
    row = facts["fallbacks"][0]
    parts.append(f"implementing {row['op']} next would save up to {percent(row['saved_share'])}")
    return "; ".join([start, *parts]) + "."
