"""Two devices in lock-step: torch_npu.verify(model, inputs, reference="cmodel", device="rtl").

Every command of the model runs on both, and what it wrote is compared, by the driver `lockstep` (docs/verification.md).
"""

import copy
import ctypes
import dataclasses
import functools
import json
import linecache
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

import torch_npu
from torch_npu import _info, fallback


@dataclasses.dataclass
class Difference:
    """Where the two first disagree."""

    op: str  # the label of the command: aten::addmm
    kind: str  # MATMUL; "copy" if the host read something that no command should have written
    command: int  # its number on the device, from 1
    line: str  # "lenet.py:31: x = self.fc1(x)"; empty if the script caught the exception
    elements: list[dict]  # operand, place, expected, got: the first eight
    reproduction: str  # a recording with this one command, for npu-replay
    text: str  # all of it, as the exception said it

    def __str__(self) -> str:
        where = f"\n  at {self.line}" if self.line else ""
        repeat = f"\n  repeat it: npu-replay {self.reproduction} --driver DRIVER" if self.reproduction else ""
        return f"{self.op}, command {self.command} ({self.kind}){where}\n  {self.text}{repeat}"


@dataclasses.dataclass
class Report:
    """What was compared, and the first difference."""

    device: str
    reference: str
    commands: int = 0
    bytes: int = 0
    same_bits: int = 0  # commands whose results agree bit for bit
    within_budget: int = 0  # commands that needed the budget
    budget_used: float = 0.0  # the largest part of it that an element needed
    by_isa: int = 0  # commands that the reference does not have: support/ computed them as docs/isa.md says
    refused: dict[str, int] = dataclasses.field(default_factory=dict)  # ops that the device left to the CPU
    fallbacks: dict[str, int] = dataclasses.field(default_factory=dict)
    difference: Difference | None = None
    result: Any = None  # what the model returned, or None

    @property
    def ok(self) -> bool:
        """Something was compared, and no difference was found."""
        return self.difference is None and self.commands > 0

    def __str__(self) -> str:
        used = f", {self.budget_used:.0%} of it used" if self.within_budget else ""
        lines = [
            f"{self.device} against {self.reference}: {self.commands} commands, {self.bytes} bytes compared",
            f"  {self.same_bits} bit for bit, {self.within_budget} within budget{used}"
            + (f", {self.by_isa} against docs/isa.md itself" if self.by_isa else ""),
        ]
        for title, counts in (("refused by the device", self.refused), ("run on the CPU", self.fallbacks)):
            if counts:
                lines.append(f"  {title}: " + ", ".join(f"{op} {count}" for op, count in counts.items()))
        if self.difference:
            lines.append(f"DIFFERENCE in {self.difference}")
        else:
            nothing = "the device was given no command"
            if self.refused or self.fallbacks:
                nothing = "the device refused every command" if self.refused else "all of these ops ran on the CPU"
            lines.append("no difference" if self.commands else f"NOTHING COMPARED: {nothing}")
        return "\n".join(lines)


def lockstep_spec(reference: str, device: str, exact: bool | str | None = None, out: str = ".") -> str:
    """The driver that runs the two, as TORCH_NPU_DRIVER takes it. A plain "cmodel" as reference is its exact mode."""
    if exact is None:
        exact = "yes"
    elif isinstance(exact, bool):
        exact = "yes" if exact else "no"
    elif exact not in ("yes", "split", "no"):
        raise ValueError(f"expected exact to be yes, split or no, got {exact!r}")
    if reference == "cmodel":
        reference = "cmodel:mode=exact"
    for text in (reference, device, out):
        if text.count("[") != text.count("]"):
            raise ValueError(f"expected brackets in pairs, got {text!r}")
    return f"lockstep:device=[{device}]:reference=[{reference}]:exact={exact}:out=[{out}]"


def wrapper_report(spec: str) -> Any:
    """What a loaded wrapper says about itself; None if this driver has not been loaded with these options."""
    name, _, options = spec.partition(":")
    library = ctypes.CDLL(str(Path(_info.library_path()) / f"libnpu_{name}.so"))
    library.npu_wrapper_report.restype = ctypes.c_char_p
    text = library.npu_wrapper_report(options.encode())
    return json.loads(text.decode(errors="replace")) if text else None


def python_line(trace: TracebackType | None) -> str:
    """The innermost line of a traceback that belongs neither to torch nor to torch_npu: "file.py:12: code"."""
    ours = tuple(os.path.join(folder, "") for folder in (*torch.__path__, *torch_npu.__path__))
    found = ""
    for frame, line in traceback.walk_tb(trace):
        name = frame.f_code.co_filename
        if not name.startswith((*ours, "<frozen")) and "runpy" not in name:
            found = f"{name}:{line}: {linecache.getline(name, line).strip()}"
    return found


def make_report(spec: str, trace: TracebackType | None, fallbacks: dict[str, int]) -> Report:
    """From what the lockstep driver counted."""
    facts = wrapper_report(spec)
    if facts is None:
        return Report(device="(never opened)", reference="(never opened)", fallbacks=fallbacks)
    difference = facts.pop("difference")
    names = {field.name for field in dataclasses.fields(Report)}
    report = Report(**{key: value for key, value in facts.items() if key in names}, fallbacks=fallbacks)
    if difference:
        parts = {key: difference[key] for key in ("op", "kind", "command", "elements", "reproduction", "text")}
        report.difference = Difference(line=python_line(trace), **parts)
    return report


def _move(value: Any, device: str) -> Any:
    return torch.utils._pytree.tree_map(lambda v: v.to(device) if isinstance(v, torch.Tensor) else v, value)


def prepared(
    model: Any, inputs: Any, step: Callable | None, device: str, always_copy: bool = False
) -> Callable[[], Any]:
    """A call of the model, or of `step` with it, on a device. A module that is there is only copied if asked."""
    if isinstance(model, torch.nn.Module):
        kinds = {t.device.type for t in (*model.parameters(), *model.buffers())}
        if always_copy or kinds != {torch.device(device).type}:
            model = copy.deepcopy(model).to(device)
    arguments = _move(inputs, device)
    function = functools.partial(step, model) if step else model
    if isinstance(arguments, dict):
        return functools.partial(function, **arguments)
    return functools.partial(function, *((arguments,) if isinstance(arguments, torch.Tensor) else tuple(arguments)))


_devices: dict[str, str] = {}


def _device_of(spec: str) -> str:
    if spec not in _devices:
        _devices[spec] = _info.add_driver(spec)[0]
    return _devices[spec]


def verify(
    model: Callable,
    inputs: Any,
    reference: str = "cmodel",
    device: str = "rtl",
    *,
    step: Callable | None = None,
    exact: bool | str | None = None,
    out: str | os.PathLike = ".",
) -> Report:
    """Runs the model on `device` and on `reference`, command by command, and compares. Stops at the first difference.

    `inputs` is a tensor, a tuple or list of arguments, or a dict of keyword arguments. The model is a module, of which
    a copy is moved to the device, or a function. `step(model, *inputs)` replaces the plain call, for a training step.
    `exact`: True (or "yes"): everything must agree bit for bit, float sums and functions as docs/isa.md defines them.
    False ("no"): sums may be off by one rounding per term, and functions by their budget, for devices without an exact
    mode. "split": of sums only products of float32 and float64 may, for a matrix engine that makes them of narrower
    ones. `out` is the folder of the reproduction.
    """
    spec = lockstep_spec(reference, device, exact, str(Path(out).resolve()))
    name = _device_of(spec)
    library = ctypes.CDLL(str(Path(_info.library_path()) / "libnpu_lockstep.so"))
    library.npu_wrapper_restart(spec.partition(":")[2].encode())
    before = fallback.report()
    result, trace = None, None
    try:
        # Autograd has a thread for each device that was there at its first backward: this one may be younger.
        with torch_npu.npu.device(name), torch.autograd.set_multithreading_enabled(False):
            call = prepared(model, inputs, step, name, always_copy=True)
            result = _move(call(), "cpu")
            torch_npu.npu.synchronize(name)
    except Exception as error:
        if (wrapper_report(spec) or {}).get("difference") is None:
            raise
        trace = error.__traceback__
    now = fallback.report()
    fallen = {op: count - before.get(op, 0) for op, count in now.items() if count > before.get(op, 0)}
    report = make_report(spec, trace, fallen)
    report.result = result
    return report
