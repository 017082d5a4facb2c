"""python -m torch_npu config: every setting with its value in this process, or the page of the documentation."""

import dataclasses

from torch_npu.console.command import Outcome, add_command
from torch_npu.console.table import table


def add(commands) -> None:
    parser = add_command(
        commands, "config", run, help="every setting and its value", example="config\nconfig --markdown"
    )
    parser.add_argument("--markdown", action="store_true", help="print docs/configuration.md")


def markdown() -> str:
    from torch_npu import config

    out = ["# Configuration", ""]
    out += ["Made from `torch_npu/config.py` by `python -m torch_npu config --markdown`: change it there.", ""]
    for title, settings in config.TABLES:
        out += [f"## {title}", "", "| name | default | meaning | without it |", "|---|---|---|---|"]
        for s in settings:
            default = f"`{s.default}`" if s.default else "empty"
            out.append(f"| `{s.name}` | {default} | {s.meaning} | {s.off} |")
        out.append("")
    return "\n".join(out)


def run(options) -> Outcome:
    from torch_npu import config

    facts = {title: [dataclasses.asdict(s) for s in settings] for title, settings in config.TABLES}
    facts["values"] = {s.name: config.current(s) for s in config.VARIABLES}
    if options.markdown:
        return Outcome(facts, markdown().removesuffix("\n"))
    rows = [(s.name, config.current(s) or "(empty)", s.default or "(empty)") for s in config.VARIABLES]
    return Outcome(facts, table(("variable", "value", "default"), rows))
