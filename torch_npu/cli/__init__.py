"""python -m torch_npu: what is there, is it right, is it fast, and what to do next.

Exit status of every command: 0 all is well, 1 a finding or a failure, 2 the command line was wrong
(console/command.py).
"""

import argparse

from torch_npu.cli import (
    bench,
    config,
    conformance,
    doctor,
    driver_test,
    info,
    lock,
    new_driver,
    plan,
    record,
    report,
    script,
    verify,
    whatif,
)
from torch_npu.console.command import STATUSES, run_command

COMMANDS = (
    info,
    doctor,
    new_driver,
    driver_test,
    plan,
    conformance,
    verify,
    record,
    lock,
    bench,
    report,
    whatif,
    config,
)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m torch_npu",
        description="tools of the npu device for PyTorch",
        epilog=f"Every command has --help, with an example, and --json. {STATUSES}",
    )
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for command in COMMANDS:
        command.add(commands)
    return parser


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser()
    options = _parsed(parser, arguments)
    again = script.own_options_first(arguments, options)
    return options if again is None else _parsed(parser, again)


def _parsed(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """parse_args, whose error shows the usage of the command instead of the list of all commands."""
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def main(arguments: list[str]) -> int:
    return run_command(parse(arguments))
