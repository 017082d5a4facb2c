"""python -m torch_npu verify: a script on two devices in lock-step. Exit status 1 at the first difference."""

import argparse
import dataclasses
import json
import sys
import traceback
from pathlib import Path


def add(commands) -> None:
    parser = commands.add_parser(
        "verify",
        help="run a script on two devices in lock-step and find the first difference",
        description="Runs a script with every command on two drivers, and compares (docs/verification.md).",
    )
    parser.add_argument("--reference", default="cmodel", help="a driver, or isa (default: cmodel in its exact mode)")
    parser.add_argument("--device", default="rtl", help="the driver to verify (%(default)s)")
    parser.add_argument("--exact", choices=("yes", "split", "no"), help="float sums bit for bit (default: yes)")
    parser.add_argument("--out", default=".", metavar="FOLDER", help="where a reproduction is written (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the report, for programs")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    parser.set_defaults(run=run)


def run(options) -> int:
    from torch_npu import fallback, verification
    from torch_npu.cli import script

    try:
        out = str(Path(options.out).resolve())
        spec = verification.lockstep_spec(options.reference, options.device, options.exact, out)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if problem := script.check(options.script, spec):
        print(problem, file=sys.stderr)
        return 2
    status, error = script.run(options.script, options.arguments)
    report = verification.make_report(spec, error and error.__traceback__, fallback.report())
    if error and report.difference is None:
        traceback.print_exception(error)
    print(report)
    if status and report.ok:
        print(f"the script itself failed (exit status {status})")
    if options.json:
        facts = {"ok": report.ok, **dataclasses.asdict(report)}
        Path(options.json).write_text(json.dumps(facts, indent=2, default=str))
    return int(bool(status) or not report.ok)
