"""The most that the device can do: what its driver announces, else what its chip's file says, else measured here."""

from __future__ import annotations

import re
from pathlib import Path

import torch


def announced(index: int) -> dict | None:
    properties = torch.npu.get_device_properties(index)
    if not properties.peak_flops or not properties.peak_bandwidth:
        return None
    return {
        "flops": properties.peak_flops,
        "bandwidth": properties.peak_bandwidth,
        "source": f"announced by the driver {properties.driver}",
    }


def of_chip(index: int) -> dict | None:
    """From the file that the C model predicts times by."""
    from torch_npu import drivers, whatif

    options = [d["options"] for d in drivers() if f"npu:{index}" in d["devices"] and d["name"] == "cmodel"]
    found = re.search(r"\bchip=(?:\[([^\]]+)\]|([^:]+))", options[0]) if options else None
    if found is None:
        return None
    path = Path(found[1] or found[2])
    chip = whatif.flat(path.read_text())
    multipliers = chip.get("matrix.rows", 0) * chip.get("matrix.columns", 0) / chip.get("matrix.f32_passes", 1)
    flops, bandwidth = 2 * multipliers * chip.get("clock_mhz", 0) * 1e6, chip.get("memory.dram_gbps", 0) * 1e9
    if not flops or not bandwidth:
        return None
    return {"flops": flops, "bandwidth": bandwidth, "source": f"of {path.name}, float32"}


def measured(index: int) -> dict:
    """The best of a few large products and copies of float32."""
    start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))

    def best(call, rounds: int) -> float:
        times = []
        for _ in range(rounds):
            start.record()
            call()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        return min(times[1:])

    # What the run has left on the device decides: small memories have room for less, and caches make less look faster.
    room = torch.npu.mem_get_info(index)[0] // 4
    mebibytes = max(1, min(64, room >> 20))
    side = 1024 if mebibytes >= 8 else 256
    with torch.npu.device(index), torch.no_grad():
        a = torch.full((side, side), 0.5, device="npu")
        product = best(lambda: a @ a, 6)
        source, target = (torch.zeros(mebibytes << 18, device="npu") for _ in range(2))
        copy = best(lambda: torch.add(source, 1, out=target), 6)
    what = f"a product of {side} x {side} and a sum of {mebibytes} MiB"
    return {
        "flops": 2 * side**3 / product,
        "bandwidth": 2 * source.nbytes / copy,
        "source": f"measured here, because the driver announces none: {what}",
    }


def best_of(commands: list) -> dict:
    """Where nothing announces a peak and measuring would be simulated for minutes: the best of this run."""
    timed = [c for c in commands if c.end > c.start and not c.is_copy]
    return {
        "flops": max((c.flops / (c.end - c.start) * 1e6 for c in timed), default=0.0),
        "bandwidth": max((c.bytes / (c.end - c.start) * 1e6 for c in timed), default=0.0),
        "source": "the best that a command of this run reached, because the driver announces none"
        if timed
        else "not known: the driver announces none, and no command ran",
    }


def find(index: int, simulated: bool, commands: list) -> dict:
    """{"flops": per second, "bandwidth": bytes per second, "source": in words}"""
    found = announced(index) or of_chip(index)
    if found is None:
        found = best_of(commands)
        if not simulated and "MATMUL" in _commands(index):
            # On a busy machine a product of the run may have been luckier than those that were timed for this.
            large = best_of([c for c in commands if c.flops > 1e7])["flops"]
            try:
                found = measured(index)
                found["flops"] = max(found["flops"], large)
            except RuntimeError:  # of a device whose memory is full, or that the run has left in an error
                found["source"] = "the best that a command of this run reached, because none could be measured"
    return found


def _commands(index: int) -> tuple[str, ...]:
    return tuple(torch.npu.get_device_properties(index).commands)
