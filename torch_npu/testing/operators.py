"""docs/operators.md: which ops of PyTorch run on the device, and which still run on the CPU.

Two sources: the dispatcher, which knows every registered kernel, and a conformance run, which has seen what falls back.
"""

from __future__ import annotations

import re

from torch_npu.testing import coverage
from torch_npu.testing.report import Run
from torch_npu.testing.result import HOW, Result

# aten ops that no tensor on npu meets: quantised, nested and sparse ones, and kernels that only the CPU has.
_FOREIGN = re.compile("mkl|nnpack|quant|qint|nested|sparse|fbgemm|int4|int8|_for_cpu|_test_|_foobar|jagged")
_COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def _forms() -> dict[str, list[str]]:
    """Base name to all overloads, in-place ones (add_) with their functional twin."""
    forms: dict[str, list[str]] = {}
    ops = coverage.aten_ops()
    for base, overloads in ops.items():
        twin = base.removesuffix("_") if not base.endswith("__") else base
        forms.setdefault(twin if twin in ops else base, []).extend(overloads)
    return forms


def classify(overloads: list[str]) -> str:
    """native, decomposed or fallback, from the dispatcher alone.

    An op whose arithmetic is registered for the CPU in some form, and for npu in none, runs on the CPU.
    """
    if any(coverage.has_kernel(op) for op in overloads):
        return "native"
    return "fallback" if any(_only_cpu(op) for op in overloads) else "decomposed"


def _only_cpu(op: str) -> bool:
    return (
        coverage.has_kernel(op, "CPU")
        and not coverage.has_kernel(op)
        and not any(coverage.has_kernel(op, key) for key in _COMPOSITE)
    )


def partly_native() -> list[str]:
    """Overloads left to the CPU of ops that have a kernel for another overload."""
    forms = [overloads for base, overloads in sorted(_forms().items()) if not _FOREIGN.search(base)]
    native = [overloads for overloads in forms if classify(overloads) == "native"]
    return [op.removeprefix("aten::") for overloads in native for op in overloads if _only_cpu(op)]


def dispatcher_table() -> dict[str, list[str]]:
    """native, decomposed and fallback to base names of aten ops."""
    found: dict[str, list[str]] = {kind: [] for kind in HOW}
    for base, overloads in sorted(_forms().items()):
        if not _FOREIGN.search(base):
            found[classify(overloads)].append(base)
    return found


def _families(names: list[str]) -> list[tuple[str, list[str]]]:
    """Names by what stands before the first dot, unprefixed ones first."""
    groups: dict[str, list[str]] = {}
    for name in sorted(names, key=str.lower):
        prefix = name.rsplit(".", 1)[0] if name.startswith(("nn.", "torch.ops")) else name.split(".")[0]
        known = ("nn.functional", "special", "masked", "linalg", "fft", "sparse", "signal", "torch.ops.aten")
        family = next((k for k in known if prefix == k or prefix.startswith(f"{k}.")), "torch")
        groups.setdefault(family, []).append(name.removeprefix(f"{family}."))
    return sorted(groups.items(), key=lambda entry: (entry[0] != "torch", entry[0]))


def _listing(names: list[str]) -> list[str]:
    out = []
    for family, members in _families(names):
        out += [f"**{family}** ({len(members)}): " + ", ".join(f"`{name}`" for name in members), ""]
    return out


def _worst(results: list[Result]) -> str:
    hows = {r.how for r in results}
    return next((kind for kind in reversed(HOW) if kind in hows), "")


def _by_name(run: Run, database: str) -> dict[str, list[Result]]:
    entries: dict[str, list[Result]] = {}
    for r in run.results:
        if r.database == database and r.how:
            entries.setdefault(r.name, []).append(r)
    return entries


def _fallback_table(entries: dict[str, list[Result]]) -> list[str]:
    out = ["| entry | dtypes | ops that run on the CPU |", "|---|---|---|"]
    for name, results in sorted(entries.items()):
        falling = [r for r in results if r.fallbacks]
        if not falling:
            continue
        dtypes = "all" if len(falling) == len(results) and len(results) > 1 else ", ".join(r.dtype for r in falling)
        ops = sorted({op.removeprefix("aten::") for r in falling for op in r.fallbacks})
        out.append(f"| `{name}` | {dtypes} | {', '.join(f'`{op}`' for op in ops)} |")
    return out


def _limit(run: Run) -> str:
    return f", {run.facts['limit']} samples per entry" if run.facts.get("limit") else ""


_DATABASES = ("foreach", "modules", "optimizers")


def _counts(run: Run, kinds: dict[str, list[str]], table: dict[str, list[str]]) -> list[str]:
    """How many entries and ops there are of each kind."""

    def row(title: str, counts: list[int], what: str = " entries") -> str:
        return f"| {title}, {sum(counts)}{what} | {' | '.join(map(str, counts))} |"

    out = ["| | native | decomposed | fallback |", "|---|---|---|---|"]
    out.append(row("PyTorch's OpInfo database", [len(kinds[kind]) for kind in HOW]))
    for database in _DATABASES:
        hows = [_worst(results) for results in _by_name(run, database).values()]
        if hows:
            out.append(row(database, [hows.count(kind) for kind in HOW]))
    return [*out, row("aten ops in the dispatcher", [len(table[kind]) for kind in HOW], ""), ""]


def _on_the_cpu(run: Run, entries: dict[str, list[Result]], names: list[str]) -> list[str]:
    parts = {
        "In scope, and still to come:": {n: entries[n] for n in names if coverage.in_scope(n)},
        "Factorisations, FFT, sparse layouts and signal windows:": {
            n: entries[n] for n in names if not coverage.in_scope(n)
        },
    }
    for database in _DATABASES:
        falling = {n: r for n, r in _by_name(run, database).items() if _worst(r) == "fallback"}
        parts[f"Of the {database}:"] = falling
    return [line for title, found in parts.items() if found for line in (title, "", *_fallback_table(found), "")]


def _dispatcher(table: dict[str, list[str]]) -> list[str]:
    partly = partly_native()
    out = [
        "## The dispatcher's view",
        "",
        "Base names of aten ops; in-place and out= forms go with them. Sparse, nested and quantised tensors and the",
        "kernels of other devices are left out.",
        "",
        f"### Forms that run on the CPU although others of the op are native ({len(partly)})",
        "",
        ", ".join(f"`{form}`" for form in partly) or "None.",
        "",
    ]
    for kind, title in (("native", "Registered for npu"), ("fallback", "Without a kernel: computed on the CPU")):
        out += [f"### {title} ({len(table[kind])})", "", ", ".join(f"`{name}`" for name in table[kind]), ""]
    return out


def markdown(run: Run) -> str:
    entries = _by_name(run, "ops")
    kinds: dict[str, list[str]] = {kind: [] for kind in HOW}
    for name, results in entries.items():
        kinds[_worst(results)].append(name)
    table = dispatcher_table()
    out = [
        "# Operators",
        "",
        "Made by `make operators`: do not edit. *Native* ops have a kernel for the device, *decomposed* ones run",
        "through others that do, and *fallback* ones run on the CPU, at least in part, and are counted by",
        "`torch_npu.fallback.report()`.",
        "",
        f"Measured with torch {run.facts.get('torch')} on driver `{run.facts.get('driver')}`, in "
        f"{', '.join(run.dtypes())}{', with gradients' if run.facts.get('grad') else ''}{_limit(run)}.",
        "",
        *_counts(run, kinds, table),
    ]
    share = run.share()
    if share is not None:
        out += [
            f"{100 * share:.1f} % of the entries outside linear algebra factorisations, FFT, sparse layouts and signal "
            "windows run without fallback in all these dtypes.",
            "",
        ]
    out += ["## What runs on the CPU", "", *_on_the_cpu(run, entries, kinds["fallback"])]
    out += ["## Native", "", *_listing(kinds["native"])]
    out += ["## Decomposed", "", *_listing(kinds["decomposed"])]
    return "\n".join(out + _dispatcher(table)).rstrip() + "\n"
