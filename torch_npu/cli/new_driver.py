"""python -m torch_npu new-driver: a vendor's own driver project, which builds and passes the driver tests at once."""

import json
import sys
from pathlib import Path


def add(commands) -> None:
    parser = commands.add_parser(
        "new-driver",
        help="write a driver project for your chip",
        description="Writes a folder with a complete driver in C, the contract's headers, a Makefile and a model to "
        "run. It builds with a C compiler alone and passes the driver tests as it is; every command is declined, "
        "so that models run on the CPU until you take one after the other (docs/driver-guide.md).",
    )
    parser.add_argument("name", help="of the driver: lower-case letters, digits and _")
    parser.add_argument("--out", metavar="FOLDER", help="where to write it (default: ./NAME)")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=run)


def run(options) -> int:
    from torch_npu import include_path, new_driver
    from torch_npu._info import built_drivers

    folder = Path(options.out or options.name)
    try:
        new_driver.check_name(options.name, built_drivers())
        files = new_driver.write(options.name, folder, Path(include_path()) / "npu")
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, ValueError | FileExistsError) else 1
    next_steps = [f"make -C {folder}", f"make -C {folder} test", f"make -C {folder} run"]
    if options.json:
        print(json.dumps({"folder": str(folder), "files": [str(f) for f in files], "next": next_steps}, indent=2))
        return 0
    print(f"wrote {len(files)} files:")
    for file in files:
        print(f"  {file}")
    print("next:")
    for step in next_steps:
        print(f"  {step}")
    return 0
