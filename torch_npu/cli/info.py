"""python -m torch_npu info: drivers, devices and their memory."""

import json

from torch_npu.cli.table import table


def add(commands) -> None:
    parser = commands.add_parser("info", help="drivers, devices, memory, and what went wrong")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=run)


def gather() -> dict:
    import torch

    import torch_npu
    from torch_npu._build_info import torch_version
    from torch_npu._info import driver_error, driver_setting, library_path

    devices = []
    for index in range(torch.npu.device_count()):
        try:
            properties = torch.npu.get_device_properties(index)
            free, total = torch.npu.mem_get_info(index)
            facts = {"name": properties.name, "vendor": properties.vendor, "driver": properties.driver}
            facts |= {"units": properties.multi_processor_count, "free_memory": free, "total_memory": total}
            facts |= {"commands": list(properties.commands), "error": ""}
        except RuntimeError as error:
            facts = {"name": "?", "vendor": "?", "driver": "?", "units": 0, "free_memory": 0, "total_memory": 0}
            facts |= {"commands": [], "error": str(error).splitlines()[0]}
        devices.append({"device": f"npu:{index}", **facts})
    return {
        "torch_npu": torch_npu.__version__,
        "torch": torch.__version__,
        "built_for_torch": torch_version,
        "TORCH_NPU_DRIVER": driver_setting(),
        "libraries": library_path(),
        "headers": torch_npu.include_path(),
        "drivers": torch_npu.drivers(),
        "devices": devices,
        "error": driver_error(),
    }


def run(options) -> int:
    from torch_npu._info import wrapped

    facts = gather()
    failed = bool(facts["error"]) or not facts["devices"] or any(d["error"] for d in facts["devices"])
    if options.json:
        print(json.dumps(facts, indent=2))
        return int(failed)
    print(f"torch_npu {facts['torch_npu']}, built for torch {facts['built_for_torch']}, running on {facts['torch']}")
    print(f"TORCH_NPU_DRIVER  {facts['TORCH_NPU_DRIVER']}")
    print(f"libraries         {facts['libraries']}")
    print(f"headers           {facts['headers']}")
    rows = []
    for d in facts["devices"]:
        if wrapped(d["driver"]):
            d["driver"] += " (wraps another driver)"
        memory = f"{d['free_memory'] >> 20} of {d['total_memory'] >> 20} MiB free"
        rows.append((d["device"], d["name"], d["driver"], d["units"], memory, " ".join(d["commands"]) or "none"))
    if rows:
        print()
        print(table(("device", "name", "driver", "units", "memory", "commands"), rows))
    for d in facts["devices"]:
        if d["error"]:
            print(f"\n{d['device']}: {d['error']}")
    if facts["error"]:
        print(f"\n{facts['error']}")
    elif not rows:
        print("\nno device: the drivers were loaded but have none")
    return int(failed)
