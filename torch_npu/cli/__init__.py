"""python -m torch_npu: what is there, is it right, is it fast.

Exit status: 0 all is well, 1 the thing asked for failed, 2 the command line was wrong.
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
    record,
    verify,
    whatif,
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m torch_npu", description="tools of the npu device for PyTorch")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for command in (info, doctor, new_driver, driver_test, conformance, verify, record, lock, bench, whatif, config):
        command.add(commands)
    options = parser.parse_args(arguments)
    return options.run(options)
