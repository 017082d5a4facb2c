"""A conformance run as one page that needs no network: totals, bars, and a table to search and sort."""

from __future__ import annotations

from html import escape
from pathlib import Path

from torch_npu.testing.report import TARGET, Run, totals
from torch_npu.testing.result import FAILED, HOW, STATUSES, Result

_MARKS = {"passed": "✓", "wrong": "✗", "raised": "!", "crashed": "☠", "timeout": "⏱", "skipped": "–", "accepted": "≈"}
_MEANING = {
    "native": "a kernel of its own",
    "decomposed": "through other ops, all on the device",
    "fallback": "partly on the CPU",
}


def _status(result: Result) -> str:
    return "accepted" if result.excused else result.status


def _cards(run: Run) -> str:
    statuses = [_status(r) for r in run.results]
    passed, accepted = statuses.count("passed"), statuses.count("accepted")
    share = run.share()
    cards = [
        ("passed", passed, "passed"),
        ("failed" if run.failures else "", len(run.failures), "failed"),
        ("", statuses.count("crashed") + statuses.count("timeout"), "of them crashed or hung"),
        ("accepted" if accepted else "", accepted, "accepted, with a reason"),
        ("", statuses.count("skipped"), "the CPU runs no sample"),
        ("", f"{sum(r.samples for r in run.results):,}", "samples compared"),
    ]
    if share is not None:
        met = "passed" if share >= TARGET else "failed"
        cards.append((met, f"{100 * share:.1f} %", f"of ops in scope without fallback (target {100 * TARGET:.0f} %)"))
    return "".join(
        f'<div class="card {kind}"><b>{number}</b><span>{label}</span></div>' for kind, number, label in cards
    )


def _bars(run: Run) -> str:
    lines: dict[str, list[str]] = {}
    for database, dtype, count in totals(run):
        ran = sum(count[how] for how in HOW)
        if not ran:
            continue
        parts = "".join(
            f'<i class="{how}" style="width:{100 * count[how] / ran:.2f}%" title="{count[how]} {how}"></i>'
            for how in HOW
        )
        numbers = " · ".join(str(count[how]) for how in HOW)
        lines.setdefault(database, []).append(
            f'<span class="label">{escape(dtype)}</span><div class="bar">{parts}</div>'
            f'<span class="number">{numbers}</span>'
        )
    key = "".join(f'<span><i class="{how}"></i>{how}: {_MEANING[how]}</span>' for how in HOW)
    folds = []
    for number, (database, of_dtypes) in enumerate(lines.items()):
        state = "" if number else " open"
        bars = "".join(of_dtypes)
        folds.append(f'<details{state}><summary>{escape(database)}</summary><div class="bars">{bars}</div></details>')
    return f'<div class="key">{key}</div>{"".join(folds)}'


def _details(results: list[Result]) -> str:
    """Results that say the same share a paragraph."""
    said: dict[tuple[str, str, str], list[str]] = {}
    for r in results:
        fallbacks = ", ".join(f"{op} × {count}" for op, count in r.fallbacks.items())
        message = f"{r.message}\n\naccepted: {r.excused}" if r.excused else r.message
        said.setdefault((_status(r), message, fallbacks), []).append(r.dtype)
    parts = []
    for (status, message, fallbacks), dtypes in said.items():
        text = f'<p><span class="s-{status}">{_MARKS[status]} {status}</span> in {", ".join(dtypes)}</p>'
        if fallbacks:
            text += f"<p>ran on the CPU: {escape(fallbacks)}</p>"
        if message:
            text += f"<pre>{escape(message)}</pre>"
        parts.append(text)
    return "".join(parts)


def _row(database: str, name: str, results: list[Result], dtypes: list[str]) -> str:
    by_dtype = {r.dtype: r for r in results}
    hows = {r.how for r in results if r.how}
    how = next((kind for kind in reversed(HOW) if kind in hows), "")
    statuses = " ".join(sorted({_status(r) for r in results} | {"failed" for r in results if r.failed}))
    cells = []
    for dtype in dtypes:
        result = by_dtype.get(dtype)
        if result is None:
            cells.append('<td class="dtype" data-key="-1"></td>')
            continue
        status = _status(result)
        rank = STATUSES.index(result.status) if not result.excused else len(STATUSES)
        title = f"{dtype}: {status}, {result.how}"
        cells.append(f'<td class="dtype s-{status}" data-key="{rank}" title="{title}">{_MARKS[status]}</td>')
    samples, seconds = sum(r.samples for r in results), sum(r.seconds for r in results)
    pill = f'<span class="pill {how}">{how}</span>' if how else ""
    words = escape(f"{name} {' '.join(op for r in results for op in r.fallbacks)}".lower(), quote=True)
    return (
        f'<tr class="entry" data-text="{words}" data-status="{statuses}" data-how="{" ".join(sorted(hows))}" '
        f'data-database="{database}">'
        f'<td data-key="{escape(name)}"><button aria-expanded="false">{escape(name)}</button></td>'
        f'<td>{database}</td><td data-key="{how}">{pill}</td>{"".join(cells)}'
        f'<td class="number" data-key="{samples}">{samples}</td>'
        f'<td class="number" data-key="{seconds:.3f}">{seconds:.2f}</td></tr>'
        f'<tr class="more" hidden><td colspan="{5 + len(dtypes)}">{_details(results)}</td></tr>\n'
    )


def _options(name: str, values: tuple[str, ...] | list[str]) -> str:
    inner = "".join(f'<option value="{value}">{value}</option>' for value in values)
    return f'<select id="{name}" aria-label="{name}"><option value="">every {name}</option>{inner}</select>'


def _headers(dtypes: list[str]) -> str:
    plain = [("name", ""), ("database", ""), ("how", "")]
    columns = [*plain, *((d, "dtype") for d in dtypes), ("samples", "number"), ("seconds", "number")]
    return "".join(f'<th class="{kind}" scope="col"><button>{title}</button></th>' for title, kind in columns)


def html(run: Run) -> str:
    folder = Path(__file__).parent
    dtypes, databases = run.dtypes(), run.databases()
    entries: dict[tuple[str, str], list[Result]] = {}
    for r in run.results:
        entries.setdefault((r.database, r.name), []).append(r)
    rows = "".join(_row(database, name, results, dtypes) for (database, name), results in entries.items())
    facts = run.facts
    what = f"torch {facts.get('torch')}, driver {facts.get('driver')}, {', '.join(dtypes)}"
    what += ", with gradients" if facts.get("grad") else ""
    what += f", at most {facts['limit']} samples per entry" if facts.get("limit") else ""
    what += f"; {facts.get('date')}, {facts.get('seconds', 0):.0f} s"
    statuses = ("passed", "failed", *FAILED, "accepted", "skipped")
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>torch_npu conformance</title>
<style>
{(folder / "page.css").read_text()}</style>
<main>
<h1>npu against the CPU</h1>
<p class="facts">PyTorch's own op, module and optimizer databases: {escape(what)}</p>
<div class="cards">{_cards(run)}</div>
<div class="panel">{_bars(run)}</div>
<div class="controls">
<input id="search" type="search" placeholder="name, or an op that ran on the CPU" aria-label="search">
{_options("status", statuses)}{_options("how", HOW)}{_options("database", databases)}
<span id="shown"></span>
</div>
<div class="wide"><table id="entries">
<thead><tr>{_headers(dtypes)}</tr></thead>
<tbody>
{rows}</tbody>
</table></div>
</main>
<script>
{(folder / "page.js").read_text()}</script>
</html>
"""
