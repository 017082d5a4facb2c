"""What of a model runs on the device, what does not, and what to do next (docs/seeing-inside.md).

    report = torch_npu.report(model, inputs, html="report.html")
    print(report)                            the headline, and what to do next
    report.facts                             everything, as plain numbers and texts

`python -m torch_npu report script.py --html report.html` does it for a script. The package can be called because its
name is the function's, and importing one of its modules makes the package what `torch_npu.report` is.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_npu.report.facts import gather
from torch_npu.report.recording import Recording, record

__all__ = ["Recording", "Report", "record", "report"]


class Report:
    """`facts` is everything that was found; the page and the text are made of it."""

    def __init__(self, facts: dict[str, Any]):
        self.facts = facts

    @property
    def headline(self) -> str:
        return self.facts["headline"]

    def html(self) -> str:
        """One page that needs nothing else."""
        from torch_npu.report.page import html

        return html(self.facts)

    def save(self, path: str | Path) -> None:
        """By the name's end: .json for programs, anything else is the page."""
        text = json.dumps(self.facts) if str(path).endswith(".json") else self.html()
        Path(path).write_text(text, encoding="utf-8")

    def __str__(self) -> str:
        from torch_npu.report.text import text

        return text(self.facts)


def report(
    model: Any,
    inputs: Any,
    step: Callable | None = None,
    *,
    html: str | Path | None = None,
    title: str | None = None,
    device: str = "npu",
    warmup: int = 2,
    steps: int = 3,
) -> Report:
    """Runs the model on the device and says what ran where, how fast, and what to do next.

    `inputs`: a tensor, a tuple or a dict of arguments. `step(model, *inputs)` is measured instead of a plain call: a
    training step, say. A model on the CPU is copied to the device. `warmup` calls come first; `steps` are measured.
    """
    from torch_npu.verification import prepared

    if steps < 1:
        raise ValueError(f"expected steps to be at least 1, got {steps}")
    call = prepared(model, inputs, step, device)
    for _ in range(warmup):
        call()
    with record(device) as recording:
        for _ in range(steps):
            call()
    name = title or getattr(model, "__name__", None) or type(model).__name__
    made = Report(gather(recording, title=name, steps=steps))
    if html is not None:
        made.save(html)
    return made


class _Callable(types.ModuleType):
    """torch_npu.report(...) whether this package has been imported or not."""

    def __call__(self, *args: Any, **kwargs: Any) -> Report:
        return report(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
