"""python -m torch_npu new-driver: a vendor's own driver project, which builds and passes the driver tests at once."""

import shlex
import sys
from pathlib import Path

from torch_npu.console.command import Failure, Outcome, UsageError, add_command


def add(commands) -> None:
    parser = add_command(
        commands,
        "new-driver",
        run,
        example="new-driver mychip\nnew-driver mychip --with async,to-c",
        help="write a driver project for your chip",
        description="Writes a folder with a complete driver in C, the contract's headers, a Makefile and a model to "
        "run. It builds with a C compiler alone and passes the driver tests as it is. Without --with every command is "
        "declined, so that models run on the CPU until you take one after the other; with it all of them are there, in "
        "plain C, to be replaced by your chip's one after the other (docs/driver-guide.md).",
    )
    parser.add_argument("name", help="of the driver: lower-case letters, digits and _")
    parser.add_argument(
        "--with",
        dest="parts",
        metavar="PARTS",
        help="interpreter: all commands; async: and a queue per stream; to-c: and programs as C for a compiler",
    )
    parser.add_argument("--out", metavar="FOLDER", help="where to write it (default: ./NAME)")


def run(options) -> Outcome:
    from torch_npu import include_path, new_driver
    from torch_npu._info import built_drivers

    folder = Path(options.out or options.name)
    try:
        new_driver.check_name(options.name, built_drivers())
        parts = new_driver.read_parts(options.parts) if options.parts else []
        files = new_driver.write(options.name, folder, Path(include_path()) / "npu", parts)
    except (ValueError, FileExistsError) as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise Failure(str(error)) from None
    python = f"PYTHON={shlex.quote(sys.executable)}"  # python3 of the PATH may be one without torch
    next_steps = [f"make -C {folder}", f"make -C {folder} test {python}", f"make -C {folder} run {python}"]
    lines = [f"wrote {len(files)} files:", *(f"  {file}" for file in files), "next:", *(f"  {s}" for s in next_steps)]
    return Outcome({"folder": str(folder), "files": [str(f) for f in files], "next": next_steps}, "\n".join(lines))
