"""python -m torch_npu info: drivers, devices, their memory and what they can do, and what is missing."""

import json
from pathlib import Path
from typing import Any

from torch_npu.cli.doctor import COMMANDS
from torch_npu.console.command import Outcome, add_command
from torch_npu.console.table import table


def add(commands) -> None:
    add_command(
        commands,
        "info",
        run,
        help="drivers, devices, memory, and what went wrong",
        example="info\ninfo --json",
    )


DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()


def known_drivers() -> tuple[list[str], dict[str, str]]:
    """Drivers of hardware that are built, and those that are not, with the reason."""
    from torch_npu._info import built_drivers, library_path, wrapped

    built = [name for name in built_drivers() if not wrapped(name)]
    listed = Path(library_path()) / "drivers.json"  # written by CMake
    if not listed.exists():
        return built, {}
    facts = json.loads(listed.read_text())
    left_out = dict.fromkeys(facts["configured"], "not built yet: make build builds everything") | facts["left_out"]
    return built, {name: why for name, why in left_out.items() if name not in built}


def native_dtypes(index: int) -> list[str]:
    """Types that the device computes with itself, found by adding two numbers."""
    import torch

    import torch_npu

    found = []
    for name in DTYPES:
        try:
            with torch_npu.fallback.mode("error"):
                x = torch.ones(2, dtype=getattr(torch, name)).to(f"npu:{index}")
                (torch.logical_or if name == "bool" else torch.add)(x, x).cpu()
            found.append(name)
        except RuntimeError:
            pass
    return found


def gather() -> dict:
    import torch

    import torch_npu
    from torch_npu._build_info import torch_version
    from torch_npu._info import driver_error, driver_setting, library_path

    devices = []
    for index in range(torch_npu.npu.device_count()):
        try:
            properties = torch_npu.npu.get_device_properties(index)
            free, total = torch_npu.npu.mem_get_info(index)
            facts: dict[str, Any] = {"name": properties.name, "vendor": properties.vendor, "driver": properties.driver}
            facts |= {"units": properties.multi_processor_count, "free_memory": free, "total_memory": total}
            facts |= {"peak_flops": properties.peak_flops, "peak_bandwidth": properties.peak_bandwidth}
            facts |= {"commands": list(properties.commands), "dtypes": native_dtypes(index), "error": ""}
        except RuntimeError as error:
            facts = {"name": "?", "vendor": "?", "driver": "?", "units": 0, "free_memory": 0, "total_memory": 0}
            facts |= {"commands": [], "dtypes": [], "error": str(error).splitlines()[0]}
        facts["missing_commands"] = [name for name in COMMANDS if name not in facts["commands"]]
        facts["missing_dtypes"] = [name for name in DTYPES if name not in facts["dtypes"]]
        devices.append({"device": f"npu:{index}", **facts})
    built, left_out = known_drivers()
    return {
        "torch_npu": torch_npu.__version__,
        "torch": torch.__version__,
        "built_for_torch": torch_version,
        "TORCH_NPU_DRIVER": driver_setting(),
        "libraries": library_path(),
        "headers": torch_npu.include_path(),
        "built_drivers": built,
        "left_out_drivers": left_out,
        "drivers": torch_npu.drivers(),
        "devices": devices,
        "error": driver_error(),
    }


def run(options) -> Outcome:
    facts = gather()
    failed = bool(facts["error"]) or not facts["devices"] or any(d["error"] for d in facts["devices"])
    return Outcome(facts, lambda: text(facts), int(failed))


def text(facts: dict) -> str:
    from torch_npu._info import wrapped

    lines = [f"torch_npu {facts['torch_npu']}, built for torch {facts['built_for_torch']}, running on {facts['torch']}"]
    lines.append(f"TORCH_NPU_DRIVER  {facts['TORCH_NPU_DRIVER']}")
    lines.append(f"libraries         {facts['libraries']}")
    lines.append(f"headers           {facts['headers']}")
    lines.append(f"drivers           {', '.join(facts['built_drivers']) or 'none'}")
    lines += [f"left out          {name}: {why}" for name, why in facts["left_out_drivers"].items()]
    rows = []
    for d in facts["devices"]:
        driver = d["driver"] + (" (wraps another driver)" if wrapped(d["driver"]) else "")
        memory = f"{d['free_memory'] >> 20} of {d['total_memory'] >> 20} MiB free"
        rows.append((d["device"], d["name"], driver, d["units"], memory, " ".join(d["commands"]) or "none"))
    if rows:
        lines += ["", table(("device", "name", "driver", "units", "memory", "commands"), rows)]
    for d in facts["devices"]:
        if d["error"]:
            lines.append(f"\n{d['device']}: {d['error']}")
            continue
        lines.append(f"\n{d['device']} computes in {' '.join(d['dtypes']) or 'no type'}")
        if d["peak_flops"] and d["peak_bandwidth"]:
            peak = f"{d['peak_flops'] / 1e9:.4g} GFLOP/s of float32 and {d['peak_bandwidth'] / 1e9:.4g} GB/s"
            lines.append(f"{d['device']} announces {peak} at most")
        missing = d["missing_commands"] + d["missing_dtypes"]
        if missing:
            lines.append(f"{d['device']} leaves to the CPU: {' '.join(missing)}")
    if facts["error"]:
        lines.append(f"\n{facts['error']}")
    elif not rows:
        lines.append("\nno device: the drivers were loaded but have none")
    return "\n".join(lines)
