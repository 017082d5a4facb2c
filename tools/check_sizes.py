"""What a reader can hold: files per room, lines per file and function. Exit status 1 names each that has more."""

import ast
import re
import sys
from collections import Counter
from pathlib import Path, PurePosixPath

from check_layers import CPP, asked, tell

MOST_FILES = 25  # of code, in one folder
MOST_LINES = 500  # of a file
MOST_FUNCTION_LINES = 100

# What a brace can hide in, and what ends a statement. Preprocessor lines go with their continuations.
TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*|R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|"""
    r"""'(?:\\.[^'\n]*|[^'\\\n])'|[{};]""",
    re.DOTALL | re.MULTILINE,
)
SCOPE = re.compile(r'\b(namespace|class|struct|union|enum)\b|^\s*extern\s*(""\s*)?$')


def python_functions(text: str) -> list[tuple[str, int, int]]:
    """Name, first line, lines."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    return [(node.name, node.lineno, node.end_lineno - node.lineno + 1) for node in found if node.end_lineno]


def cpp_functions(text: str) -> list[tuple[str, int, int]]:
    """The same, by braces: a function is a block after parentheses, with nothing but namespaces and types around it."""
    found = []
    head, start = "", 0  # what stands before the next brace, and where that begins
    scopes: list[bool] = []  # of the open blocks: is it a namespace or a type?
    position = 0
    for token in TOKEN.finditer(text):
        between = text[position : token.start()]
        outside = all(scopes)
        if outside:
            if not head.strip():
                start = position + len(between) - len(between.lstrip())
            head += between
        position, kind = token.end(), token.group()
        if kind == "{":
            is_scope = bool(outside and SCOPE.search(head) and not re.search(r"\)[\w\s:&>-]*$", head))
            scopes.append(is_scope)
            if is_scope:
                head = ""
        elif kind == "}" and scopes:
            was_scope = scopes.pop()
            if not was_scope and all(scopes) and text[position:].lstrip()[:1] not in (",", "{"):
                called = re.search(r"([~\w:]+)\s*\(", head)
                if called:
                    lines = text.count("\n", start, token.end()) + 1
                    found.append((called.group(1), text.count("\n", 0, start) + 1, lines))
                head = ""
        elif kind == ";" and outside:
            head = ""
        elif kind.startswith('"') and outside:
            head += '""'
    return found


def too_long(root: Path, files: list[str]) -> list[str]:
    found = []
    for file in files:
        text = (root / file).read_text()
        lines = text.count("\n")
        if lines > MOST_LINES:
            found.append(f"{file}: expected at most {MOST_LINES} lines, got {lines}")
        suffix = Path(file).suffix
        functions = cpp_functions(text) if suffix in CPP else python_functions(text) if suffix == ".py" else []
        found += [
            f"{file}:{line}: expected at most {MOST_FUNCTION_LINES} lines in a function, got {size} in {name}"
            for name, line, size in functions
            if size > MOST_FUNCTION_LINES
        ]
    return found


def too_full(files: list[str]) -> list[str]:
    rooms = Counter(str(PurePosixPath(file).parent) for file in files)
    return [
        f"{room}/: expected at most {MOST_FILES} files of code in a room, got {count}"
        for room, count in sorted(rooms.items())
        if count > MOST_FILES
    ]


if __name__ == "__main__":
    root, _, files = asked(__doc__)
    sys.exit(tell(too_full(files) + too_long(root, files)))
