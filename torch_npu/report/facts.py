"""Everything that a report says, as plain numbers and texts."""

from __future__ import annotations

import dataclasses
import linecache
import statistics
import time
from collections import defaultdict
from pathlib import Path

import torch

import torch_npu
from torch_npu import legalisation
from torch_npu.console.table import some
from torch_npu.report import advice, memory, peaks, shares, timeline
from torch_npu.report.profile import RANGE, Command, Profile, line_of

COMMANDS = 400  # rows of the roofline; the rest is summed up in the last
LINES = 4  # per op


def gather(profile: Profile, title: str, steps: int = 1) -> dict:
    """Everything that a report says of a profile."""
    index = profile.device.index
    properties = torch_npu.npu.get_device_properties(index)
    peak = peaks.find(index, profile.simulated, profile.commands)
    spent, saved = shares.split(profile)
    total = sum(spent.values()) or 1.0
    facts = {
        "title": title,
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "torch": torch.__version__,
        "torch_npu": torch_npu.__version__,
        "driver": properties.driver,
        "device": f"npu:{index}",
        "device_name": properties.name,
        "simulated": profile.simulated,
        "threads": torch.get_num_threads(),
        "steps": steps,
        "wall_us": round(profile.wall, 1),
        "total_us": round(total, 1),
        "peak": peak,
        "notes": profile.notes + _made_of_others(),
        "legalised": [dataclasses.asdict(decision) for decision in legalisation.report() if decision.runs],
        "shares": _shares(profile, spent),
        "fallbacks": _fallbacks(profile, saved, total, peak),
        "transfers": _transfers(profile),
        "commands": _commands(profile.commands, peak, total),
        "ops": _ops(profile, saved, total),
        "memory": memory.over_time(profile),
        "timeline": timeline.lanes(profile),
    }
    facts["counts"] = {
        "commands": sum(not c.is_copy for c in profile.commands),
        "copies": sum(c.is_copy for c in profile.commands),
        "fallbacks": len(profile.fallbacks),
        "counted": profile.fallback_counts,
    }
    facts["advice"] = advice.rank(facts)
    facts["headline"] = advice.headline(facts)
    return facts


def _made_of_others() -> list[str]:
    """One sentence for those who build the chip, if its driver refuses something."""
    made = [decision for decision in legalisation.report() if decision.runs and decision.rules]
    if not made:
        return []
    kinds = some(sorted({decision.command.split(" ", 1)[0] for decision in made}))
    return [
        f"{sum(decision.runs for decision in made)} commands that the driver refuses ({kinds}) were made from others "
        "since the start; python -m torch_npu plan says what native support would gain"
    ]


def _shares(profile: Profile, spent: dict[str, float]) -> dict:
    own = [c for c in profile.commands if c.fallback is None]
    device_ops = {id(c.owner) if c.owner else id(c) for c in own if not c.is_copy}
    moved = sum(c.bytes for c in profile.commands if c.fallback is not None)
    return {
        "time": {place: round(us, 1) for place, us in spent.items()},
        "ops": {"device": len(device_ops), "fallback": len(profile.fallbacks)},
        "flops": {
            "device": sum(c.flops for c in own),
            "fallback": sum(_flops_around(op) for op in profile.fallbacks),
        },
        "bytes": {
            "device": sum(c.bytes for c in own if not c.is_copy),
            "fallback": moved,
            "transfer": sum(c.bytes for c in own if c.is_copy),
        },
    }


def _short(value: float) -> float:
    """Four digits: small rates stay above zero, which axes of logarithms need."""
    return float(f"{value:.4g}")


def _flops_around(op) -> int:
    """PyTorch's count of the products of the op that fell back."""
    while op is not None and not op.flops:
        op = op.parent
    return op.flops if op is not None else 0


def show_line(line: tuple[str, int, str]) -> dict:
    """For the page: a short place, and what stands there."""
    file, number, function = line
    near = "near " if function.endswith(", near") else ""
    code = linecache.getline(file, number).strip()
    place = f"{near}{Path(file).name}:{number}"
    return {"at": place, "in": function.removesuffix(", near"), "file": file, "code": code[:120]}


def _most_frequent(lines: list[tuple | None]) -> list[dict]:
    counts: dict[tuple, int] = defaultdict(int)
    for line in lines:
        if line is not None:
            counts[line] += 1
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    return [{**show_line(line), "count": count} for line, count in ranked[:LINES]]


def _fallbacks(profile: Profile, saved: dict[str, float], total: float, peak: dict) -> list[dict]:
    rows: dict[str, dict] = {}
    lines: dict[str, list] = defaultdict(list)
    for op in profile.fallbacks:
        row = rows.setdefault(op.name, {"op": op.name.removeprefix(RANGE), "calls": 0, "us": 0.0, "flops": 0})
        row |= {"to_host": 0, "to_host_bytes": 0, "to_device": 0, "to_device_bytes": 0, "copies_us": 0.0} | row
        row["calls"] += 1
        row["us"] += op.end - op.start
        row["flops"] += _flops_around(op)
        lines[op.name].append(line_of(op))
    for command in profile.commands:
        if command.fallback is None or not command.is_copy:
            continue
        row = rows[command.fallback.name]
        way = "to_host" if command.kind == "DtoH" else "to_device"
        row[way] += 1
        row[f"{way}_bytes"] += command.bytes
        row["copies_us"] += command.end - command.start
    for name, row in rows.items():
        row["saved_us"] = saved.get(name, 0.0)
        row["saved_share"] = row["saved_us"] / total
        # Not below: what it reads and writes has to pass the device's memory once.
        least = (row["to_host_bytes"] + row["to_device_bytes"]) / peak["bandwidth"] * 1e6 if peak["bandwidth"] else 0.0
        row["least_us"] = least
        row["lines"] = _most_frequent(lines[name])
        for key in ("us", "copies_us", "saved_us", "least_us"):
            row[key] = round(row[key], 1)
    return sorted(rows.values(), key=lambda row: -row["saved_us"])


def _transfers(profile: Profile) -> list[dict]:
    """Copies between host and device outside of fallbacks, by op and direction; `wait_us`: the host stood still."""
    rows: dict[tuple, dict] = {}
    lines: dict[tuple, list] = defaultdict(list)
    for command in profile.commands:
        if not command.is_copy or command.fallback is not None or command.kind == "DtoD":
            continue
        key = command.kind, _outer_name(command)
        row = rows.setdefault(
            key, {"direction": key[0], "op": key[1], "calls": 0, "bytes": 0, "us": 0.0, "wait_us": 0.0}
        )
        row["calls"] += 1
        row["bytes"] += command.bytes
        row["us"] += command.end - command.start
        row["wait_us"] += command.call_end - command.call_start
        lines[key].append(line_of(command.owner))
    for key, row in rows.items():
        row["lines"] = _most_frequent(lines[key])
        row["us"], row["wait_us"] = round(row["us"], 1), round(row["wait_us"], 1)
    return sorted(rows.values(), key=lambda row: -max(row["us"], row["wait_us"]))


def _outer_name(command: Command) -> str:
    """The op that a person wrote: aten::item rather than aten::_local_scalar_dense."""
    op, name = command.owner, command.op
    while op is not None and not op.is_range:
        name, op = op.name, op.parent
    return name


def _commands(commands: list[Command], peak: dict, total: float) -> list[dict]:
    """Commands of one op, kind and shape together, with how near they come to the roof."""
    groups: dict[tuple, list[Command]] = defaultdict(list)
    for command in commands:
        if not command.is_copy:
            groups[command.op, command.kind, command.shape, command.bytes, command.flops].append(command)
    rows = []
    for (op, kind, shape, size, flops), members in groups.items():
        spent = sum(c.end - c.start for c in members)
        # Of equal commands the one in the middle counts: what once disturbed the machine is nothing to tune.
        median = statistics.median_low(c.end - c.start for c in members)
        seconds = len(members) * max(median, 1e-3) / 1e6
        of_multipliers = flops / peak["flops"] if peak["flops"] else 0.0  # seconds
        of_memory = size / peak["bandwidth"] if peak["bandwidth"] else 0.0
        known = peak["flops"] and peak["bandwidth"]
        roof = len(members) * max(of_multipliers, of_memory) if known else 0.0
        bound = "compute" if of_multipliers > of_memory else "memory"
        rows.append(
            {
                "op": op,
                "kind": kind,
                "shape": shape,
                "count": len(members),
                "us": round(spent, 3),
                "median_us": round(median, 3),
                "share": spent / total,
                "bytes": size,
                "flops": flops,
                "gflops": _short(flops * len(members) / seconds / 1e9),
                "gbps": _short(size * len(members) / seconds / 1e9),
                "of_roof": _short(roof / seconds),
                "bound": bound,
                "cycles": sum(c.cycles for c in members) // len(members),
                "lines": _most_frequent([line_of(c.owner) for c in members])[:2],
            }
        )
    rows.sort(key=lambda row: -row["us"])
    return rows[:COMMANDS]


def _ops(profile: Profile, saved: dict[str, float], total: float) -> list[dict]:
    """The table: every op with its commands, every fallback with the time that only it had, every transfer."""
    rows: dict[tuple, dict] = {}
    lines: dict[tuple, list] = defaultdict(list)
    owners: dict[tuple, set] = defaultdict(set)

    def row_of(op: str, where: str, kind: str) -> dict:
        fresh = {"op": op, "where": where, "kind": kind, "calls": 0, "commands": 0, "us": 0.0, "bytes": 0, "flops": 0}
        return rows.setdefault((op, where, kind), fresh)

    for command in profile.commands:
        if command.fallback is not None:
            continue
        where = "transfer" if command.is_copy and command.kind != "DtoD" else "device"
        key = _outer_name(command) if where == "transfer" else command.op, where, command.kind
        row = row_of(*key)
        row["commands"] += 1
        row["us"] += command.end - command.start
        row["bytes"] += command.bytes
        row["flops"] += command.flops
        owners[key].add(id(command.owner) if command.owner else id(command))
        lines[key].append(line_of(command.owner))
    for op in profile.fallbacks:
        key = op.name.removeprefix(RANGE), "fallback", "CPU"
        row = row_of(*key)
        row["us"] = saved.get(op.name, 0.0)
        row["flops"] += _flops_around(op)
        owners[key].add(id(op))
        lines[key].append(line_of(op))
    for command in profile.commands:
        if command.fallback is not None:
            row_of(command.fallback.name.removeprefix(RANGE), "fallback", "CPU")["bytes"] += command.bytes
    for key, row in rows.items():
        row["calls"] = len(owners[key])
        row["share"] = row["us"] / total
        seconds = max(row["us"], 1e-3) / 1e6
        row["gbps"], row["gflops"] = _short(row["bytes"] / seconds / 1e9), _short(row["flops"] / seconds / 1e9)
        row["us"] = round(row["us"], 1)
        row["lines"] = _most_frequent(lines[key])
    return sorted(rows.values(), key=lambda row: -row["us"])
