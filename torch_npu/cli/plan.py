"""python -m torch_npu plan: what a script asks of a chip, by command, and what a driver makes of it."""

import os
from pathlib import Path

from torch_npu.cli import script
from torch_npu.cli.driver_test import library_of
from torch_npu.console.command import FAILED, FINE, Failure, Outcome, UsageError, add_command


def add(commands) -> None:
    parser = add_command(
        commands,
        "plan",
        run,
        help="what a script asks of a chip, by command, and what a driver makes of it",
        example="plan --device ./libnpu_mychip.so --html plan.html train.py\nplan --device template plan.npt",
        description="Runs a script on the C model, keeps one example of each command, and gives those to a driver: "
        "taken, made from other commands, or left to the CPU, with the driver's own words, ranked by what native "
        "support would gain (docs/design/plan.md). The examples are tests: driver-test --from plan.npt. Instead of a "
        "script, the recording of an earlier plan may be given.",
    )
    default = os.environ.get("TORCH_NPU_DRIVER") or "cmodel"
    parser.add_argument("--device", default=default, help="the driver to ask (TORCH_NPU_DRIVER, or cmodel)")
    parser.add_argument("--out", default="plan.npt", metavar="FILE", help="where the examples are kept (%(default)s)")
    parser.add_argument("--html", metavar="FILE", help="write a page")
    script.add(parser)


def run(options) -> Outcome:
    from torch_npu import plan

    driver = library_of(options.device)
    if options.html and not Path(options.html).resolve().parent.is_dir():
        raise UsageError(f"expected a folder that exists, got {Path(options.html).resolve().parent}")
    status, file, ops = 0, options.script, None
    if not options.script.endswith(".npt"):
        file = options.out
        status, ops = record(options)
    try:
        made = plan.ask(file, driver, ops)
    except RuntimeError as problem:
        raise Failure(str(problem)) from None
    made.driver = options.device
    if not made.forms:
        raise Failure(f"{options.script}: nothing ran on the device, so there is nothing to plan")
    if options.html:
        made.save(options.html)
    text = str(made) + (f"\n\nwrote {options.html}" if options.html else "")
    bad = status or made.counts()["wrong"]
    return Outcome(made.facts() | {"script_status": status}, text + script.ended(status), FAILED if bad else FINE)


def record(options) -> tuple[int, dict[int, dict[str, int]]]:
    """The script's exit status, and of each example's number the ops that asked for such commands."""
    from torch_npu import plan, verification

    spec = plan.recording_spec(options.out)
    script.check(options.script, spec)
    status = script.run_loudly(options.script, options.arguments)
    report = verification.wrapper_report(spec)
    return status, {example["number"]: example["ops"] for example in report["examples"]}
