"""Memory over time, from the history: two lines, and who had it at the highest point."""

from __future__ import annotations

from torch_npu.report.recording import Recording, user_line

POINTS = 1200  # of each line; more than a screen shows
TENSORS = 8


def over_time(recording: Recording) -> dict:
    allocated, reserved = recording.allocated, recording.reserved
    points = [(recording.begin, allocated, reserved)]
    peak, peak_time = allocated, recording.begin
    for event in recording.history:
        action, size = event["action"], event["size"]
        if action == "alloc":
            allocated += size
        elif action == "free_requested":
            allocated -= size
        elif action in ("segment_alloc", "segment_map"):
            reserved += size
        elif action in ("segment_free", "segment_unmap"):
            reserved -= size
        else:
            continue
        points.append((event["time"], allocated, reserved))
        if allocated > peak:
            peak, peak_time = allocated, event["time"]
    points.append((recording.end, allocated, reserved))
    return {
        "points": [[round(t, 1), a, r] for t, a, r in thin(points)],
        "peak": peak,
        "peak_time": round(peak_time, 1),
        "peak_reserved": max(r for _, _, r in points),
        "begin": recording.allocated,
        "allocations": sum(e["action"] == "alloc" for e in recording.history),
        "tensors": _live_at(recording, peak_time),
    }


def _live_at(recording: Recording, when: float) -> list[dict]:
    """The largest allocations of this run that were live then, those of one line together."""
    live: dict[int, dict] = {}
    for event in recording.history:
        if event["time"] > when:
            break
        if event["action"] == "alloc":
            live[event["addr"]] = event
        elif event["action"] == "free_requested":
            live.pop(event["addr"], None)
    lines: dict[tuple | None, list[int]] = {}
    for event in live.values():
        lines.setdefault(user_line(event.get("frames") or []), []).append(event["size"])
    rows = [{"line": line, "bytes": sum(sizes), "count": len(sizes)} for line, sizes in lines.items()]
    return sorted(rows, key=lambda row: -row["bytes"])[:TENSORS]


def thin(points: list[tuple]) -> list[tuple]:
    """Of every stretch of time the lowest and the highest point, in order: no peak is lost."""
    if len(points) <= POINTS:
        return points
    begin, length = points[0][0], max(points[-1][0] - points[0][0], 1e-9)
    stretches: dict[int, list[tuple]] = {}
    for point in points:
        stretches.setdefault(int((point[0] - begin) / length * POINTS / 4), []).append(point)
    kept = []
    for inside in stretches.values():
        chosen = {id(p): p for p in (inside[0], min(inside, key=_level), max(inside, key=_level), inside[-1])}
        kept += sorted(chosen.values(), key=lambda p: p[0])
    return kept


def _level(point: tuple) -> int:
    return point[1]
