"""Running a user's script inside this process, under another driver."""

import argparse
import os
import runpy
import sys
import traceback
from pathlib import Path

from torch_npu.console.command import UsageError

HINT = "of the script. The command's own options may stand before it or right behind it; -- ends them"


def add(parser) -> None:
    """The script and its arguments: the last positional ones of a command."""
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=HINT)


def own_options_first(arguments: list[str], options) -> list[str] | None:
    """`report script.py --html out.html more`: the command line with --html before the script, to be parsed again;
    None if nothing behind the script is the command's."""
    rest, own = list(getattr(options, "arguments", None) or []), []
    start = len(arguments) - len(rest)
    if rest[:1] == ["--"]:  # some versions of argparse drop it, as the next line knows
        options.arguments = rest[1:]
        return None
    if not rest or arguments[start - 1] == "--":
        return None
    while rest and rest[0] != "--":
        action = options.parser._option_string_actions.get(rest[0].partition("=")[0])
        if action is None or isinstance(action, argparse._HelpAction):
            break
        takes = 0 if action.nargs == 0 or "=" in rest[0] else 1
        own += rest[: 1 + takes]
        del rest[: 1 + takes]
    if not own:
        return None
    return [*arguments[: start - 1], *own, arguments[start - 1], *(rest[1:] if rest[:1] == ["--"] else rest)]


def check(script: str, spec: str) -> None:
    """Sets the driver and loads it. UsageError if that or the script cannot be had."""
    os.environ["TORCH_NPU_DRIVER"] = spec
    import torch

    import torch_npu

    if not Path(script).is_file():
        raise UsageError(f"expected a Python script, got {script}: no such file")
    if torch.npu.device_count() == 0:
        error = torch_npu.driver_error()
        if "could not be started" in error:  # it is there, and says itself what it expects
            raise UsageError(error)
        hardware = ", ".join(n for n in torch_npu._info.built_drivers() if not torch_npu._info.wrapped(n))
        raise UsageError(f"{error}; there are {hardware}")


def run(script: str, arguments: list[str]) -> tuple[int, Exception | None]:
    """Exit status as Python would give it, and what the script raised, if it did."""
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    folder = Path.cwd()
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0, None
        print(end.code, file=sys.stderr)
        return 1, None
    except Exception as error:
        return 1, error
    finally:
        os.chdir(folder)  # what the command line names lies below the folder where it was typed
    return 0, None


def run_loudly(script: str, arguments: list[str]) -> int:
    """run(), and what the script raised is printed."""
    status, error = run(script, arguments)
    if error:
        traceback.print_exception(error)
    return status


def ended(status: int) -> str:
    """A line for the end of a command's text, where there is something to say."""
    return f"\nthe script itself failed (exit status {status})" if status else ""
