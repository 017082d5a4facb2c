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

NAMES = ("ops", "foreach", "modules", "optimizers", "compiled")
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
    kind = getattr(torch, dtype)
    if database == "modules":
        from torch_npu.testing.modules import module_cases as make
    elif database == "optimizers":
        from torch_npu.testing.optimizers import optimizer_cases as make
    elif database == "compiled":
        from torch_npu.testing.compiled import compiled_cases as make
    elif database == "foreach":
        from torch_npu.testing.ops import foreach_cases as make
    else:
        from torch_npu.testing.ops import op_cases as make
    return make(kind)


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
