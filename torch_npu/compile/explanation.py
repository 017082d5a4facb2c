"""What torch.compile makes of a model: commands before and after, bytes moved, what broke a graph."""

import dataclasses

import torch
import torch._dynamo

import torch_npu
from torch_npu import _C, fallback, legalisation, native


@dataclasses.dataclass(frozen=True)
class Commands:
    """What the device was given: label to number and bytes. A label is an aten op or the name of a fused kernel."""

    counts: dict[str, int]
    bytes: dict[str, int]
    fallbacks: dict[str, int]
    made: list[legalisation.Decision]  # commands that the driver refused, and that others were made of

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def total_bytes(self) -> int:
        return sum(self.bytes.values())

    def lines(self) -> list[str]:
        rows = [f"{self.counts[n]:7} {self.bytes[n] / 1e3:13,.1f}  {n}" for n in sorted(self.counts, key=self._order)]
        rows += [f"{count:7} {'on the CPU':>13}  {name}" for name, count in self.fallbacks.items()]
        rows += [f"{d.runs:7} {f'made: {len(d.steps)} each':>13}  {d.command}" for d in self.made]
        return ["  count            kB  command", *rows]

    def _order(self, name: str) -> tuple:
        return -self.bytes[name], name


@dataclasses.dataclass(frozen=True)
class Explanation:
    eager: Commands
    compiled: Commands
    graphs: int
    breaks: list[str]

    def __str__(self) -> str:
        lines = ["eager", *self.eager.lines(), "", "compiled", *self.compiled.lines(), ""]
        for name in ("eager", "compiled"):
            side = getattr(self, name)
            lines.append(f"{name + ':':10} {side.total} commands, {side.total_bytes / 1e3:,.1f} kB")
        lines.append(f"graphs:    {self.graphs}, breaks between them: {len(self.breaks)}")
        return "\n".join([*lines, *(f"  {reason}" for reason in self.breaks)])


def _count(run) -> Commands:
    before = fallback.report()
    with legalisation.inside() as made, native.counting():
        run()
        torch_npu.npu.synchronize()
    fallbacks = {n: c - before.get(n, 0) for n, c in fallback.report().items() if c > before.get(n, 0)}
    return Commands(native.report(), _C.native_bytes(), fallbacks, made)


def _where(reason) -> str:
    """Why a graph broke, with the line of the model."""
    text = str(reason.reason).strip().splitlines()[0]
    frame = reason.user_stack[-1] if reason.user_stack else None
    return f"{text} ({frame.filename}:{frame.lineno})" if frame else text


def explain(model, *args, **kwargs) -> Explanation:
    """Runs `model` in eager mode and compiled, and says what the device was given each time: print the result.

    The model runs a few times: what it changes, such as the statistics of a batch norm, changes as often."""
    torch._dynamo.reset()
    traced = torch._dynamo.explain(model)(*args, **kwargs)
    torch._dynamo.reset()
    eager = _count(lambda: model(*args, **kwargs))
    compiled = torch.compile(model)
    compiled(*args, **kwargs)
    breaks = [_where(b) for b in traced.break_reasons]
    return Explanation(eager, _count(lambda: compiled(*args, **kwargs)), traced.graph_count, breaks)
