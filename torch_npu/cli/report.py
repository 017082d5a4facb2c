"""python -m torch_npu report: what of a script runs on the device, how fast, and what to do next."""

from pathlib import Path

from torch_npu.cli import script
from torch_npu.console.command import FAILED, FINE, Failure, Outcome, UsageError, add_command
from torch_npu.console.progress import Progress


def add(commands) -> None:
    parser = add_command(
        commands,
        "report",
        run,
        help="what of a script runs on the device, how fast, and what to do next",
        example="report examples/lenet_digits.py --html report.html\nreport train.py --range step -- --epochs 1",
        description="Runs a script under the profiler and says how much of its ops, FLOPs, bytes and time the device "
        "has, which fallback to implement next and what that would gain (docs/seeing-inside.md). --html writes a page "
        "with charts that needs no network.",
    )
    parser.add_argument("--html", metavar="FILE", help="write the page")
    parser.add_argument(
        "--range",
        metavar="NAME",
        help="measure from the first to the last torch.profiler.record_function(NAME), each a step",
    )
    parser.add_argument("--title", help="of the page (the script's name)")
    script.add(parser)


def run(options) -> Outcome:
    from torch_npu import report
    from torch_npu._info import driver_setting

    if options.html and not Path(options.html).resolve().parent.is_dir():
        raise UsageError(f"expected a folder that exists, got {Path(options.html).resolve().parent}")
    script.check(options.script, driver_setting())
    with Progress(3) as progress:
        try:
            with report.record() as recording:
                status = script.run_loudly(options.script, options.arguments)
                progress.step("reading the profile")  # at the end of this block
        except RuntimeError as error:
            raise Failure(str(error)) from None
        progress.step("counting")
        try:
            steps = recording.keep_range(options.range) if options.range else recording.keep_device_work()
        except ValueError as error:
            raise Failure(str(error)) from None
        made = report.Report(report.gather(recording, title=options.title or Path(options.script).name, steps=steps))
        progress.step("writing")
        if options.html:
            made.save(options.html)
    text = str(made) + (f"\n\nwrote {options.html}" if options.html else "")
    facts = made.facts | {"script_status": status}
    return Outcome(facts, text + script.ended(status), FAILED if status else FINE)
