"""Plain text: tables, and lists of names."""

from collections.abc import Iterable


def table(header: tuple, rows: list[tuple]) -> str:
    """Columns as wide as their widest cell; numbers to the right."""
    cells = [[str(c) for c in row] for row in rows]
    widths = [max(len(str(h)), *(len(row[i]) for row in cells)) if cells else len(h) for i, h in enumerate(header)]
    right = [bool(cells) and all(row[i][:1].isdigit() for row in cells) for i in range(len(header))]

    def line(row) -> str:
        parts = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        return "  ".join(parts).rstrip()

    return "\n".join([line(header), "  ".join("-" * w for w in widths), *(line(row) for row in cells)])


def some(names: Iterable[str], most: int = 8) -> str:
    """The first of them, and how many there are beyond."""
    names = list(names)
    rest = len(names) - most
    return ", ".join(names) if rest <= 1 else f"{', '.join(names[:most])} and {rest} others"
