"""Where each moment of a run went, and who had the moments that a fallback took."""

from __future__ import annotations

from collections import defaultdict

from torch_npu.report.recording import Recording

# Of what happens at the same moment the first one counts: work that goes on while the host waits costs no time twice.
PLACES = ("device", "fallback", "transfer", "host")


def split(recording: Recording) -> tuple[dict[str, float], dict[str, float]]:
    """Microseconds by place, and of the fallbacks by name. Their sum is the wall time; with a simulated clock, device
    and transfer are the chip's lengths, and the host's own time is not in the sum, because it has another clock."""
    if recording.simulated:
        return _split_simulated(recording)
    changes = []
    for command in recording.commands:
        place = "transfer" if command.is_copy else "device"
        if command.fallback is not None:
            place = "fallback"
        changes += [(command.start, 1, place, None), (command.end, -1, place, None)]
    for op in recording.fallbacks:
        changes += [(op.start, 1, "fallback", op.name), (op.end, -1, "fallback", op.name)]
    changes.sort(key=lambda change: change[0])
    spent, of_ops = dict.fromkeys(PLACES, 0.0), defaultdict(float)
    active, names = dict.fromkeys(PLACES, 0), defaultdict(int)
    now = recording.begin
    for when, change, place, name in changes:
        when = min(max(when, recording.begin), recording.end)
        if when > now:
            current = next((p for p in PLACES if active[p]), "host")
            spent[current] += when - now
            inside = [n for n, count in names.items() if count]
            for n in inside if current == "fallback" else []:
                of_ops[n] += (when - now) / len(inside)
            now = when
        active[place] += change
        if name:
            names[name] += change
    spent["host"] += max(0.0, recording.end - now)
    return spent, dict(of_ops)


def _split_simulated(recording: Recording) -> tuple[dict[str, float], dict[str, float]]:
    spent, of_ops = dict.fromkeys(PLACES, 0.0), defaultdict(float)
    for command in recording.commands:
        if command.fallback is None:
            spent["transfer" if command.is_copy else "device"] += command.end - command.start
    for op in recording.fallbacks:
        spent["fallback"] += op.end - op.start
        of_ops[op.name] += op.end - op.start
    return spent, dict(of_ops)
