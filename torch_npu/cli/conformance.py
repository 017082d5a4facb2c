"""python -m torch_npu conformance: PyTorch's own test databases on the device, compared with the CPU.

Every entry runs in a worker process, one worker per core; a worker that crashes or hangs is replaced, and the entry
counts as crashed or timed out. Exit status 1 if anything failed that torch_npu/testing/exceptions.py does not list, or
if something listed there passes.
"""

import argparse
import os
import time

from torch_npu.console.command import Failure, Outcome, UsageError, add_command
from torch_npu.console.progress import Progress


def add(commands) -> None:
    parser = add_command(
        commands,
        "conformance",
        run,
        example="conformance --op 'nn.functional.*' --grad\nconformance --dtype all --html run.html",
        help="PyTorch's op, module and optimizer databases on the device, against the CPU",
        description=__doc__.split("\n\n")[1],
    )
    parser.add_argument(
        "--dtype", default="float32", help="one or more, with commas, or all for the nine of a full run (float32)"
    )
    parser.add_argument(
        "--op", metavar="REGEX", help="only entries whose whole name matches, such as 'nn.functional.*'"
    )
    parser.add_argument("--grad", action="store_true", help="gradients too")
    parser.add_argument(
        "--db",
        default="ops,foreach,modules,optimizers",
        help="which databases (%(default)s; also compiled: each op through torch.compile)",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="at most N samples per entry")
    parser.add_argument("--jobs", type=int, metavar="N", help="worker processes (one per core); 0: in this process")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S", help="seconds per entry (%(default)s)")
    parser.add_argument("--load", action="append", default=[], metavar="FILE", help="Python file that adds entries")
    parser.add_argument("--from", dest="source", metavar="JSON", help="report on an earlier run instead of running")
    parser.add_argument("--html", metavar="FILE", help="write a page to look at")
    parser.add_argument("--markdown", metavar="FILE", help="write the list of operators (docs/operators.md)")


def _choices(text: str, known: tuple[str, ...], what: str) -> list[str]:
    chosen = list(known) if text == "all" else text.split(",")
    for name in chosen:
        if name not in known:
            raise ValueError(f"expected {what} out of {', '.join(known)}, got {name!r}")
    return chosen


class Watch:
    """Tells the bar of each result, and of failures as they happen."""

    def __init__(self, total: int) -> None:
        self.failed = 0
        self.progress = Progress(total, lines=True)

    def __call__(self, result) -> None:
        from torch_npu.testing.report import failure_line
        from torch_npu.testing.result import FAILED

        if result.status in FAILED:
            self.failed += 1
            self.progress.note(failure_line(result))
        self.progress.step(f"{self.failed} failed, {result.dtype} {result.name}")


def measure(options):
    """Runs what the options ask for. ValueError if they ask for nothing that exists."""
    # A GPU takes no part, and cannot be used in forked workers: Inductor on the CPU would refuse every sample.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    from torch_npu.testing import databases, workers
    from torch_npu.testing.report import Run

    dtypes = _choices(options.dtype, databases.DTYPES, "dtypes")
    chosen = _choices(options.db, databases.NAMES, "databases")
    for path in options.load:
        databases.load(path)
    tasks = databases.tasks(chosen, dtypes, options.op)
    if not tasks:
        raise ValueError(f"no entry of {', '.join(chosen)} matches {options.op!r} for {', '.join(dtypes)}")
    import torch

    jobs = options.jobs if options.jobs is not None else len(os.sched_getaffinity(0))
    start = time.monotonic()
    settings = workers.Options(grad=options.grad, limit=options.limit)
    watch = Watch(len(tasks))
    with watch.progress:
        results = workers.run(tasks, settings, jobs=jobs, timeout=options.timeout, done=watch)
    order = {(t.database, t.name, t.dtype): i for i, t in enumerate(tasks)}
    results.sort(key=lambda r: order[r.database, r.name, r.dtype])
    facts = {
        "torch": torch.__version__,
        "driver": os.environ.get("TORCH_NPU_DRIVER", "cmodel"),
        "dtypes": dtypes,
        "databases": chosen,
        "op": options.op,
        "grad": options.grad,
        "limit": options.limit,
        "seconds": round(time.monotonic() - start, 1),
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }
    return Run(facts, results)


def run(options) -> Outcome:
    from torch_npu.testing import operators, page, report

    try:
        found = report.Run.read(options.source) if options.source else measure(options)
    except (ValueError, FileNotFoundError, argparse.ArgumentTypeError) as error:
        raise UsageError(str(error)) from None
    except RuntimeError as error:  # no worker starts: no device, or no torch_npu
        raise Failure(str(error)) from None
    found.excuse()
    for path, make in ((options.html, page.html), (options.markdown, operators.markdown)):
        if path:
            with open(path, "w") as file:
                file.write(make(found))
    return Outcome(found.as_dict(), lambda: report.text(found), 0 if found.ok else 1)
