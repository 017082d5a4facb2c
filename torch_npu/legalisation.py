"""Commands that a device's driver refuses and that are made from others which it takes (docs/design/legalisation.md).

    torch_npu.legalisation.report()     what was decided, most used first
    torch_npu.legalisation.reset()      counts anew
    with torch_npu.legalisation.inside() as made:    of a part of a program: `made` is filled at its end
        model(x)

TORCH_NPU_LEGALISE=0 leaves it out: such commands run on the CPU then.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from torch_npu import _C


@dataclass(frozen=True)
class Decision:
    """What became of a command that the driver of a device refused."""

    device: int
    command: str  # "MATMUL aten::addmm 64x10 k=32: ..."
    words: str  # the driver's own, when it refused
    rules: tuple[str, ...]  # those that led to each step; none: nothing was found, and the CPU ran it
    steps: tuple[str, ...]  # the commands that do its work, in order
    runs: int  # commands that it served


def report() -> list[Decision]:
    """Every decision of this process, the most used first."""
    found = [
        Decision(d["device"], d["command"], d["words"], tuple(d["rules"]), tuple(d["steps"]), d["runs"])
        for d in _C.legalised_commands()
    ]
    return sorted(found, key=lambda decision: (-decision.runs, decision.command))


def reset() -> None:
    """Counts anew; decisions stay."""
    _C.legalised_reset()


@contextmanager
def inside() -> Iterator[list[Decision]]:
    """The decisions that served commands inside, with their number; those that found no way are left out."""
    before = {(d.device, d.command): d.runs for d in report()}
    made: list[Decision] = []
    yield made
    for decision in report():
        runs = decision.runs - before.get((decision.device, decision.command), 0)
        if runs > 0 and decision.rules:
            made.append(replace(decision, runs=runs))
