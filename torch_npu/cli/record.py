"""python -m torch_npu record: writes what a script gives to the device, and what it answers, to a file."""

import argparse
import os
import sys
import traceback
from pathlib import Path


def add(commands) -> None:
    parser = commands.add_parser(
        "record",
        help="record the commands of a script, for npu-replay",
        description="Runs a script and records its commands and data (docs/verification.md). npu-replay plays the file "
        "on any driver, without Python or PyTorch.",
    )
    default = os.environ.get("TORCH_NPU_DRIVER") or "cmodel"
    parser.add_argument("--driver", default=default, help="the driver to record (TORCH_NPU_DRIVER, or cmodel)")
    parser.add_argument("--crc", action="store_true", help="checksums of results instead of results: smaller files")
    parser.add_argument("file", help="the recording to write: out.npt")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    parser.set_defaults(run=run)


def run(options) -> int:
    from torch_npu import verification
    from torch_npu.cli import script

    if options.driver.count("[") != options.driver.count("]") or "," in options.driver:
        print(f"expected one driver, got {options.driver!r}", file=sys.stderr)
        return 2
    file = Path(options.file).resolve()
    spec = f"record:driver=[{options.driver}]:file=[{file}]:results={'crc' if options.crc else 'data'}"
    if problem := script.check(options.script, spec):
        print(problem, file=sys.stderr)
        return 2
    status, error = script.run(options.script, options.arguments)
    if error:
        traceback.print_exception(error)
    report = verification.wrapper_report(spec)
    for one in report["files"]:
        print(f"{one['file']}: {one['commands']} commands, {one['bytes']} bytes, recorded on {report['driver']}")
    return int(bool(status))
