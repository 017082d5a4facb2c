"""python -m torch_npu config: every setting with its value in this process, or the page of the documentation."""

from torch_npu.cli.table import table


def add(commands) -> None:
    parser = commands.add_parser("config", help="every setting and its value")
    parser.add_argument("--markdown", action="store_true", help="print docs/configuration.md")
    parser.set_defaults(run=run)


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


def run(options) -> int:
    from torch_npu import config

    if options.markdown:
        print(markdown(), end="")
    else:
        rows = [(s.name, config.current(s) or "(empty)", s.default or "(empty)") for s in config.VARIABLES]
        print(table(("variable", "value", "default"), rows))
    return 0
