"""What all commands share: --help with an example, --json, the exit status.

A command's file has `add`, which calls add_command with its options, and `run`, which returns an Outcome or raises.
It prints nothing on stdout itself: text and facts are in the Outcome, and run_command shows the ones that were asked
for. Messages go to stderr; so does, with --json, everything that a script, a library or a child process prints, because
stdout then carries one JSON value and nothing else.
"""

import argparse
import json
import math
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FINE, FAILED, WRONG = 0, 1, 2
STATUSES = "Exit status: 0 all is well, 1 a finding or a failure, 2 the command line was wrong."


class UsageError(Exception):
    """The command line asks for something that is not there: exit status 2."""


class Failure(Exception):
    """The thing asked for could not be done: exit status 1."""


@dataclass
class Outcome:
    """What a command found: `facts` for programs, `text` for people, and the exit status."""

    facts: Any
    text: str | Callable[[], str] = ""
    status: int = FINE


def add_command(commands, name: str, run: Callable, help: str, example: str, description: str = ""):
    """A parser with what every command has. `example` is what follows `python -m torch_npu `, a line each."""
    prog = commands._prog_prefix.removesuffix(" ")
    lines = "\n".join(f"  python -m torch_npu {line}" for line in example.splitlines())
    parser = commands.add_parser(
        name,
        help=help,
        description=description or f"{help[0].upper()}{help[1:]}.",
        epilog=f"example:\n{lines}\n\n{STATUSES}",
        formatter_class=_Format,
        prog=f"{prog} {name}",
    )
    parser.add_argument("--json", action="store_true", help="print JSON on stdout, and all else on stderr")
    parser.add_argument("--json-file", metavar="FILE", help="write the same JSON to a file, and print as usual")
    parser.set_defaults(run=run, parser=parser)
    return parser


class _Format(argparse.HelpFormatter):
    """Wraps descriptions, keeps the lines of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("example:"):
            return text
        return super()._fill_text(text, width, indent)


def run_command(options) -> int:
    """Runs a parsed command and shows what came of it."""
    with _stdout_for_json() if options.json else _nothing() as show:
        try:
            outcome = options.run(options)
        except (UsageError, Failure) as error:
            print(error, file=sys.stderr)
            status = WRONG if isinstance(error, UsageError) else FAILED
            outcome = Outcome({"error": str(error), "status": status}, status=status)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        except Exception as error:
            if not options.json:
                raise
            traceback.print_exception(error)
            outcome = Outcome({"error": f"{type(error).__name__}: {error}", "status": FAILED}, status=FAILED)
        if options.json_file and outcome.status != WRONG:
            try:
                Path(options.json_file).write_text(to_json(outcome.facts))
            except OSError as error:
                print(error, file=sys.stderr)
                outcome.status = outcome.status or FAILED
        if options.json:
            show(to_json(outcome.facts))
        else:
            text = outcome.text() if callable(outcome.text) else outcome.text
            if text:
                print(text)
    return outcome.status


def to_json(facts: Any) -> str:
    try:
        return json.dumps(facts, indent=2, allow_nan=False, default=str) + "\n"
    except ValueError:  # JSON has no infinity
        return json.dumps(_finite(facts), indent=2, default=str) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


@contextmanager
def _nothing():
    yield None


@contextmanager
def _stdout_for_json():
    """What writes to stdout inside, C++ and child processes included, reaches stderr; the yielded function does not."""
    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(2, 1)

    def show(text: str) -> None:
        sys.stdout.flush()
        with os.fdopen(os.dup(ours), "w") as out:
            out.write(text)

    try:
        yield show
    finally:
        sys.stdout.flush()
        os.dup2(ours, 1)
        os.close(ours)
