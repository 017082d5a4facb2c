"""A plan for a terminal."""

from torch_npu.console.table import some, table
from torch_npu.plan.forms import Form, Plan

SAYS = {"wrong": "WRONG", "refused": "CPU", "legalised": "made", "native": "taken"}


def scaled(value: float) -> str:
    for unit in ("", "K", "M", "G"):
        if value < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}T"


def types_of(form: Form) -> str:
    return " ".join(
        kind if lies == "dense" else f"{kind}:{lies}" for kind, lies in zip(form.types, form.lies, strict=True)
    )


def sizes_of(form: Form, most: int = 2) -> str:
    return some(("x".join(map(str, example.size)) or "1" for example in form.examples), most)


def why(form: Form) -> str:
    if form.answer == "wrong":
        return next(example.difference for example in form.examples if example.difference).splitlines()[0]
    if form.answer == "native":
        return ""
    said = "; ".join(form.words) or "no reason given"
    return f"{said} => {' | '.join(form.rules)}" if form.rules else said


def text(plan: Plan, most: int = 25) -> str:
    counts = plan.counts()
    total = sum(counts.values())
    parts = [f"{counts[answer]} {says}" for answer, says in SAYS.items() if counts[answer]]
    lines = [
        f"{plan.driver}: {total} commands in {len(plan.forms)} forms: {', '.join(parts)}",
        f"each form has its examples in {plan.file}: python -m torch_npu driver-test {plan.driver} --from {plan.file}",
        "",
    ]
    cells = []
    for form in plan.forms[:most]:
        gain = "" if form.gain_ms is None else f"{form.gain_ms:.3g} ms"
        cells.append(
            (
                f"{form.kind} {form.name}",
                SAYS[form.answer],
                form.count,
                sizes_of(form),
                types_of(form),
                scaled(form.total("multiply_adds")),
                scaled(form.total("bytes")),
                gain,
            )
        )
    lines.append(table(("command", "is", "count", "sizes", "operands", "mul-adds", "bytes", "would gain"), cells))
    if len(plan.forms) > most:
        lines.append(f"... and {len(plan.forms) - most} more: --json and --html have all")
    reasons = [form for form in plan.forms if form.answer != "native"][:12]
    if reasons:
        lines += ["", "what the driver says, and what is made of it:"]
        lines += [f"  {form.kind} {form.name}: {why(form)}" for form in reasons]
    return "\n".join(lines)
