"""python -m torch_npu verify: a script on two devices in lock-step. Exit status 1 at the first difference."""

import dataclasses
import traceback
from pathlib import Path

from torch_npu.cli import script
from torch_npu.console.command import Outcome, UsageError, add_command


def add(commands) -> None:
    parser = add_command(
        commands,
        "verify",
        run,
        example="verify --device rtl examples/lenet_digits.py\nverify --device ./libnpu_mychip.so model.py",
        help="run a script on two devices in lock-step and find the first difference",
        description="Runs a script with every command on two drivers, and compares (docs/verification.md).",
    )
    parser.add_argument("--reference", default="cmodel", help="a driver, or isa (default: cmodel in its exact mode)")
    parser.add_argument("--device", default="rtl", help="the driver to verify (%(default)s)")
    parser.add_argument("--exact", choices=("yes", "split", "no"), help="sums and functions bit for bit (default: yes)")
    parser.add_argument("--out", default=".", metavar="FOLDER", help="where a reproduction is written (%(default)s)")
    script.add(parser)


def run(options) -> Outcome:
    from torch_npu import fallback, verification

    try:
        out = str(Path(options.out).resolve())
        spec = verification.lockstep_spec(options.reference, options.device, options.exact, out)
    except ValueError as error:
        raise UsageError(str(error)) from None
    script.check(options.script, spec)
    status, error = script.run(options.script, options.arguments)
    report = verification.make_report(spec, error and error.__traceback__, fallback.report())
    if error and report.difference is None:
        traceback.print_exception(error)
    text = str(report)
    if report.difference is None:
        text += script.ended(status)
    facts = {"ok": report.ok, **dataclasses.asdict(report), "script_status": status}
    return Outcome(facts, text, int(bool(status) or not report.ok))
