"""What the conformance run says about one entry of a database in one dtype."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

FAILED = ("wrong", "raised", "crashed", "timeout")
STATUSES = ("passed", *FAILED, "skipped")
HOW = ("native", "decomposed", "fallback")


@dataclass
class Result:
    """status: one of STATUSES (skipped: the CPU itself runs no sample). how: one of HOW, empty if nothing ran."""

    database: str
    name: str
    dtype: str
    status: str = "passed"
    how: str = ""
    message: str = ""
    fallbacks: dict[str, int] = field(default_factory=dict)  # ops that ran on the CPU, and how often
    samples: int = 0
    gradients: int = 0
    forms: int = 0  # in-place and out= calls
    random: int = 0  # samples compared in type, dimensions and device only
    by_truth: int = 0  # results outside the tolerance that a double precision run found no worse than the CPU's
    refused: int = 0  # samples whose forward or gradient the CPU itself refuses
    seconds: float = 0.0
    excused: str = ""  # the reason from exceptions.py, if the failure is listed there

    @property
    def failed(self) -> bool:
        return self.status in FAILED and not self.excused

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
