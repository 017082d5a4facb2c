"""The run as lanes of slices, few enough for a page: where there are too many, neighbours become one."""

from __future__ import annotations

from collections import defaultdict

from torch_npu.report.recording import Op, Recording, is_fallback

STRETCHES = 240  # of the strip above the lanes
SLICES = 12_000  # on the page, all lanes together
PLACES = ("host", "device", "transfer", "fallback", "range")


def lanes(recording: Recording) -> dict:
    """{"names": [...], "lanes": [{"name", "kind", "slices": [start, length, name, place, count, ...]}]}: tenths of a
    microsecond since the beginning; a slice with a count above 1 stands for that many, by the longest one's name."""
    raw: dict[tuple, list[tuple]] = defaultdict(list)
    threads: dict[int, str] = {}
    backward = {op.thread for op in recording.ops if op.forward_thread and op.forward_thread != op.thread}
    for op in recording.ops:
        if op.end < recording.begin or op.start > recording.end:
            continue
        if op.is_range and not is_fallback(op):
            if _plain_parent(op) is None:
                raw[0, "ranges", op.thread].append((op.start, op.end, op.name, "range"))
            continue
        if op.thread not in threads:
            main = "backward" if op.thread in backward else "Python"
            taken = sum(name.startswith(main) for name in threads.values())
            threads[op.thread] = f"{main} thread" + (f" {taken + 1}" if taken else "")
        key = 1, threads[op.thread], op.thread
        if is_fallback(op):
            raw[key].append((op.start, op.end, op.name, "fallback"))
        elif _plain_parent(op) is None:
            raw[key].append((op.start, op.end, op.name, "host"))
    for command in recording.commands:
        place = "transfer" if command.is_copy else "device"
        if command.fallback is not None:
            place = "fallback"
        key = 2, f"npu:{command.device}, stream {command.stream}", command.stream
        raw[key].append((command.start, command.end, f"{command.op} {command.kind}", place))
    resolution, limit = 0.0, recording.wall / 100
    made = {key: _merged(slices, resolution) for key, slices in raw.items()}
    while sum(map(len, made.values())) > SLICES and resolution < limit:
        resolution = max(2 * resolution, recording.wall / 200_000)
        made = {key: _merged(slices, resolution) for key, slices in raw.items()}
    names: dict[str, int] = {}
    out = []
    for key in sorted(made):
        flat = []
        for start, end, name, place, count in made[key]:
            flat += [round(10 * start), round(10 * (end - start))]
            flat += [names.setdefault(name, len(names)), PLACES.index(place), count]
        out.append({"name": key[1], "kind": ("ranges", "host", "device")[key[0]], "slices": flat})
    made = {"names": list(names), "places": PLACES, "lanes": out, "resolution": round(resolution, 3)}
    return made | {"busy": busy(recording)}


def busy(recording: Recording) -> list[float]:
    """Which part of each stretch of the run the device was at work, all streams together."""
    length, bins = max(recording.wall, 1e-9) / STRETCHES, [0.0] * STRETCHES
    until = recording.begin
    for command in sorted(recording.commands, key=lambda c: c.start):
        start, end = max(command.start, until), min(command.end, recording.end)
        until = max(until, end)
        place = int((start - recording.begin) / length)
        while place < STRETCHES and recording.begin + place * length < end:
            left = recording.begin + place * length
            bins[place] += max(0.0, min(end, left + length) - max(start, left)) / length
            place += 1
    return [round(min(1.0, value), 3) for value in bins]


def _plain_parent(op: Op) -> Op | None:
    """The op around this one; ranges do not count."""
    parent = op.parent
    while parent is not None and parent.is_range:
        parent = parent.parent
    return parent


def _merged(slices: list[tuple], resolution: float) -> list[tuple]:
    """Slices of one place that are shorter than the resolution become one with the one before, if it is that near."""
    out: list[list] = []
    last: dict[str, list] = {}  # place to its last slice: [start, end, name, place, count, longest]
    for start, end, name, place in sorted(slices):
        before = last.get(place)
        if before is not None and end - start < resolution and start - before[1] < resolution:
            before[1] = max(before[1], end)
            before[4] += 1
            if end - start > before[5]:
                before[2], before[5] = name, end - start
            continue
        last[place] = [start, end, name, place, 1, end - start]
        out.append(last[place])
    return [tuple(row[:5]) for row in out]
