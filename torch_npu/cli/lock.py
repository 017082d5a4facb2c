"""python -m torch_npu lock: fails when a script starts to run an op on the CPU, or no longer needs to."""

import argparse
import sys
import traceback
from pathlib import Path


def add(commands) -> None:
    parser = commands.add_parser(
        "lock",
        help="check which ops of a script run on the CPU against torch_npu.lock",
        description="Runs a script and compares the ops that ran on the CPU with those of the lock file. Exit status 1 "
        "if there is a new one, or an entry that is no longer needed. Without a file, or with --update, it is written.",
    )
    parser.add_argument("--file", default="torch_npu.lock", help="the lock file (torch_npu.lock)")
    parser.add_argument("--update", action="store_true", help="write the file anew; comments behind ops are kept")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    parser.set_defaults(run=run)


def run(options) -> int:
    from torch_npu import fallback, lock_file
    from torch_npu._info import driver_setting
    from torch_npu.cli import script

    path = Path(options.file)
    try:
        if path.exists():
            lock_file.read(path)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if problem := script.check(options.script, driver_setting()):
        print(problem, file=sys.stderr)
        return 2
    with fallback.mode("quiet"):
        status, error = script.run(options.script, options.arguments)
    if error:
        traceback.print_exception(error)
    if status:
        print(f"the script ended with {status}: {path} is neither written nor compared", file=sys.stderr)
        return 1
    ops = list(fallback.report())
    if options.update or not path.exists():
        lock_file.write(path, ops)
        print(f"{path}: {len(ops)} ops run on the CPU")
        return 0
    new, gone = lock_file.compare(path, ops)
    if new or gone:
        print(lock_file.explain(path, new, gone), file=sys.stderr)
        return 1
    print(f"{path}: {len(ops)} ops run on the CPU, as it says")
    return 0
