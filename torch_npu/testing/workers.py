"""Checks in processes that may die: a worker that crashes or hangs is replaced, and only the entry it had counts.

    run(tasks, options, jobs=2, timeout=300, done=print)

Workers are forked, so that the databases are imported once; the device is opened in the workers only. What a worker is
about to run it writes into a small file, so that a crash has a place.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection, get_context
from typing import Any

from torch_npu.testing.result import Result


@dataclass
class Options:
    """What a worker has to know besides its tasks."""

    device: str = "npu"
    grad: bool = False
    limit: int | None = None


def _checker(options: Options, where: Callable[[str], None] = lambda place: None) -> Callable[[Any], Result]:
    """A function that checks one task in this process."""
    import warnings

    import torch

    import torch_npu
    from torch_npu.testing import databases
    from torch_npu.testing.case import check

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch_npu.fallback.set_mode("quiet")
    torch.ones(1, device=options.device)

    def one(task: Any) -> Result:
        where("starting")
        case = databases.find(task)
        return check(case, device=options.device, grad=options.grad, limit=options.limit, where=where)

    return one


def _serve(pipe: connection.Connection, options: Options, place: int, log: int, others: list[Any]) -> None:
    """A worker: answers each task with its result, until the other end closes. Whatever is printed goes to the log."""
    for other in others:
        other.close()
    os.dup2(log, 1)
    os.dup2(log, 2)

    def where(text: str) -> None:
        os.pwrite(place, f"{text[:499]}\n".encode()[:500], 0)

    check = _checker(options, where)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        pipe.send(check(task))


class _Worker:
    """A process, the task that it has in hand, and the files through which it speaks when it cannot answer."""

    def __init__(self, options: Options, others: list[_Worker]) -> None:
        self.place, self.log = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self.pipe, far = connection.Pipe()
        # A worker must not hold the others' pipes open, or they would not notice that this process is gone.
        inherited = [self.pipe, *(other.pipe for other in others)]
        self.process = get_context("fork").Process(
            target=_serve, args=(far, options, self.place.fileno(), self.log.fileno(), inherited), daemon=True
        )
        self.process.start()
        far.close()
        self.task: Any = None
        self.since = time.monotonic()

    def give(self, task: Any) -> None:
        self.log.seek(0)
        self.log.truncate()
        self.task, self.since = task, time.monotonic()
        try:
            self.pipe.send(task)
        except BrokenPipeError:
            pass  # it died between two tasks; the end of its answers says so

    def where(self) -> str:
        return os.pread(self.place.fileno(), 500, 0).decode(errors="replace").split("\n")[0]

    def last_words(self) -> str:
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def ending(self) -> str:
        self.process.join()
        status = self.process.exitcode or 0
        if status < 0:
            return f"the process was ended by {signal.Signals(-status).name}"
        return f"the process ended with status {status}"

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        for file in (self.pipe, self.place, self.log):
            file.close()


class _Pool:
    """Workers at their tasks."""

    def __init__(self, tasks: list[Any], options: Options, timeout: float, finish: Callable[[Result], None]) -> None:
        self.todo = list(reversed(tasks))
        self.options, self.timeout, self.finish = options, timeout, finish
        self.workers: list[_Worker] = []

    def start(self) -> None:
        one = _Worker(self.options, self.workers)
        self.workers.append(one)
        one.give(self.todo.pop())

    def retire(self, one: _Worker) -> None:
        self.workers.remove(one)
        one.end()

    def lost(self, one: _Worker, status: str, message: str) -> None:
        place, words = one.where(), one.last_words()
        self.retire(one)
        message += f"; its last words: {words}" if words else ""
        if not place:
            raise RuntimeError(f"a worker process did not start: {message}")
        seconds = round(time.monotonic() - one.since, 3)
        self.finish(Result(**one.task.as_dict(), status=status, message=f"{place}: {message}", seconds=seconds))
        if self.todo:
            self.start()

    def work(self, jobs: int) -> None:
        for _ in range(min(jobs, len(self.todo))):
            self.start()
        while self.workers:
            ready = connection.wait([one.pipe for one in self.workers], timeout=0.5)
            for one in [one for one in self.workers if one.pipe in ready]:
                try:
                    result = one.pipe.recv()
                except (EOFError, ConnectionResetError):
                    self.lost(one, "crashed", one.ending())
                    continue
                self.finish(result)
                if self.todo:
                    one.give(self.todo.pop())
                else:
                    self.retire(one)
            for one in list(self.workers):
                if time.monotonic() - one.since > self.timeout and not one.pipe.poll():
                    self.lost(one, "timeout", f"no answer after {self.timeout:g} s")


def run(
    tasks: list[Any], options: Options, *, jobs: int, timeout: float, done: Callable[[Result], None]
) -> list[Result]:
    """Checks every task and tells `done` about each result as it comes. `jobs` 0: in this process."""
    results: list[Result] = []

    def finish(result: Result) -> None:
        results.append(result)
        done(result)

    if jobs == 0:
        check = _checker(options)
        for task in tasks:
            finish(check(task))
        return results
    pool = _Pool(tasks, options, timeout, finish)
    try:
        pool.work(jobs)
    finally:
        for one in pool.workers:
            one.end()
    return results
