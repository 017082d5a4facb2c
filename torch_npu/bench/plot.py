"""The ratios as a picture: one line per family, one dot per size, on a logarithmic axis. Plain SVG, no libraries."""

import html
import math
from pathlib import Path

COLORS = {"small": "#8ecae6", "medium": "#219ebc", "large": "#023047"}
ENDINGS = (".svg", ".html", ".png")


def check(path: str) -> None:
    """Before anything is measured: can this file be written?"""
    ending = Path(path).suffix
    if ending not in ENDINGS:
        raise ValueError(f"expected a plot file ending in {', '.join(ENDINGS)}, got {path}")
    if ending == ".png":
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            raise ValueError(f"expected .svg or .html, got {path}: a .png needs matplotlib (pip install it)") from None


def write(path: str, families: dict[str, dict[str, float]], title: str, table: str) -> None:
    """`families`: the ratio by family and size."""
    if path.endswith(".png"):
        _png(path, families, title)
        return
    picture = svg(families, title)
    if path.endswith(".html"):
        head = f'<!doctype html><meta charset="utf-8"><title>{html.escape(title)}</title>'
        picture = f'{head}<body style="font-family:sans-serif">{picture}<pre>{html.escape(table)}</pre></body>\n'
    Path(path).write_text(picture)


def _axis(families: dict[str, dict[str, float]]) -> tuple[float, float]:
    values = [r for sizes in families.values() for r in sizes.values()]
    return min(0.5, *values) / 1.1, max(2.0, *values) * 1.1


def svg(families: dict[str, dict[str, float]], title: str) -> str:
    left, right, top, row = 190, 40, 60, 22
    width, height = 900, top + row * len(families) + 40
    low, high = _axis(families)

    def x(ratio: float) -> float:
        return left + (width - left - right) * math.log(ratio / low) / math.log(high / low)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-size="15">{html.escape(title)}</text>',
    ]
    for i, (size, color) in enumerate(COLORS.items()):
        out.append(f'<circle cx="{left + 90 * i}" cy="38" r="5" fill="{color}"/>')
        out.append(f'<text x="{left + 90 * i + 10}" y="42">{size}</text>')
    bottom = top + row * len(families)
    for tick in (0.1, 0.2, 0.5, 0.8, 1, 1.5, 2, 3, 5, 10, 20, 50, 100):
        if low <= tick <= high:
            strong = ' stroke-width="2"' if tick == 1 else ""
            color = "#444" if tick == 1 else "#ccc"
            out.append(
                f'<line x1="{x(tick):.1f}" y1="{top}" x2="{x(tick):.1f}" y2="{bottom}" stroke="{color}"{strong}/>'
            )
            out.append(f'<text x="{x(tick):.1f}" y="{bottom + 16}" text-anchor="middle">{tick:g}x</text>')
    for i, (family, sizes) in enumerate(families.items()):
        y = top + row * i + row / 2
        out.append(f'<text x="{left - 10}" y="{y + 4:.1f}" text-anchor="end">{html.escape(family)}</text>')
        ends = [x(r) for r in sizes.values()]
        out.append(f'<line x1="{min(ends):.1f}" y1="{y}" x2="{max(ends):.1f}" y2="{y}" stroke="#999"/>')
        for size, ratio in sizes.items():
            note = f"<title>{html.escape(family)}, {size}: {ratio:.2f}x</title>"
            out.append(f'<circle cx="{x(ratio):.1f}" cy="{y}" r="5" fill="{COLORS[size]}">{note}</circle>')
    return "\n".join([*out, "</svg>\n"])


def _png(path: str, families: dict[str, dict[str, float]], title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.25 * len(families)))
    names = list(families)
    for size, color in COLORS.items():
        at = [i for i, name in enumerate(names) if size in families[name]]
        axes.scatter([families[names[i]][size] for i in at], at, color=color, label=size)
    axes.set_xscale("log")
    axes.axvline(1.0, color="#444")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_title(title)
    axes.legend()
    figure.savefig(path, bbox_inches="tight", dpi=120)
