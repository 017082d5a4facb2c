"""How an op runs on the device: by a kernel of its own, through other ops, or partly on the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

import torch

import torch_npu

_KEY = "PrivateUse1"


@cache
def aten_ops() -> dict[str, tuple[str, ...]]:
    """Base name ("add") to the registered overloads ("aten::add.Tensor", ...)."""
    ops: dict[str, list[str]] = {}
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        if full.startswith("aten::"):
            ops.setdefault(full.removeprefix("aten::").split(".")[0], []).append(full)
    return {base: tuple(overloads) for base, overloads in ops.items()}


def has_kernel(op: str, key: str = _KEY) -> bool:
    """The op ("aten::add.Tensor") is registered for the device itself."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(op, key)


def has_own_kernel(bases: Iterable[str]) -> bool:
    """Some overload of these aten ops is registered for the device itself."""
    return any(has_kernel(op) for base in bases for op in aten_ops().get(base, ()))


def base_names(info_name: str) -> list[str]:
    """The aten ops that an OpInfo's aten_name means: "nn.functional.silu" is silu, "special.i0e" special_i0e."""
    name = info_name.removesuffix(".default")
    for prefix in ("nn.functional.", "torch.ops.aten.", "torch."):
        name = name.removeprefix(prefix)
    if name.startswith("__r") and name.endswith("__"):
        name = name[3:-2]
    base = name.replace(".", "_")
    return [name for name in (base, f"{base}_") if name in aten_ops()]


@contextmanager
def counting_fallbacks(into: dict[str, int]) -> Iterator[None]:
    """Adds the fallbacks of the with block to `into`."""
    torch_npu.fallback.reset()
    try:
        yield
    finally:
        for op, count in torch_npu.fallback.report().items():
            into[op] = into.get(op, 0) + count


def how(fallbacks: dict[str, int], bases: Iterable[str]) -> str:
    if fallbacks:
        return "fallback"
    return "native" if has_own_kernel(bases) else "decomposed"


# Left out of the share of ops that must run without fallback: factorisations and solvers, transforms, sparse layouts.
_OUTSIDE = ("linalg.", "fft.", "sparse.", "signal.windows.", "torch.ops.aten._nested", "nn.functional.quant")
_OUTSIDE_NAMES = (
    *("cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "logdet", "lu", "lu_solve", "lu_unpack", "matrix_exp"),
    *("norm.nuc", "ormqr", "pca_lowrank", "pinverse", "qr", "svd", "svd_lowrank", "triangular_solve"),
    *("istft", "stft", "to_sparse"),
)


def in_scope(full_name: str) -> bool:
    """Whether the op belongs to those that have to run without fallback."""
    return not full_name.startswith(_OUTSIDE) and full_name not in _OUTSIDE_NAMES
