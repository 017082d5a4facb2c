"""python -m torch_npu record: writes what a script gives to the device, and what it answers, to a file."""

import os
from pathlib import Path

from torch_npu.cli import script
from torch_npu.console.command import Outcome, UsageError, add_command


def add(commands) -> None:
    parser = add_command(
        commands,
        "record",
        run,
        example="record --driver cmodel:mode=exact lenet.npt examples/lenet_digits.py\n"
        "record --driver rtl --crc out.npt model.py",
        help="record the commands of a script, for npu-replay",
        description="Runs a script and records its commands and data (docs/verification.md). npu-replay plays the file "
        "on any driver, without Python or PyTorch. To compare other drivers bit for bit, record the C model in its "
        "exact mode: its fast one rounds sums differently.",
    )
    default = os.environ.get("TORCH_NPU_DRIVER") or "cmodel"
    parser.add_argument("--driver", default=default, help="the driver to record (TORCH_NPU_DRIVER, or cmodel)")
    parser.add_argument("--crc", action="store_true", help="checksums of results instead of results: smaller files")
    parser.add_argument("file", help="the recording to write: out.npt")
    script.add(parser)


def run(options) -> Outcome:
    from torch_npu import verification

    if options.driver.count("[") != options.driver.count("]") or "," in options.driver:
        raise UsageError(f"expected one driver, got {options.driver!r}")
    file = Path(options.file).resolve()
    spec = f"record:driver=[{options.driver}]:file=[{file}]:results={'crc' if options.crc else 'data'}"
    script.check(options.script, spec)
    status = script.run_loudly(options.script, options.arguments)
    report = verification.wrapper_report(spec)
    on = f"recorded on {report['driver']}"
    lines = [f"{one['file']}: {one['commands']} commands, {one['bytes']} bytes, {on}" for one in report["files"]]
    return Outcome(report | {"script_status": status}, "\n".join(lines) + script.ended(status), int(bool(status)))
