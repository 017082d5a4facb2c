"""Two calls against each other in one process.

Blocks of calls alternate, so that a busy machine disturbs both alike, and the best block of each counts: other
processes can only make a block slower. Between blocks the threads of the side that just ran come to rest, because an
OpenMP thread that still spins would take a core from the other side.
"""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

# PyTorch's OpenMP threads spin for 8 ms behind a call (2 cores, libgomp): until then the device would share a core.
REST = 0.012


@dataclass
class Plan:
    seconds: float  # of one block
    rounds: int
    rest: float  # seconds between blocks
    clock: Callable[[], float]
    calls: int = 1  # of one block, at least

    @staticmethod
    def of(quick: bool, threads: int, clock: str) -> "Plan":
        rest = REST if threads > 1 else 0.0
        return Plan(0.003 if quick else 0.012, 3 if quick else 7, rest, CLOCKS[clock])


# The processor time of the whole process is what to compare where others use the machine, on one thread: threads that
# wait by spinning count as well.
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass
class Times:
    cpu: list[float]
    npu: list[float]

    @property
    def ratio(self) -> float:
        return min(self.cpu) / min(self.npu)

    def json(self) -> dict:
        return {
            "cpu_us": min(self.cpu) * 1e6,
            "npu_us": min(self.npu) * 1e6,
            "cpu_median_us": statistics.median(self.cpu) * 1e6,
            "npu_median_us": statistics.median(self.npu) * 1e6,
            "ratio": self.ratio,
        }


def nothing() -> None:
    pass


def compare(cpu: Callable, npu: Callable, settle: Callable, plan: Plan, settle_cpu: Callable = nothing) -> Times:
    """`settle` waits for the device; it is inside the clock, once per block. So is `settle_cpu`, for the other side:
    of two calls that both queue work, neither may be waited for more often."""
    sides = ((cpu, settle_cpu), (npu, settle))
    counts = []
    for call, wait in sides:
        for _ in range(2):  # the first calls make programs and fill caches
            call()
        wait()
        once = min(_block(call, wait, 1, plan.clock) for _ in range(2))
        counts.append(max(plan.calls, min(20_000, round(plan.seconds / max(once, 1e-7)))))
    times = Times([], [])
    for _ in range(plan.rounds):
        for (call, wait), count, into in zip(sides, counts, (times.cpu, times.npu), strict=True):
            if plan.rest:
                time.sleep(plan.rest)
            into.append(_block(call, wait, count, plan.clock))
    return times


def _block(call: Callable, wait: Callable, count: int, clock: Callable[[], float]) -> float:
    calls = range(count)
    start = clock()
    for _ in calls:
        call()
    wait()
    return (clock() - start) / count


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
