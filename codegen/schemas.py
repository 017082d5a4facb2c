"""The ops of the installed PyTorch, read from the native_functions.yaml that its wheel ships.

The file is read line by line, because PyTorch does not bring a YAML parser; torchgen parses the schemas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torchgen
from torchgen import local
from torchgen.api.types import DispatcherSignature
from torchgen.model import FunctionSchema, SchemaKind

_ENTRY = re.compile(r"^- func: (.*?)\s*$")
_FIELD = re.compile(r"^  (structured|structured_delegate|structured_inherits):\s*(\S+)")


@dataclass
class Function:
    """One entry of native_functions.yaml."""

    schema: FunctionSchema
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:  # add.Tensor
        return str(self.schema.name)

    @property
    def plain(self) -> str:  # add, add_: without the overload
        return str(self.schema.name.name)

    @property
    def overload(self) -> str:
        return self.schema.name.overload_name

    @property
    def base(self) -> str:  # add, also for add_.Tensor; names the headers ATen/ops/<base>_*.h
        return self.schema.name.name.base

    @property
    def struct(self) -> str:  # at::_ops::add_Tensor
        return self.schema.name.unambiguous_name()


@dataclass
class Op:
    """The forms of one op: functional, in-place and out, as far as they exist."""

    functional: Function
    inplace: Function | None = None
    out: Function | None = None

    @property
    def name(self) -> str:
        return self.functional.name

    @property
    def structured(self) -> bool:
        return self.out is not None and self.out.fields.get("structured") == "True"

    @property
    def arguments(self) -> list[str]:
        """Names of all arguments, in the order of the C++ call."""
        return [a.name for a in self.functional.schema.arguments.flat_all]

    @property
    def types(self) -> list[str]:
        """Their C++ types: const at::Tensor &, bool."""
        with local.parametrize(use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=self.structured):
            return [a.type for a in DispatcherSignature.from_schema(self.functional.schema, symint=False).arguments()]


def _read(path: Path) -> list[Function]:
    functions: list[Function] = []
    for line in path.read_text().splitlines():
        if entry := _ENTRY.match(line):
            functions.append(Function(FunctionSchema.parse(entry[1])))
        elif (item := _FIELD.match(line)) and functions:
            functions[-1].fields[item[1]] = item[2]
    return functions


@cache
def ops() -> dict[str, Op]:
    """Functional name ("add.Tensor") to the op's forms."""
    path = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    by_signature: dict[tuple[str, str], list[Function]] = {}
    for function in _read(path):
        key = (function.base, str(function.schema.signature()))
        by_signature.setdefault(key, []).append(function)
    found = {}
    for group in by_signature.values():
        kinds = {f.schema.kind(): f for f in group}
        if SchemaKind.functional in kinds:
            op = Op(kinds[SchemaKind.functional], kinds.get(SchemaKind.inplace), kinds.get(SchemaKind.out))
            found[op.name] = op
    return found
