"""A report as one page that needs no network: facts as JSON, and plain JavaScript to draw them."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path

SCRIPTS = ("page_base.js", "page_charts.js", "page_timeline.js", "page_tables.js", "page.js")

# The browser itself is told to fetch nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
ICON = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16' rx='4' fill='%2317788c'/%3E%3Cpath d='M4 11V8m4 3V4m4 7V6' stroke='white' stroke-width='2'/%3E%3C/svg%3E"  # noqa: E501

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<link rel="icon" href="{icon}">
<style>
{style}
</style>
</head>
<body>
<noscript>This page draws its charts with JavaScript, which is switched off here. The finding: {headline}</noscript>
<main id="page"></main>
<div id="tip" role="tooltip" hidden></div>
<script type="application/json" id="facts">{facts}</script>
<script>
"use strict";
(() => {{
{script}
}})();
</script>
</body>
</html>
"""


def html(facts: dict) -> str:
    folder = Path(__file__).parent
    # "</script>" in a name would end the element; "<!--" would begin another state of it.
    data = re.sub(r"<(?=[/!])", r"\\u003c", json.dumps(facts, separators=(",", ":"), ensure_ascii=False))
    return PAGE.format(
        policy=POLICY,
        icon=ICON,
        title=escape(f"{facts['title']} on {facts['device_name']}"),
        headline=escape(facts["headline"]),
        style=(folder / "page.css").read_text(encoding="utf-8"),
        facts=data,
        script="\n".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS),
    )
