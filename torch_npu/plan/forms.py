"""Commands that ask the same of a chip, but for sizes: a form. What a driver makes of each, and what it would gain."""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch_npu import _info

ANSWERS = ("wrong", "refused", "legalised", "native")
# Of a form with several examples: the worst.
RANK = {answer: k for k, answer in enumerate(ANSWERS)}
# Shorter commands say little of a rate: their time is the launch.
LEAST_BYTES, LEAST_MULTIPLY_ADDS = 1 << 16, 1 << 20


@dataclasses.dataclass
class Example:
    """One command of a form, at one set of sizes, with its place in the recording."""

    number: int  # in the recording: driver-test --from plan.npt names it
    size: tuple[int, ...]
    count: int  # commands of the run that were like it
    bytes: int  # of all operands, each once
    multiply_adds: int
    answer: str
    milliseconds: float  # of one, by the device's events; 0: it did not run, or has no clock
    what: str
    words: str  # the driver's own, where it refused
    rules: tuple[str, ...]  # that made it from other commands
    steps: tuple[str, ...]  # those commands
    difference: str  # from the recorded results
    gain_ms: float | None = None  # of all `count`, if the driver took it; None: nothing to compare with


@dataclasses.dataclass
class Form:
    """Commands of one kind, program, types and way of lying in memory."""

    kind: str
    program: str  # its text; empty: none
    types: tuple[str, ...]
    lies: tuple[str, ...]  # dense, broadcast, strided, apart, backwards, immediate: of each operand
    examples: list[Example]
    ops: dict[str, int]  # that gave it: calls

    @property
    def answer(self) -> str:
        return min((example.answer for example in self.examples), key=RANK.__getitem__)

    @property
    def count(self) -> int:
        return sum(example.count for example in self.examples)

    def total(self, name: str) -> int:
        """bytes or multiply_adds of all commands."""
        return sum(getattr(example, name) * example.count for example in self.examples)

    @property
    def milliseconds(self) -> float:
        return sum(example.milliseconds * example.count for example in self.examples)

    @property
    def gain_ms(self) -> float | None:
        known = [example.gain_ms for example in self.examples if example.gain_ms is not None]
        return sum(known) if known else None

    @property
    def name(self) -> str:
        return self.program.partition("(")[0].removeprefix("program ").strip() or max(
            self.ops, key=self.ops.__getitem__
        )

    @property
    def words(self) -> list[str]:
        return sorted({example.words for example in self.examples if example.words})

    @property
    def rules(self) -> list[str]:
        return sorted({rule for example in self.examples for rule in example.rules})


@dataclasses.dataclass
class Plan:
    """What a model asks of a chip."""

    driver: str
    file: str
    forms: list[Form]  # what to do first, first

    def counts(self) -> dict[str, int]:
        """Commands by what became of them."""
        examples = [example for form in self.forms for example in form.examples]
        return {answer: sum(e.count for e in examples if e.answer == answer) for answer in ANSWERS}

    def facts(self) -> dict[str, Any]:
        forms = [
            dataclasses.asdict(form)
            | {"name": form.name, "answer": form.answer, "count": form.count, "gain_ms": form.gain_ms}
            for form in self.forms
        ]
        return {"driver": self.driver, "file": self.file, "counts": self.counts(), "forms": forms}

    def __str__(self) -> str:
        from torch_npu.plan.text import text

        return text(self)

    def save(self, path: str | Path) -> None:
        from torch_npu.plan.page import html

        Path(path).write_text(html(self), encoding="utf-8")


def recording_spec(file: str | Path, driver: str = "cmodel") -> str:
    """TORCH_NPU_DRIVER for a run of which one example of each command is kept."""
    return f"record:driver=[{driver}]:file=[{Path(file).resolve()}]:keep=examples"


def replay_json(arguments: Iterable[str]) -> Any:
    """What npu-replay writes for its flag --plan."""
    program = Path(_info.library_path()) / "npu-replay"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "plan.json"
        done = subprocess.run([program, *arguments, "--plan", str(out)], stderr=subprocess.PIPE, text=True)
        if done.returncode != 0 or not out.exists():
            last = done.stderr.strip().splitlines()[-1:] or [f"it ended with status {done.returncode}"]
            raise RuntimeError(last[0])
        return json.loads(out.read_text())


def ask(file: str | Path, driver: str, ops: dict[int, dict[str, int]] | None = None) -> Plan:
    """Gives every example of a recording to a driver. `ops`: of each number, who asked for such commands, how often."""
    answers = replay_json([str(file), "--driver", driver, "--quiet"])
    forms: dict[tuple, Form] = {}
    for found in answers["commands"]:
        types = tuple(operand["type"] for operand in found["operands"])
        lies = tuple(operand["lies"] for operand in found["operands"])
        key = (found["kind"], found["program"], types, lies)
        form = forms.setdefault(key, Form(found["kind"], found["program"], types, lies, [], {}))
        asked = (ops or {}).get(found["number"], {found["op"]: 1})
        for op, count in asked.items():
            form.ops[op] = form.ops.get(op, 0) + count
        form.examples.append(
            Example(
                number=found["number"],
                size=tuple(found["size"]),
                count=sum(asked.values()),
                bytes=found["bytes"],
                multiply_adds=found["multiply_adds"],
                answer=found["answer"],
                milliseconds=found["milliseconds"],
                what=found["what"],
                words=found["words"],
                rules=tuple(found["rules"]),
                steps=tuple(found["steps"]),
                difference=found.get("difference", ""),
            )
        )
    plan = Plan(driver, str(file), list(forms.values()))
    estimate_gains(plan)
    plan.forms.sort(key=_order)
    return plan


def estimate_gains(plan: Plan) -> None:
    """A command made from others would take as long as those that the driver takes, by bytes and multiply-adds."""
    examples = [example for form in plan.forms for example in form.examples]
    native = [example for example in examples if example.answer == "native" and example.milliseconds > 0]

    def rate(name: str, least: int) -> float | None:
        """Bytes or multiply-adds a millisecond, of the usual native command that is large enough to tell."""
        rates = [getattr(e, name) / e.milliseconds for e in native if getattr(e, name) >= least]
        return statistics.median(rates) if rates else None

    launch = min((example.milliseconds for example in native), default=0.0)
    bytes_per_ms, adds_per_ms = rate("bytes", LEAST_BYTES), rate("multiply_adds", LEAST_MULTIPLY_ADDS)
    for example in examples:
        if example.answer != "legalised" or not example.milliseconds or not native:
            continue
        parts = [launch]
        if bytes_per_ms:
            parts.append(example.bytes / bytes_per_ms)
        if adds_per_ms:
            parts.append(example.multiply_adds / adds_per_ms)
        example.gain_ms = max(example.milliseconds - max(parts), 0.0) * example.count


def _order(form: Form) -> tuple:
    """Wrong ones first, then what the CPU does, then what native support would gain; the rest by size."""
    gain = form.gain_ms or 0.0
    return (RANK[form.answer], -gain, -form.total("multiply_adds"), -form.total("bytes"))
