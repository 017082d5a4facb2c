"""The site of `make docs`: gathers the pages, adds the Python reference, and lets MkDocs build them (docs/mkdocs.yml).

Pages keep their places below build/docs/source, so that links between them are those of the tree. A link to a folder
becomes its README or plain text; a file that a page links to comes along. The reference lists what `__all__` says, or
what a module defines, with signatures and docstrings; nothing is listed by hand.
"""

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "build" / "docs" / "source"
CONFIG = ROOT / "docs" / "mkdocs.yml"
SITE = ROOT / "build" / "docs" / "site"
PAGES = ("*.md", "docs/**/*.md", "benchmarks/*.md", "examples/**/*.md")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)((?:#[^)\s]*)?)\)")
FENCE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
# Text that GitHub takes for a mark of the page and not for a part of it.
MARK = re.compile(r"<!-- (?:[=~]|quote:|map\b)[^>]*-->\n?")


def gather() -> None:
    """Copies the pages and what they link to."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for pattern in PAGES:
        for page in sorted(ROOT.glob(pattern)):
            target = SOURCE / page.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_page(page))
    shutil.copy(ROOT / "docs" / "site.css", SOURCE / "docs")


def _page(page: Path) -> str:
    pieces = FENCE.split(page.read_text())
    return "".join(p if p.startswith("```") else MARK.sub("", LINK.sub(lambda m: _link(page, m), p)) for p in pieces)


def _link(page: Path, match: re.Match) -> str:
    image, text, path, anchor = match.groups()
    if re.match(r"\w+:", path):
        return match[0]
    file = (page.parent / path).resolve()
    if not file.is_dir():
        if file.suffix != ".md" and file.is_file():
            copy = SOURCE / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
        return match[0]
    readme = file / "README.md"
    return f"{image}[{text}]({path.rstrip('/')}/README.md{anchor})" if readme.exists() else text


@dataclass
class Entry:
    """A public name as the reference shows it."""

    name: str
    obj: object
    members: list["Entry"]

    @property
    def doc(self) -> str:
        if hasattr(self.obj, "_schemas"):
            return "An op of `torch.ops.npu`: [fused ops](../docs/fused-ops.md) says what it computes."
        return inspect.getdoc(self.obj.fget if isinstance(self.obj, property) else self.obj) or ""


def entries(module: ModuleType, prefix: str, seen: set[int]) -> list[Entry]:
    """What `__all__` names, or else what a module defines itself, with members; nothing that was `seen`."""
    own = [n for n, x in vars(module).items() if getattr(x, "__module__", "") == module.__name__ and callable(x)]
    listed = sorted({n for n in getattr(module, "__all__", own) if not n.startswith("_")}, key=str.lower)
    found = [(n, getattr(module, n)) for n in listed]
    plain = [(n, x) for n, x in found if not isinstance(x, ModuleType) and not (id(x) in seen or seen.add(id(x)))]
    made = [Entry(prefix + n, x, _members(prefix + n, x)) for n, x in plain]
    for name, inner in [(n, x) for n, x in found if isinstance(x, ModuleType) and id(x) not in seen]:
        seen.add(id(inner))
        if members := entries(inner, f"{prefix}{name}.", seen):
            made.append(Entry(prefix + name, inner, members))
    return made


def _members(name: str, obj: object) -> list[Entry]:
    """Of a class of ours, or of an object of one."""
    kind = obj if isinstance(obj, type) else type(obj)
    if not kind.__module__.startswith("torch_npu") or issubclass(kind, Exception):
        return []
    own = {k: v for k, v in vars(kind).items() if not k.startswith("_")}
    shown = {k: v for k, v in own.items() if isinstance(v, (property, staticmethod, classmethod)) or callable(v)}
    return [Entry(f"{name}.{k}", getattr(v, "__func__", v), []) for k, v in shown.items()]


def public() -> dict[str, list[Entry]]:
    """The pages of the reference: each name once."""
    import torch

    import torch_npu

    seen = {id(torch.npu)}
    return {m: entries(x, f"{m}.", seen) for m, x in (("torch.npu", torch.npu), ("torch_npu", torch_npu))}


def walk(listed: list[Entry]) -> Iterator[Entry]:
    for entry in listed:
        yield entry
        yield from walk(entry.members)


def _reference(title: str, module: ModuleType, listed: list[Entry]) -> str:
    lines = [f"# {title}", "", _text(inspect.getdoc(module) or ""), ""]
    for entry in walk(listed):
        name = entry.name.removeprefix(f"{title}.")
        lines += [f"{'#' * min(2 + name.count('.'), 4)} {name}", "", *_signature(entry), _text(entry.doc), ""]
    return "\n".join(lines)


def _signature(entry: Entry) -> list[str]:
    obj = entry.obj
    if hasattr(obj, "_schemas"):  # an op of torch.ops.npu
        return [f"```text\n{_folded(str(obj._schemas['']))}\n```", ""]
    if isinstance(obj, (ModuleType, property)) or not callable(obj):
        return []
    try:
        return [f"```python\n{_folded(entry.name + str(inspect.signature(obj)))}\n```", ""]
    except (TypeError, ValueError):
        return []


def _folded(signature: str) -> str:
    """A long one with lines of its own for the arguments."""
    name, _, rest = signature.partition("(")
    arguments, close, result = rest.rpartition(") ->") if ") ->" in rest else rest.rpartition(")")
    if len(signature) <= 100:
        return signature
    lines = textwrap.wrap(arguments, 96, break_long_words=False, break_on_hyphens=False)
    return f"{name}(\n    " + "\n    ".join(lines) + f"\n{close}{result}"


def _text(doc: str) -> str:
    """A docstring as Markdown: what is between backticks or indented stays, elsewhere a `<` is no tag."""
    pieces = re.split(r"(`[^`]*`|(?:^(?: {4}.*)?\n)+)", doc, flags=re.MULTILINE)
    return "".join(p if p.startswith(("`", " ", "\n")) else p.replace("<", "&lt;") for p in pieces)


def write_reference() -> None:
    folder = SOURCE / "reference"
    folder.mkdir(parents=True)
    for title, listed in public().items():
        (folder / f"{title}.md").write_text(_reference(title, importlib.import_module(_MODULES[title]), listed))


_MODULES = {"torch.npu": "torch_npu.npu", "torch_npu": "torch_npu"}


def build() -> int:
    """The exit status of MkDocs, to which every warning is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", str(CONFIG)]
    return subprocess.run(command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}).returncode


def downloads() -> list[str]:
    """What pages of the site would load from the network."""
    tag = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=["']?(https?:[^"'\s>]+)""")
    return [f"{page.relative_to(SITE)}: {u}" for page in SITE.rglob("*.html") for u in tag.findall(page.read_text())]


if __name__ == "__main__":
    gather()
    write_reference()
    status = build()
    if status == 0 and (found := downloads()):
        print("expected pages that load nothing from the network, got:", *found, sep="\n", file=sys.stderr)
        status = 1
    if status == 0:
        print(f"the site is in {SITE.relative_to(ROOT)}; python -m http.server -d {SITE.relative_to(ROOT)} shows it")
    sys.exit(status)
