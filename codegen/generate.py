"""Turns an op table into C++: python codegen/generate.py --table pointwise.ops --out FOLDER

Writes programs.cpp (the program texts), kernels.h (programs for kernels written by hand) and registrations_<n>.cpp (the
functional, in-place and out form of every op). Files whose content stays the same are not touched, so that an edit of
the table compiles little. Ops that the installed PyTorch does not have are left out and named.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from schemas import Op, ops  # noqa: E402
from table import Entry, Variant, read_table  # noqa: E402

SHARDS = 2
_NOTE = "// Made by codegen/generate.py from {table}. Do not edit.\n"
_TYPES = {"bool": "NPU_BOOL", "i32": "NPU_I32", "i64": "NPU_I64", "u64": "NPU_U64", "f32": "NPU_F32", "f64": "NPU_F64"}
# What a structured meta function takes where the op's own call has an optional.
_REFERENCES = {"Scalar?": "at::OptionalScalarRef", "Tensor?": "at::OptionalTensorRef"}


def kernel_name(entry: Entry, index: int) -> str:
    return entry.identifier if entry.kernel else f"{entry.identifier}_{index}"


def quote(text: str | None) -> str:
    return f'R"({text})"' if text else "nullptr"


def programs(entries: list[Entry], namespace: str) -> str:
    lines = ['#include "csrc/aten/dispatch/map.h"\n', f"namespace torch_npu::{namespace} {{"]
    for entry in entries:
        for index, variant in enumerate(entry.variants):
            name = kernel_name(entry, index)
            texts = [quote(variant.texts.get(kind)) for kind in ("float", "int", "bool")]
            if "complex" in variant.texts:
                texts += [quote(variant.texts["complex"]), hex(variant.pairs)]
            lines += [f"// {line}" for line in variant.source]
            lines += [f"extern TypedProgram {name};", f"constinit TypedProgram {name}({', '.join(texts)});", ""]
    return "\n".join([*lines, "}", ""])


def kernels_header(entries: list[Entry], namespace: str) -> str:
    lines = ["#pragma once", '#include "csrc/aten/dispatch/map.h"\n', f"namespace torch_npu::{namespace} {{"]
    for entry in entries:
        if entry.kernel:
            lines += [f"// {line}" for variant in entry.variants for line in variant.source]
            lines.append(f"extern TypedProgram {entry.identifier};")
    return "\n".join([*lines, "}", ""])


def parameters(op: Op, used: set[str]) -> str:
    """The op's arguments as C++ parameters; those that nothing reads stay without a name."""
    return ", ".join(f"{type_}{' ' + name if name in used else ''}" for type_, name in zip(op.types, op.arguments))


def call(entry: Entry, variant: Variant, index: int) -> list[str]:
    kernel = kernel_name(entry, index)
    condition = f" && ({variant.condition})" if variant.condition else ""
    params, parts = [], []
    for param in variant.params:
        name, _, type_ = (part.strip() for part in param.partition(":"))
        params.append(f"call.param({name}{', ' + _TYPES[type_] if type_ in _TYPES else ''})")
        parts += [params[-1]] if type_ else [f"call.real({name})", f"call.imag({name})"]
    lines = [f"  if (call.has({kernel}){condition}) return call.run({kernel}, {{{', '.join(params)}}});"]
    if variant.parts:
        lines.append(f"  if (call.partwise(){condition}) return call.run_parts({kernel});")
    if "complex" in variant.texts:
        run = f"call.run_complex({kernel}, {{{', '.join(parts)}}})"
        lines.append(f"  if (call.has_complex({kernel}){condition}) return {run};")
    return lines


def launch(entry: Entry, op: Op) -> tuple[str, list[str]]:
    """How the op's programs are chosen: a program that always is, or a function."""
    for variant in entry.variants:
        if missing := [p for p in variant.param_names if p not in op.arguments]:
            raise SystemExit(f"{entry.name}: expected parameters out of {op.arguments}, got {missing[0]}")
        if len(variant.operands) > len(op.arguments):
            raise SystemExit(f"{entry.name}: expected at most {len(op.arguments)} operands, got {variant.operands}")
    lines = [f"extern TypedProgram {kernel_name(entry, i)};" for i in range(len(entry.variants))]
    first = entry.variants[0]
    if len(entry.variants) == 1 and not (first.condition or first.params or first.parts):
        return f"nullptr, &{kernel_name(entry, 0)}", lines
    conditions = " ".join(v.condition for v in entry.variants)
    used = {a for a in op.arguments if a in conditions or any(a in v.param_names for v in entry.variants)}
    name = f"launch_{op.functional.struct}"
    lines.append(f"static void {name}(const PointwiseCall& call, {parameters(op, used)}) {{")
    for index, variant in enumerate(entry.variants):
        lines += call(entry, variant, index)
    return f"{name}, nullptr", [*lines, "  call.refuse();", "}"]


def own_meta(entry: Entry, op: Op) -> tuple[str, list[str]]:
    """An op that is not structured: an iterator over the operands, which the table names as the schema does."""
    operands = entry.variants[0].operands
    if missing := [o for o in operands if o not in op.arguments]:
        raise SystemExit(f"{entry.name}: expected operands out of {op.arguments}, got {missing[0]}")
    name = f"meta_{op.functional.struct}"
    listed = ", ".join(f"&{o}" for o in operands)
    return name, [
        f"static void {name}(PointwiseIterator& iter, {parameters(op, set(operands))}) {{",
        *([] if entry.complex else [f"  iter.refuse_complex({{{listed}}});"]),
        f"  iter.{entry.iterator}({', '.join(operands)});",
        "}",
    ]


def structured_meta(op: Op) -> tuple[str, list[str]]:
    meta = f"structured_meta<&at::meta::structured_{op.name.replace('.', '_')}::meta>"
    arguments = op.functional.schema.arguments.flat_all
    if not any(str(a.type) in _REFERENCES for a in arguments):
        return meta, []
    name = f"meta_{op.functional.struct}"
    passed = [
        f"optional_ref<{_REFERENCES[t]}>({a.name})" if (t := str(a.type)) in _REFERENCES else a.name for a in arguments
    ]
    return name, [
        f"static void {name}(PointwiseIterator& iter, {parameters(op, set(op.arguments))}) {{",
        f"  {meta}(iter, {', '.join(passed)});",
        "}",
    ]


def registration(entry: Entry, op: Op) -> tuple[list[str], str, set[str]]:
    """Definitions, the line that registers, and the headers they need."""
    if not entry.iterator and not op.structured:
        raise SystemExit(f"{entry.name}: not structured in PyTorch, expected a mark that says how to iterate")
    meta, definitions = own_meta(entry, op) if entry.iterator else structured_meta(op)
    choice, lines = launch(entry, op)
    numbers = "Numbers::kCompute" if entry.wide else "Numbers::kRounded"
    name = f"k_{op.functional.struct}"
    lines += definitions
    lines.append(f"constexpr PointwiseOp<{', '.join(op.types)}> {name}{{")
    lines.append(f'    "aten::{op.functional.base}", {meta}, {choice}, {numbers}}};')
    names = [f'{{"aten::{f.plain}", "{f.overload}"}}' if f else "{}" for f in (op.functional, op.inplace, op.out)]
    headers = set() if entry.iterator else {f"ATen/ops/{op.functional.base}_meta.h"}
    return lines, f"  register_pointwise(m, {name}, {', '.join(names)});", headers


def shard(entries: list[tuple[Entry, Op]], namespace: str) -> str:
    definitions, bodies, headers = [], [], set()
    for entry, op in entries:
        made, body, includes = registration(entry, op)
        definitions += [f"// {line}" for v in entry.variants for line in v.source] + made + [""]
        bodies.append(body)
        headers |= includes
    return "\n".join(
        [f"#include <{h}>" for h in sorted(headers)]
        + ['\n#include "csrc/aten/dispatch/pointwise.h"\n', f"namespace torch_npu::{namespace} {{"]
        + [*definitions, "TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {", *bodies, "}", "}", ""]
    )


def find(entry: Entry) -> list[Op]:
    """The ops of an entry: eq stands for eq.Tensor and eq.Scalar, as far as they are structured."""
    known = ops()
    if entry.name in known:
        return [known[entry.name]]
    family = [op for op in known.values() if op.functional.base == entry.name]
    return [op for op in family if op.structured or entry.iterator]


def write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def generate(table: Path, out: Path, namespace: str, shards: int) -> list[str]:
    """Writes the files and returns the names of ops that this PyTorch does not have."""
    entries = read_table(table)
    found = [(entry, op) for entry in entries if not entry.kernel for op in find(entry)]
    missing = [entry.name for entry in entries if not entry.kernel and not find(entry)]
    note = _NOTE.format(table=table.name)
    out.mkdir(parents=True, exist_ok=True)
    write(out / "programs.cpp", note + programs(entries, namespace))
    write(out / "kernels.h", note + kernels_header(entries, namespace))
    for number in range(shards):
        # By signature: what a signature needs is compiled once, and a new op changes one file.
        part = [(e, op) for e, op in found if zlib.crc32(", ".join(op.types).encode()) % shards == number]
        write(out / f"registrations_{number}.cpp", note + shard(part, namespace))
    return missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--namespace", default="table", help="C++ namespace of the programs, inside torch_npu")
    parser.add_argument("--shards", type=int, default=SHARDS, help="number of registration files")
    options = parser.parse_args()
    missing = generate(options.table, options.out, options.namespace, options.shards)
    if missing:
        print(f"not in this PyTorch: {', '.join(missing)}")


if __name__ == "__main__":
    main()
