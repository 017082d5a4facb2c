"""python -m torch_npu driver-test: the conformance suite, against any driver. It knows the contract and no PyTorch."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from torch_npu.console.command import Failure, Outcome, UsageError, add_command

# Options of the suite, which gets them as they are: name, what they take, meaning.
OPTIONS = (
    ("--filter", "TEXT", "only tests whose name has TEXT"),
    ("--seed", "N", "of the random commands (1)"),
    ("--count", "N", "random commands per test, and at most so many of a test's directed ones (200)"),
    ("--case", "N", "of each test, only the command with this number: what a failure prints"),
    ("--random", "N", "instead of the tests: N random commands of all sorts, mixed"),
    ("--supported", None, "with --random: until N commands were compared, not counting those that it does not have"),
    ("--save", "FILE", "with --random: a command that fails is written there, for npu-replay"),
    ("--from", "FILE", "instead of the tests: each command of a recording (.npt), against the reference"),
    ("--exact", None, "floating point must agree bit for bit with the reference"),
    ("--exact-sums", None, "so must sums and products; functions that isa.md lets a driver approximate need not"),
    ("--legalised", None, "what the driver refuses is made from what it takes, as the host does it"),
    ("--why", None, "so, and print how"),
    ("--limit", "SECONDS", "a test fails when no call to the driver has returned for so long (120)"),
    ("--jobs", "N", "tests at the same time, each in a process of its own (1)"),
    ("--in-process", None, "all tests in one process, for a debugger"),
    ("--first", None, "stop at the first test that fails"),
    ("--log", "FILE", "every test, seed and command is on the disk before the driver gets it"),
    ("--list", None, "print the names of the tests"),
)


def add(commands) -> None:
    parser = add_command(
        commands,
        "driver-test",
        run,
        help="run the conformance suite against a driver",
        example="driver-test cmodel\ndriver-test ./libnpu_mychip.so:option=1 --filter MAP",
    )
    parser.add_argument("driver", help="a name (cmodel, template) or the path of a shared library, with :options")
    for name, takes, meaning in OPTIONS:
        kind = {"metavar": takes} if takes else {"action": "store_true"}
        parser.add_argument(name, help=meaning, **kind)


def library_of(driver: str) -> str:
    """The file and the options of a driver, as the suite takes them: "<path>[:options]"."""
    name, colon, options = driver.partition(":")
    folder = Path(__file__).parent.parent / "lib"
    path = Path(name) if "/" in name or name.endswith(".so") else folder / f"libnpu_{name}.so"
    if not path.exists():
        from torch_npu._info import built_drivers

        names = ", ".join(built_drivers())
        raise UsageError(f"expected a driver's name ({names}) or the path of a shared library, got {name}")
    return f"{path}{colon}{options}"


def run(options) -> Outcome:
    suite = Path(__file__).parent.parent / "lib" / "npu-driver-test"
    driver = library_of(options.driver)
    if not suite.exists():
        raise Failure(f"expected the suite at {suite}, found none: run make build")
    command = [str(suite), driver]
    for name, takes, _ in OPTIONS:
        value = getattr(options, name.removeprefix("--").replace("-", "_"))
        if value is not None and value is not False:
            command += [name, value] if takes else [name]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        # Each test is a line as it ends, on stdout (with --json, that is stderr by now).
        sys.stdout.flush()
        process = subprocess.Popen([*command, "--json", str(results)], stdout=subprocess.PIPE, text=True)
        lines = []
        for line in process.stdout or ():
            lines.append(line.rstrip("\n"))
            print(lines[-1], flush=True)
        status = process.wait()
        facts = json.loads(results.read_text()) if results.exists() else {"driver": driver, "output": lines}
    if status not in (0, 1, 2):  # the driver crashed or hung in a test, or took the suite down
        facts["crashed"] = status
        status = 1
    return Outcome({**facts, "status": status}, status=status)
