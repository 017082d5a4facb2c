"""python -m torch_npu inside this process, which has PyTorch and the device already."""

import os
import sys
import tempfile
from typing import NamedTuple

import torch

from torch_npu import cli


class Finished(NamedTuple):
    """What a command said, of this process or of a child."""

    status: int
    out: str
    err: str

    def lines(self) -> list[str]:
        assert self.status == 0, self.err
        return self.out.splitlines()


def called(*arguments: str) -> Finished:
    """The command line inside this process: status, stdout and stderr, those of the file descriptors."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        sys.stdout.flush()
        sys.stderr.flush()
        before = [(number, os.dup(number)) for number in (1, 2)]
        streams, environment, argv = (sys.stdout, sys.stderr), dict(os.environ), sys.argv
        threads = torch.get_num_threads()
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        try:
            status = cli.main(list(arguments))
        except SystemExit as end:  # argparse: --help, or a wrong command line
            status = end.code
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            sys.stdout, sys.stderr = streams
            sys.argv = argv
            torch.set_num_threads(threads)
            os.environ.clear()
            os.environ.update(environment)
            for number, copy in before:
                os.dup2(copy, number)
                os.close(copy)
        out.seek(0)
        err.seek(0)
        return Finished(status, out.read(), err.read())
