"""One OpInfo on npu against the CPU: every sample, forward and gradient."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations
from torch.utils._pytree import tree_flatten, tree_map

# Ops with a tensor argument that stays on the host on every device, as their OpInfos make it.
_HOST_ARGUMENTS = ("tensor_split",)
# Ops that may draw random numbers: worth more than one try to see it.
_SEEDED = re.compile("rand|bernoulli|multinomial|normal|dropout|fractional|rrelu|geometric|attention|lowrank")
# Ops that answer with the positions of equal elements in any order, and the names of their arguments: positions are
# compared by what lies there.
_PICKS = {"topk": ("k", "dim"), "kthvalue": ("k", "dim"), "sort": ("dim",), "argsort": ("dim",)}
# Results that hold whatever was in memory; only shape, type and device can be compared.
_UNINITIALISED = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted")


@dataclass
class Result:
    """What became of one OpInfo. status: passed, wrong, raised, crashed, timeout or skipped."""

    name: str
    status: str = "passed"
    message: str = ""
    samples: int = 0
    gradients: int = 0
    random: int = 0  # samples compared in type, dimensions and device only
    by_truth: int = 0  # results outside the tolerance that a double precision run found no worse than the CPU's
    refused: int = 0  # samples whose forward or gradient the CPU itself refuses
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _is_part(value: torch.Tensor) -> bool:
    """The tensor is not exactly the memory behind it: a slice, with gaps, or with repeats."""
    return value.untyped_storage().nbytes() != value.numel() * value.element_size()


class Mover:
    """Moves a sample to a device. A tensor that occurs twice stays one tensor, and strides are kept."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.used = False  # something of the sample is on the device, so results are expected there
        self.memo: dict[int, torch.Tensor] = {}
        self.leaves: list[torch.Tensor] = []

    def __call__(self, tree: Any) -> Any:
        return tree_map(self._move, tree)

    def _move(self, value: Any) -> Any:
        if isinstance(value, str | torch.device) and str(value) == "cpu":
            self.used = True
            return self.device
        if not isinstance(value, torch.Tensor):
            return value
        self.used = True
        if id(value) not in self.memo:
            moved = self._copy(value.detach())
            if value.requires_grad:
                moved.requires_grad_(True)
                self.leaves.append(moved)
            self.memo[id(value)] = moved
        return self.memo[id(value)]

    def _copy(self, value: torch.Tensor) -> torch.Tensor:
        plain = value.layout == torch.strided and not value.is_quantized and not value.is_conj() and not value.is_neg()
        if plain and value.numel() > 0 and _is_part(value):
            whole = value.untyped_storage().nbytes() // value.element_size()
            base = value.as_strided((whole,), (1,), 0).to(self.device, copy=True)
            return base.as_strided(value.size(), value.stride(), value.storage_offset())
        return value.to(self.device, copy=True)


def tolerance(op: Any, dtype: torch.dtype) -> dict[str, float]:
    """The widest tolerance that PyTorch's own tests grant this op, or the default for the type."""
    atol = rtol = 0.0
    for decorate in getattr(op, "decorators", ()):
        for inner in getattr(decorate, "decorators", [decorate]):
            for kind, value in getattr(inner, "d", {}).items():
                if kind == dtype:  # a plain number is a precisionOverride: absolute only
                    atol = max(atol, getattr(value, "atol", value))
                    rtol = max(rtol, getattr(value, "rtol", 0.0))
    default = torch.testing._comparison.default_tolerances(torch.empty((), dtype=dtype))
    return {"rtol": max(rtol, default[0]), "atol": max(atol, default[1])}


def _tensors(tree: Any) -> list[Any]:
    return [leaf for leaf in tree_flatten(tree)[0] if leaf is not None]


def _dense(value: torch.Tensor) -> torch.Tensor:
    value = value.detach()
    return value.cpu().to_dense() if value.layout != torch.strided else value.cpu()


def _own_limits(dtype: torch.dtype, limits: dict[str, float]) -> dict[str, float]:
    if not limits or not (dtype.is_floating_point or dtype.is_complex):
        return {"rtol": 0.0, "atol": 0.0}
    rtol, atol = torch.testing._comparison.default_tolerances(torch.empty((), dtype=dtype))
    return {"rtol": max(limits["rtol"], rtol), "atol": max(limits["atol"], atol)}


def assert_same(got: Any, want: Any, *, values: bool, device: str, **limits: float) -> None:
    """Raises AssertionError at the first difference. Without `values`, shape, type and device only.

    `limits` widen the default tolerance of each result's own type (an integer op may have a float result); without
    limits the comparison is exact.
    """
    got_leaves, want_leaves = _tensors(got), _tensors(want)
    assert len(got_leaves) == len(want_leaves), f"expected {len(want_leaves)} results, got {len(got_leaves)}"
    for a, b in zip(got_leaves, want_leaves, strict=True):
        if not isinstance(b, torch.Tensor):
            if isinstance(b, float | int | bool | complex) and values:
                torch.testing.assert_close(a, b, equal_nan=True)
            continue
        assert isinstance(a, torch.Tensor), f"expected a tensor, got {type(a).__name__}"
        assert a.device.type == device, f"expected a result on {device}, got one on {a.device}"
        assert a.dtype == b.dtype, f"expected dtype {b.dtype}, got {a.dtype}"
        assert a.layout == b.layout, f"expected layout {b.layout}, got {a.layout}"
        if values:
            assert a.shape == b.shape, f"expected shape {tuple(b.shape)}, got {tuple(a.shape)}"
            torch.testing.assert_close(_dense(a), _dense(b), equal_nan=True, **_own_limits(b.dtype, limits))
        else:
            assert a.dim() == b.dim(), f"expected {b.dim()} dimensions, got {a.dim()}"


class Call:
    """A sample on a device, ready to run."""

    def __init__(self, op: Any, sample: Any, device: str) -> None:
        move = Mover(device)
        self.op = op
        host = op.name in _HOST_ARGUMENTS
        self.input, self.kwargs = move((sample.input, dict(sample.kwargs)))
        self.args = list(sample.args) if host else move(list(sample.args))
        self.leaves = move.leaves
        self.device = device if move.used else "cpu"

    def run(self, seed: int) -> Any:
        torch.manual_seed(seed)
        return self.op(self.input, *self.args, **self.kwargs)


def _gradients(
    out: Any, leaves: list[torch.Tensor], sample: Any, like: torch.dtype | None = None
) -> list[torch.Tensor | None]:
    out = sample.output_process_fn_grad(out)
    outs = [t for t in _tensors(out) if isinstance(t, torch.Tensor) and t.requires_grad and t.layout == torch.strided]
    if not outs or not leaves:
        return []
    source = torch.Generator().manual_seed(7)
    # Plain cotangents of the outputs' shape: made on the CPU (in the type `like`), so that all sides get the same.
    seeds = [torch.randn(t.shape, dtype=like or t.dtype, generator=source).to(t.device, t.dtype) for t in outs]
    return list(torch.autograd.grad(outs, leaves, seeds, allow_unused=True))


def _picked(op: Any, call: Call, result: Any) -> Any:
    """The result with positions replaced by the elements at them, for the ops of _PICKS."""
    if op.name not in _PICKS or call.input.dim() == 0 or call.kwargs.get("stable"):
        return result
    dim = (dict(zip(_PICKS[op.name], call.args, strict=False)) | call.kwargs).get("dim", -1)
    values, positions = result if op.name != "argsort" else (None, result)
    wide = positions if positions.dim() == call.input.dim() else positions.unsqueeze(dim)
    return values, call.input.detach().cpu().gather(dim, wide.cpu()).to(positions.device)


def _as_double(leaf: torch.Tensor) -> torch.Tensor:
    value = _dense(leaf)
    return torch.view_as_real(value.to(torch.complex128).resolve_conj()) if value.is_complex() else value.double()


def _no_worse(got: Any, want: Any, truth: Any, limits: dict[str, float]) -> bool:
    """Every element is within the tolerance of the double precision result, or at most twice as far as the CPU's."""
    for got_leaf, want_leaf, true_leaf in zip(_tensors(got), _tensors(want), _tensors(truth), strict=True):
        if not isinstance(want_leaf, torch.Tensor) or not (want_leaf.is_floating_point() or want_leaf.is_complex()):
            assert_same(got_leaf, want_leaf, values=True, device=got_leaf.device.type)
            continue
        mine, theirs, true = (_as_double(leaf) for leaf in (got_leaf, want_leaf, true_leaf))
        finite = true.isfinite() & theirs.isfinite()
        torch.testing.assert_close(mine[~finite], theirs[~finite], rtol=0.0, atol=0.0, equal_nan=True)
        if finite.any():
            allowed = _own_limits(want_leaf.dtype, limits)
            bound = 2 * (theirs - true)[finite].abs() + allowed["atol"] + allowed["rtol"] * true[finite].abs()
            if not ((mine - true)[finite].abs() <= bound).all():
                return False
    return True


def _forgiven(op: Any, sample: Any, dtype: torch.dtype, got: Any, want: Any, grad: bool, limits: Any) -> bool:
    """Two results of low precision may differ by more than the tolerance where the arithmetic magnifies errors: then
    the op in double precision decides."""
    wide_types = {torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64}
    wide_types[torch.complex64] = torch.complex128
    if dtype not in wide_types:
        return False

    def widen(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype in wide_types:
            return value.detach().to(wide_types[value.dtype]).requires_grad_(value.requires_grad)
        return wide_types[dtype] if value is dtype else value

    try:
        wide = Call(op, sample.transform(widen), "cpu")
        truth = wide.run(seed=0)
        if grad:
            truth = _gradients(truth, wide.leaves, sample, like=dtype)
        return _no_worse(got, want, truth, limits)
    except Exception:  # noqa: BLE001 (another shape or position, or the op does not exist in double precision)
        return False


@contextmanager
def _seeds_from_outside():
    """Random OpInfos set a fixed seed around the op; this lets the caller's seed through."""
    wrapper = common_methods_invocations.wrapper_set_seed
    common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    try:
        yield
    finally:
        common_methods_invocations.wrapper_set_seed = wrapper


def _is_random(op: Any, sample: Any, first: Any) -> bool:
    """One of a few other seeds gives another result on the CPU (small results can agree by chance)."""
    if op.name.rsplit(".", 1)[-1] in _UNINITIALISED:
        return True
    for seed in range(100, 108):
        with _seeds_from_outside():
            again = Call(op, sample, "cpu").run(seed)
        try:
            assert_same(again, first, values=True, device="cpu")
        except AssertionError:
            return True
        if not _SEEDED.search(op.full_name):
            break
    return False


def check(op: Any, dtype: torch.dtype, *, device: str, grad: bool, limit: int | None = None) -> Result:
    """Runs the samples of one OpInfo on both devices. Samples that the CPU itself refuses do not count."""
    result = Result(op.full_name)
    start = time.perf_counter()
    grad = grad and op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    try:
        torch.manual_seed(0)
        samples = list(op.sample_inputs("cpu", dtype, requires_grad=grad))[:limit]
    except Exception as error:  # noqa: BLE001 (the CPU has no samples: nothing to compare with)
        return Result(op.full_name, "skipped", f"no samples on the CPU: {error}")
    limits = tolerance(op, dtype)
    refused = "there are no samples"
    for number, sample in enumerate(samples):
        cpu = Call(op, sample, "cpu")
        try:
            want = cpu.run(seed=0)
        except Exception as error:  # noqa: BLE001
            refused = f"the CPU refuses every sample: {type(error).__name__}: {error}"
            result.refused += 1
            continue
        try:
            stage = "forward"
            npu = Call(op, sample, device)
            got = npu.run(seed=0)
            random = _is_random(op, sample, want)
            try:
                got_same, want_same = _picked(op, npu, got), _picked(op, cpu, want)
                assert_same(got_same, want_same, values=not random, device=npu.device, **limits)
            except AssertionError:
                assert_same(got, want, values=False, device=npu.device)
                if not _forgiven(op, sample, dtype, got, want, False, limits):
                    raise
                result.by_truth += 1
            result.samples += 1
            result.random += random
            if grad and not random:
                try:
                    want_grad = _gradients(want, cpu.leaves, sample)
                except Exception:  # noqa: BLE001
                    result.refused += 1
                    continue
                stage = "gradient"
                got_grad = _gradients(got, npu.leaves, sample)
                assert [g is None for g in got_grad] == [g is None for g in want_grad], "other inputs have gradients"
                try:
                    assert_same(got_grad, want_grad, values=True, device=device, **limits)
                except AssertionError:
                    assert_same(got_grad, want_grad, values=False, device=device)
                    if not _forgiven(op, sample, dtype, got_grad, want_grad, True, limits):
                        raise
                    result.by_truth += 1
                result.gradients += bool(got_grad)
        except AssertionError as error:
            result.status, result.message = "wrong", f"sample {number}, {stage}: {error}"
            break
        except Exception as error:  # noqa: BLE001
            result.status, result.message = "raised", f"sample {number}, {stage}: {type(error).__name__}: {error}"
            break
    if result.status == "passed" and result.samples == 0:
        result.status, result.message = "skipped", refused
    result.seconds = time.perf_counter() - start
    return result
