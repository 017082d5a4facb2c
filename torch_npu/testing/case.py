"""One entry of a database in one dtype, run on the device against the CPU, sample by sample."""

from __future__ import annotations

import itertools
import random as random_numbers
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import torch

from torch_npu.testing import coverage, steps
from torch_npu.testing.compare import WIDE, assert_same, leaves, no_worse
from torch_npu.testing.result import Result


class Side:
    """A sample on one device, ready to run once."""

    device: str  # where results are expected
    leaves: list[torch.Tensor]  # what has a gradient

    def run(self, seed: int) -> Any:
        raise NotImplementedError

    def comparable(self, result: Any) -> Any:
        """The result as it is compared."""
        return result

    def differentiable(self, result: Any) -> Any:
        """The part of the result that gradients start from."""
        return result

    def comparable_gradients(self, gradients: list[Any]) -> list[Any]:
        """The gradients as they are compared."""
        return gradients

    def gradients(self, result: Any, like: torch.dtype | None = None) -> list[torch.Tensor | None]:
        outs = [t for t in leaves(self.differentiable(result)) if isinstance(t, torch.Tensor)]
        outs = [t for t in outs if t.requires_grad and t.layout == torch.strided]
        if not outs or not self.leaves:
            return []
        source = torch.Generator().manual_seed(7)
        # Plain cotangents of the outputs' shape: made on the CPU (in the type `like`), so that all sides get the same.
        seeds = [torch.randn(t.shape, dtype=like or t.dtype, generator=source).to(t.device, t.dtype) for t in outs]
        return list(torch.autograd.grad(outs, self.leaves, seeds, allow_unused=True))


class Form:
    """One way to run a sample. `make(device, wide)` is the sample on a device; `wide` in double precision.

    `random` results are compared in type, dimensions and device only. Where it is not given, the plain call tells.
    """

    def __init__(self, stage: str, make: Callable[[str, bool], Side], random: bool | None = None) -> None:
        self.stage = stage
        self.make = make
        self.random = random


class Case:
    """One entry of a database in one dtype."""

    database: str
    name: str
    dtype: torch.dtype
    limits: dict[str, float]
    own_ops: list[str] = []  # aten ops that are this entry, if any
    has_gradient = True
    tries = 1  # seeds to try before a result counts as not random; 0: it never is
    uninitialised = False  # results hold whatever was in memory
    other_seeds: Callable[[], Any] = nullcontext  # lets the caller's seed reach the op

    def samples(self, grad: bool) -> Iterable[list[Form]]:
        """The samples, each in one or more forms. The first one is the plain call, which has the gradient."""
        raise NotImplementedError


class Refused(Exception):
    """The CPU itself does not do this."""


class _Check:
    """The state of checking one case: where it is, what it counted."""

    def __init__(self, case: Case, device: str, grad: bool, where: Callable[[str], None]) -> None:
        self.case, self.device, self.where = case, device, where
        self.grad = grad and case.has_gradient and (case.dtype.is_floating_point or case.dtype.is_complex)
        self.result = Result(case.database, case.name, str(case.dtype).removeprefix("torch."))
        self.place = ""
        self.ran = False
        self.fault = ""  # what taking the call apart has found

    def at(self, number: int, stage: str) -> None:
        self.place = f"sample {number}, {stage}"
        self.where(self.place)

    def samples(self, limit: int | None, all_forms: bool) -> None:
        self.where("making the samples")
        torch.manual_seed(0)
        random_numbers.seed(0)
        try:
            samples = list(itertools.islice(self.case.samples(self.grad), limit))
        except Exception as error:  # noqa: BLE001 (nothing to compare with)
            self.result.status, self.result.message = "skipped", f"no samples on the CPU: {error}"
            return
        refused = "there are no samples"
        for number, forms in enumerate(samples):
            random: bool | None = None
            for form in forms if all_forms else forms[:1]:
                plain = form is forms[0]
                try:
                    random = self.form(number, form, plain, random if form.random is None else form.random)
                except Refused as error:
                    if not plain:  # the plain call is fine, this form of it is not offered
                        continue
                    refused = f"the CPU refuses every sample: {error}"
                    self.result.refused += 1
                    break
        if self.result.samples == 0:
            self.result.status, self.result.message = "skipped", refused

    def form(self, number: int, form: Form, plain: bool, random: bool | None) -> bool:
        """Runs and compares one form; says whether its results are random."""
        self.at(number, f"{form.stage} on the CPU")
        try:
            cpu = form.make("cpu", False)
            want = cpu.run(seed=0)
        except Exception as error:  # noqa: BLE001
            raise Refused(f"{type(error).__name__}: {error}") from None
        self.at(number, form.stage)
        npu = form.make(self.device, False)
        with coverage.counting_fallbacks(self.result.fallbacks):
            got = npu.run(seed=0)
        self.ran = True
        if random is None:
            random = self.is_random(form, want)
        try:
            same = npu.comparable(got), cpu.comparable(want)
            assert_same(*same, values=not random, device=npu.device, **self.case.limits)
        except AssertionError:
            assert_same(got, want, values=False, device=npu.device)
            if random or not self.forgiven(form, got, want, gradient=False):
                raise
            self.result.by_truth += 1
        self.result.samples += plain
        self.result.forms += not plain
        self.result.random += plain and random
        if plain and self.grad and not random:
            self.gradient(number, form, (cpu, want), (npu, got))
        return random

    def gradient(self, number: int, form: Form, cpu: tuple[Side, Any], npu: tuple[Side, Any]) -> None:
        self.at(number, "gradient on the CPU")
        try:
            want = cpu[0].gradients(cpu[1])
        except Exception:  # noqa: BLE001
            self.result.refused += 1
            return
        self.at(number, "gradient")
        with coverage.counting_fallbacks(self.result.fallbacks):
            got = npu[0].gradients(npu[1])
        assert [g is None for g in got] == [g is None for g in want], "other inputs have gradients"
        same = npu[0].comparable_gradients(got), cpu[0].comparable_gradients(want)
        try:
            assert_same(*same, values=True, device=self.device, **self.case.limits)
        except AssertionError:
            assert_same(got, want, values=False, device=self.device)
            if not self.forgiven(form, got, want, gradient=True):
                raise
            self.result.by_truth += 1
        self.result.gradients += bool(got)

    def is_random(self, form: Form, first: Any) -> bool:
        """One of a few other seeds gives another result on the CPU (small results can agree by chance)."""
        if self.case.uninitialised:
            return True
        for seed in range(100, 100 + self.case.tries):
            with self.case.other_seeds():
                again = form.make("cpu", False).run(seed)
            try:
                assert_same(again, first, values=True, device="cpu")
            except AssertionError:
                return True
        return False

    def forgiven(self, form: Form, got: Any, want: Any, gradient: bool) -> bool:
        """Two results of low precision may differ by more than the tolerance where the arithmetic magnifies errors:
        then the same in double precision decides."""
        if self.case.dtype not in WIDE:
            return False
        try:
            wide = form.make("cpu", True)
            truth = wide.run(seed=0)
            if gradient:
                truth = wide.gradients(truth, like=self.case.dtype)
            if no_worse(got, want, truth, self.case.limits):
                return True
        except Exception:  # noqa: BLE001 (another shape or position, or it does not exist in double precision)
            pass
        if self.case.dtype not in (torch.bfloat16, torch.float16):
            return False
        self.fault = steps.fault(lambda: self.again(form, gradient), self.device, got, want)
        return not self.fault

    def again(self, form: Form, gradient: bool) -> None:
        side = form.make(self.device, False)
        result = side.run(seed=0)
        if gradient:
            side.gradients(result)


def check(
    case: Case,
    *,
    device: str,
    grad: bool,
    limit: int | None = None,
    forms: bool = True,
    where: Callable[[str], None] = lambda place: None,
) -> Result:
    """Runs the samples on both devices. Samples that the CPU itself refuses do not count.

    Without `forms`, plain calls only. `where` is told what is about to run, so that somebody knows if the process does
    not survive it.
    """
    checking = _Check(case, device, grad, where)
    result = checking.result
    start = time.perf_counter()
    try:
        checking.samples(limit, forms)
    except AssertionError as error:
        result.status, result.message = "wrong", f"{checking.place}: {error}"
        result.message += f"\nTaken apart, {checking.fault}" if checking.fault else ""
    except Exception as error:  # noqa: BLE001
        result.status, result.message = "raised", f"{checking.place}: {type(error).__name__}: {error}"
    if checking.ran:
        result.how = coverage.how(result.fallbacks, case.own_ops)
    result.seconds = round(time.perf_counter() - start, 3)
    return result
