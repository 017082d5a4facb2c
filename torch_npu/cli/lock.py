"""python -m torch_npu lock: fails when a script starts to run an op on the CPU, or no longer needs to."""

import shlex
import sys
from pathlib import Path

from torch_npu.cli import script
from torch_npu.console.command import FAILED, Failure, Outcome, UsageError, add_command


def add(commands) -> None:
    parser = add_command(
        commands,
        "lock",
        run,
        example="lock train.py\nlock --update train.py -- --epochs 1",
        help="check which ops of a script run on the CPU against torch_npu.lock",
        description="Runs a script and compares the ops that ran on the CPU with those of the lock file. Exit status 1 "
        "if there is a new one, or an entry that is no longer needed. Without a file, or with --update, it is written.",
    )
    parser.add_argument("--file", default="torch_npu.lock", help="the lock file (torch_npu.lock)")
    parser.add_argument("--update", action="store_true", help="write the file anew; comments behind ops are kept")
    script.add(parser)


def run(options) -> Outcome:
    from torch_npu import fallback, lock_file
    from torch_npu._info import driver_setting

    path = Path(options.file)
    try:
        if path.exists() and not options.update:
            lock_file.read(path)
    except ValueError as error:
        raise UsageError(f"{error}; --update writes the file anew") from None
    except OSError as error:
        raise UsageError(str(error)) from None
    script.check(options.script, driver_setting())
    with fallback.mode("quiet"):
        status = script.run_loudly(options.script, options.arguments)
    if status:
        raise Failure(f"the script ended with {status}: {path} is neither written nor compared")
    counts = fallback.report()
    ops = list(counts)
    facts = {"file": str(path), "ops": counts, "new": [], "gone": [], "written": False}
    if options.update or not path.exists():
        lock_file.write(path, ops)
        return Outcome(facts | {"written": True}, f"{path}: {len(ops)} ops run on the CPU")
    new, gone = lock_file.compare(path, ops)
    facts |= {"new": new, "gone": gone}
    if new or gone:
        command = shlex.join([options.script, *(["--"] if options.arguments else []), *options.arguments])
        print(lock_file.explain(path, new, gone, command), file=sys.stderr)
        return Outcome(facts, status=FAILED)
    return Outcome(facts, f"{path}: {len(ops)} ops run on the CPU, as it says")
