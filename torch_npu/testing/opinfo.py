"""PyTorch's OpInfo database on npu, compared with the CPU.

    python -m torch_npu.testing.opinfo --dtype float32 --grad

Each op runs in a worker process, one worker per core; a worker that crashes or hangs is replaced, and the op counts as
crashed or timed out. Exit status 1 if any op that the CPU can run did not pass.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import selectors
import subprocess
import sys
import time
from typing import Any

FAILED = ("wrong", "raised", "crashed", "timeout")


def op_list(dtype_name: str, pattern: str | None) -> list[int]:
    """Indices into op_db of the ops that the CPU supports for this dtype."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    dtype = getattr(torch, dtype_name)
    keep = re.compile(pattern) if pattern else None
    return [
        i
        for i, op in enumerate(op_db)
        if dtype in op.supported_dtypes("cpu") and (keep is None or keep.fullmatch(op.full_name))
    ]


def op_names() -> list[str]:
    from torch.testing._internal.common_methods_invocations import op_db

    return [op.full_name for op in op_db]


def worker(dtype_name: str, grad: bool, limit: int | None) -> None:
    """Reads an index per line, answers with a JSON line. Nothing else may write to the answer's pipe."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import warnings

    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    import torch_npu  # noqa: F401
    from torch_npu.testing import compare

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.ones(1, device="npu")
    answers.write("ready\n")
    answers.flush()
    for line in sys.stdin:
        result = compare.check(op_db[int(line)], getattr(torch, dtype_name), device="npu", grad=grad, limit=limit)
        answers.write(json.dumps(result.as_dict()) + "\n")
        answers.flush()


class Worker:
    """A worker process and the op that it has in hand."""

    def __init__(self, command: list[str], log: Any) -> None:
        environment = {**os.environ, "TORCH_NPU_FALLBACK": os.environ.get("TORCH_NPU_FALLBACK", "quiet")}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )
        self.index: int | None = None
        self.since = time.monotonic()
        if self.process.stdout.readline() != "ready\n":
            raise SystemExit("the worker process did not start: run with --jobs 0 to see why")

    def give(self, index: int) -> None:
        self.index, self.since = index, time.monotonic()
        self.process.stdin.write(f"{index}\n")
        self.process.stdin.flush()

    def stop(self) -> int:
        self.process.kill()
        return self.process.wait()


def run_workers(indices: list[int], names: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "torch_npu.testing.opinfo", "--worker", "--dtype", options.dtype]
    command += ["--grad"] if options.grad else []
    command += ["--limit", str(options.limit)] if options.limit else []
    results: list[dict[str, Any]] = []
    todo = list(reversed(indices))
    log = open(options.log, "w") if options.log else subprocess.DEVNULL  # noqa: SIM115
    selector = selectors.DefaultSelector()

    def start() -> None:
        one = Worker(command, log)
        selector.register(one.process.stdout, selectors.EVENT_READ, one)
        next_op(one)

    def retire(one: Worker) -> None:
        selector.unregister(one.process.stdout)
        one.stop()

    def next_op(one: Worker) -> None:
        if todo:
            one.give(todo.pop())
        else:
            retire(one)

    def lost(one: Worker, status: str, message: str) -> None:
        results.append({"name": names[one.index], "status": status, "message": message, "samples": 0, "gradients": 0})
        retire(one)
        if todo:
            start()

    for _ in range(min(options.jobs, len(indices))):
        start()
    while selector.get_map():
        for key, _ in selector.select(timeout=1.0):
            one: Worker = key.data
            line = key.fileobj.readline()
            if line:
                results.append(json.loads(line))
                next_op(one)
            else:
                lost(one, "crashed", f"the process ended with status {one.process.wait()}")
        for key in list(selector.get_map().values()):
            one = key.data
            if time.monotonic() - one.since > options.timeout:
                lost(one, "timeout", f"no answer after {options.timeout} s")
        progress(results, len(indices))
    progress(results, len(indices), last=True)
    return results


def progress(results: list[dict[str, Any]], total: int, last: bool = False) -> None:
    if not sys.stderr.isatty() and not last:
        return
    done = len(results)
    failed = sum(r["status"] in FAILED for r in results)
    bar = "#" * (40 * done // max(total, 1))
    end = "\n" if last else ""
    print(f"\r[{bar:<40}] {done}/{total} ops, {failed} failed", end=end, file=sys.stderr, flush=True)


def summary(results: list[dict[str, Any]]) -> int:
    for r in sorted(results, key=lambda r: (r["status"], r["name"])):
        if r["status"] != "passed":
            print(f"{r['status']:8} {r['name']}: {' '.join(r['message'].split())[:300]}")
    count = {s: sum(r["status"] == s for r in results) for s in ("passed", *FAILED, "skipped")}
    print(", ".join(f"{n} {s}" for s, n in count.items()))
    total = {
        key: sum(r.get(key, 0) for r in results) for key in ("samples", "gradients", "random", "by_truth", "refused")
    }
    print(
        f"{total['samples']} samples, {total['gradients']} with gradients; {total['random']} random ones compared in "
        f"shape only, {total['by_truth']} decided by double precision, {total['refused']} refused by the CPU itself"
    )
    return 1 if any(count[s] for s in FAILED) else 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m torch_npu.testing.opinfo", description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="float32", help="a torch dtype by name (default: float32)")
    parser.add_argument("--op", help="regular expression for full op names, such as 'nn.functional.*'")
    parser.add_argument("--grad", action="store_true", help="gradients too")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes; 0: in this one")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds per op (default: 300)")
    parser.add_argument("--limit", type=int, help="at most this many samples per op")
    parser.add_argument("--json", help="write all results to this file")
    parser.add_argument("--log", help="write the workers' error output to this file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.worker:
        worker(options.dtype, options.grad, options.limit)
        return 0
    indices, names = op_list(options.dtype, options.op), op_names()
    if not indices:
        parser.error(f"no op matches {options.op!r} for {options.dtype}")
    if options.jobs == 0:
        results = run_here(indices, options)
    else:
        results = run_workers(indices, names, options)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    return summary(results)


def run_here(indices: list[int], options: argparse.Namespace) -> list[dict[str, Any]]:
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    import torch_npu  # noqa: F401
    from torch_npu.testing import compare

    results: list[dict[str, Any]] = []
    for index in indices:
        dtype = getattr(torch, options.dtype)
        result = compare.check(op_db[index], dtype, device="npu", grad=options.grad, limit=options.limit)
        results.append(result.as_dict())
        progress(results, len(indices))
    progress(results, len(indices), last=True)
    return results


if __name__ == "__main__":
    raise SystemExit(main())
