"""A plan as one page that needs neither a network nor a script."""

from html import escape
from pathlib import Path

from torch_npu.plan.forms import Example, Form, Plan
from torch_npu.plan.text import SAYS, scaled, sizes_of, types_of, why

STYLE = """
h1 code { overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--soft); font-weight: 600; }
th, td { padding: 7px 10px 7px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; }
pre { overflow-x: auto; background: var(--hover); border-radius: 8px; padding: 10px 12px; font-size: 12.5px; }
summary { cursor: pointer; }
.tag { border-radius: 5px; padding: 1px 7px; color: #fff; font-size: 12.5px; white-space: nowrap; }
.native { background: var(--device); } .legalised { background: var(--transfer); }
.refused, .wrong { background: var(--fallback); }
.bar { display: flex; height: 14px; border-radius: 7px; overflow: hidden; margin: 0 0 26px; }
"""


def html(plan: Plan) -> str:
    style = (Path(__file__).parent.parent / "report" / "page.css").read_text(encoding="utf-8") + STYLE
    counts = plan.counts()
    total = sum(counts.values()) or 1
    taken = counts["native"] / total
    bar = "".join(
        f'<span class="{answer}" style="width:{100 * count / total:.2f}%" title="{count} {SAYS[answer]}"></span>'
        for answer, count in counts.items()
    )
    said = ", ".join(f"{count} {SAYS[answer]}" for answer, count in counts.items() if count)
    rows = "".join(_row(form) for form in plan.forms)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(plan.driver)}: what the model asks</title><style>{style}</style></head>
<body><main>
<h1><code>{escape(plan.driver)}</code> takes <em>{taken:.0%}</em> of the commands as they are</h1>
<p class="facts">{total} commands in {len(plan.forms)} forms: {escape(said)}. A form is a kind of command with one
program, one set of types and one way of lying in memory. What to do first stands first.</p>
<div class="bar">{bar}</div>
<div class="card" style="overflow-x:auto"><table>
<tr><th>command</th><th>is</th><th class="n">count</th><th>sizes</th><th>operands</th><th class="n">multiply-adds</th>
<th class="n">bytes</th><th class="n">native would gain</th></tr>
{rows}
</table></div>
<p class="lead">made: from commands that the driver takes. The gain is measured: the time of what was made, less that of
the driver's own commands of as many bytes and multiply-adds. CPU: nothing makes it. Each example is a test:
<code>python -m torch_npu driver-test {escape(plan.driver)} --from {escape(plan.file)}</code></p>
</main></body></html>
"""


def _row(form: Form) -> str:
    gain = "" if form.gain_ms is None else f"{form.gain_ms:.3g} ms"
    reason = f"<div>{escape(why(form))}</div>" if form.answer != "native" else ""
    ops = ", ".join(f"{op} ({count})" for op, count in sorted(form.ops.items(), key=lambda entry: -entry[1]))
    program = f"<pre>{escape(form.program)}</pre>" if form.program else ""
    examples = "\n".join(_example(example) for example in form.examples)
    return f"""<tr><td><details><summary>{escape(form.kind)} <b>{escape(form.name)}</b></summary>
<p>asked by {escape(ops)}</p>{program}<pre>{examples}</pre></details>{reason}</td>
<td><span class="tag {form.answer}">{SAYS[form.answer]}</span></td><td class="n">{form.count}</td>
<td>{escape(sizes_of(form, 3))}</td><td class="mono">{escape(types_of(form))}</td>
<td class="n">{scaled(form.total("multiply_adds"))}</td><td class="n">{scaled(form.total("bytes"))}</td>
<td class="n">{gain}</td></tr>
"""


def _example(example: Example) -> str:
    time = f", {example.milliseconds:.4g} ms each" if example.milliseconds else ""
    lines = [f"{example.count}x command {example.number}: {example.what}{time}"]
    lines += [f"    made: {step}" for step in example.steps]
    if example.difference:
        lines.append(f"    {example.difference}")
    return escape("\n".join(lines))
