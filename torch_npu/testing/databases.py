"""The databases by name, and the dtypes of a full run."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch

from torch_npu.testing.case import Case

_MAKERS = {
    "ops": ("ops", "op_cases"),
    "foreach": ("ops", "foreach_cases"),
    "modules": ("modules", "module_cases"),
    "optimizers": ("optimizers", "optimizer_cases"),
    "compiled": ("compiled", "compiled_cases"),
}
NAMES = tuple(_MAKERS)
DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool", "complex64")


@dataclass(frozen=True)
class Task:
    """One entry of a database in one dtype, by name."""

    database: str
    name: str
    dtype: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@cache
def cases(database: str, dtype: str) -> dict[str, Case]:
    """Name to case. A database is imported when it is first asked for."""
    module, make = _MAKERS[database]
    return getattr(importlib.import_module(f"torch_npu.testing.{module}"), make)(getattr(torch, dtype))


def find(task: Task) -> Case:
    return cases(task.database, task.dtype)[task.name]


def tasks(databases: Iterable[str], dtypes: Iterable[str], pattern: str | None) -> list[Task]:
    """Everything whose name matches the pattern, dtype by dtype."""
    keep = re.compile(pattern or ".*")
    return [
        Task(database, name, dtype)
        for dtype in dtypes
        for database in databases
        for name in cases(database, dtype)
        if keep.fullmatch(name)
    ]


def load(path: str) -> None:
    """Runs a Python file that adds entries to the databases, such as OpInfos of custom ops."""
    name = f"conformance_entries_{re.sub('[^A-Za-z0-9]', '_', path)}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"expected a Python file, got {path}")
    sys.modules[name] = importlib.util.module_from_spec(spec)  # where Dynamo looks for what a function calls
    spec.loader.exec_module(sys.modules[name])
