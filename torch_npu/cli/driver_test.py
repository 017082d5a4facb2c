"""python -m torch_npu driver-test: the conformance suite, against any driver. It knows the contract and no PyTorch."""

import argparse
import subprocess
import sys
from pathlib import Path


def add(commands) -> None:
    parser = commands.add_parser(
        "driver-test",
        help="run the conformance suite against a driver",
        description="Runs the conformance suite against a driver. Further arguments go to the suite: try --help after "
        "the driver's name.",
    )
    parser.add_argument("driver", help="a name (cmodel, template) or the path of a shared library, with :options")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the suite")
    parser.set_defaults(run=run)


def library_of(driver: str) -> str:
    """The file and the options of a driver, as the suite takes them: "<path>[:options]"."""
    name, colon, options = driver.partition(":")
    folder = Path(__file__).parent.parent / "lib"
    path = Path(name) if "/" in name or name.endswith(".so") else folder / f"libnpu_{name}.so"
    if not path.exists():
        from torch_npu._info import built_drivers

        names = ", ".join(built_drivers())
        raise FileNotFoundError(f"expected a driver's name ({names}) or the path of a shared library, got {name}")
    return f"{path}{colon}{options}"


def run(options) -> int:
    suite = Path(__file__).parent.parent / "lib" / "npu-driver-test"
    try:
        driver = library_of(options.driver)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    if not suite.exists():
        print(f"expected the suite at {suite}, found none: run make build", file=sys.stderr)
        return 2
    return subprocess.run([str(suite), driver, *options.arguments]).returncode
