"""python -m torch_npu whatif: what a script would take on a chip that need not exist, and what holds it back."""

import html
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from torch_npu import _info
from torch_npu.cli import script
from torch_npu.console.command import Failure, Outcome, UsageError, add_command
from torch_npu.console.table import table

COLORS = ("#023047", "#219ebc", "#fb8500", "#8ecae6", "#ffb703", "#6a994e", "#bc4749")


def add(commands) -> None:
    parser = add_command(
        commands,
        "whatif",
        run,
        example="whatif examples/chip.toml examples/lenet_digits.py\nwhatif --sweep matrix.rows=16 chip.toml model.py\n"
        "whatif --fit ./libnpu_mychip.so mychip.toml model.py",
        help="predict a script's time on a chip, and what to improve",
        description="Runs a script on the C model and computes what its commands would take on the chip of a text file "
        "(docs/whatif.md). Prints the bottleneck, the ops that take longest and what other sizes would give.",
    )
    parser.add_argument(
        "--sweep", action="append", metavar="KEY=V,V", help="values of a key to compare; may be repeated"
    )
    parser.add_argument(
        "--fit",
        metavar="DRIVER",
        help="first write the chip's file from the times that this driver takes for the script's commands; a file that "
        "is there says where the search begins, and keeps its clock, vector.lanes and memory.sram_kb",
    )
    parser.add_argument("--plot", metavar="FILE.svg", help="draw the comparison")
    parser.add_argument("--top", type=int, default=12, help="ops to print (12)")
    parser.add_argument("chip", help="the chip's description: chip.toml")
    script.add(parser)


def parse_sweep(texts: list[str]) -> list[tuple[str, list[float]]]:
    out = []
    for text in texts:
        key, equals, values = text.partition("=")
        try:
            out.append((key.strip(), [float(v) for v in values.split(",")]))
        except ValueError:
            raise ValueError(f"expected --sweep KEY=NUMBER,NUMBER,..., got {text!r}") from None
    return out


def run(options) -> Outcome:
    from torch_npu import fallback, whatif

    if options.fit:
        fit(options)
    try:
        chip = Path(options.chip).read_text()
        changes = parse_sweep(options.sweep) if options.sweep else whatif.usual_changes(chip)
    except OSError as error:
        raise UsageError(f"{options.chip}: {error}") from None
    except ValueError as error:
        named = "" if "--sweep" in str(error) else f"{options.chip}: expected the description of a chip, got "
        raise UsageError(f"{named}{error}") from None
    if options.plot and not options.plot.endswith(".svg"):
        raise UsageError(f"expected a plot file ending in .svg, got {options.plot}")
    if options.plot and not Path(options.plot).resolve().parent.is_dir():
        raise UsageError(f"expected a folder that exists, got {Path(options.plot).resolve().parent}")
    script.check(options.script, f"cmodel:chip=[{Path(options.chip).resolve()}]")
    try:
        whatif.sweep(chip, changes)  # of no command yet: whether the keys and values are right
    except ValueError as error:
        raise UsageError(f"--sweep: {str(error).partition(': ')[2] or error}") from None
    begin = time.perf_counter()
    status = script.run_loudly(options.script, options.arguments)
    wall = time.perf_counter() - begin
    facts = whatif.prediction() | {"fallbacks": fallback.report(), "script_status": status}
    if not facts["count"]:
        raise Failure(f"{options.script}: nothing ran on the device, so there is nothing to predict{_left_out(facts)}")
    swept = whatif.sweep(chip, changes)
    if options.plot:
        title = f"{Path(options.script).name} on {facts['chip']}"
        Path(options.plot).write_text(svg(swept, whatif.flat(chip), whatif.milliseconds(facts), title))
    found = {**facts, "milliseconds": whatif.milliseconds(facts), "wall_seconds": wall, "sweep": swept}
    return Outcome(found, text(facts, swept, wall, options.top) + script.ended(status), int(bool(status)))


def fit(options) -> None:
    """Writes options.chip. In a process of its own, since a script is recorded on a driver and predicted on another."""
    from torch_npu.cli.driver_test import library_of
    from torch_npu.plan import recording_spec

    driver, chip = library_of(options.fit), Path(options.chip)
    if not Path(options.script).is_file():
        raise UsageError(f"expected a Python script, got {options.script}: no such file")
    program = Path(_info.library_path()) / "npu-replay"
    with tempfile.TemporaryDirectory() as folder:
        file, made = Path(folder) / "commands.npt", Path(folder) / "chip.toml"
        variables = os.environ | {"TORCH_NPU_DRIVER": recording_spec(file)}
        script_ran = subprocess.run([sys.executable, options.script, *options.arguments], env=variables)
        if not file.exists():
            raise Failure(f"{options.script}: ended with status {script_ran.returncode} and gave the device no command")
        replay = [str(program), str(file), "--driver", driver, "--fit", str(made)]
        replay += ["--chip", str(chip)] if chip.exists() else []
        done = subprocess.run(replay, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise Failure(done.stderr.strip())
        text = made.read_text()
        chip.write_text(text)
    print("".join(line[2:] for line in text.splitlines(keepends=True) if line.startswith("#")), file=sys.stderr, end="")


def _left_out(facts: dict) -> str:
    """The ops that the prediction says nothing about."""
    ops = ", ".join(f"{op} {count}" for op, count in facts["fallbacks"].items())
    return f"\nrun on the CPU and not in the prediction: {ops}" if ops else ""


def text(facts: dict, swept: dict, wall: float, top: int) -> str:
    from torch_npu.whatif import PARTS, milliseconds

    total = facts["cycles"] or 1
    shares = ", ".join(f"{part} {facts[part] / total:.0%}" for part in PARTS)
    lines = [
        f"\n{facts['chip']}: {milliseconds(facts):.3f} ms for {facts['count']} commands at {facts['clock_mhz']:g} MHz",
        f"(the C model and the script took {wall:.2f} s here)",
        f"bottleneck: {facts['bound']} (of all cycles: {shares}; parts may run side by side){_left_out(facts)}\n",
    ]
    rows = sorted(facts["rows"], key=lambda row: -row["cycles"])
    cells = []
    for row in rows[:top]:
        cycles = f"{row['cycles']:.0f}", f"{row['cycles'] / total:.1%}"
        cells.append((row["op"] or "?", row["kind"], row["count"], *cycles, row["bound"]))
    lines.append(table(("op", "command", "calls", "cycles", "share", "bound"), cells))
    if len(rows) > top:
        rest = sum(row["cycles"] for row in rows[top:])
        lines.append(f"... and {len(rows) - top} more with {rest / total:.1%}")
    if swept:
        lines.append("\nwith another")
    for key, pairs in swept.items():
        lines.append(f"  {key:20} " + "   ".join(f"{value:g}: {ms:.3f} ms" for value, ms in pairs))
    return "\n".join(lines)


def svg(swept: dict, own: dict, now: float, title: str) -> str:
    """One line per key: the predicted time over the value, relative to the chip's own."""
    width, height, left, top, bottom = 760, 420, 60, 60, 40
    points = {}
    for key, pairs in swept.items():
        unit = own.get(key) or pairs[0][0] or 1
        points[key] = [(value / unit, ms / now if now else 1) for value, ms in pairs if value > 0]
    xs = [x for line in points.values() for x, _ in line] or [1]
    ys = [y for line in points.values() for _, y in line] or [1]
    low_x, high_x = math.log2(min(xs)) - 0.1, math.log2(max(xs)) + 0.1
    low_y, high_y = min(0.5, *ys) * 0.9, max(1.5, *ys) * 1.1

    def place(x: float, y: float) -> tuple[float, float]:
        across = left + (width - left - 180) * (math.log2(x) - low_x) / (high_x - low_x)
        return across, top + (height - top - bottom) * (high_y - y) / (high_y - low_y)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="12"><rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-size="15">{html.escape(title)}: {now:.3f} ms</text>',
        '<text x="10" y="38">time relative to the chip as described, over each size relative to its own</text>',
    ]
    for exponent in range(math.ceil(low_x), math.floor(high_x) + 1):
        x, _ = place(2.0**exponent, 1)
        out.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{height - bottom}" stroke="#ddd"/>')
        out.append(f'<text x="{x:.1f}" y="{height - bottom + 16}" text-anchor="middle">{2.0**exponent:g}x</text>')
    for tick in (0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8):
        if low_y <= tick <= high_y:
            _, y = place(1, tick)
            out.append(f'<line x1="{left}" y1="{y:.1f}" x2="{width - 180}" y2="{y:.1f}" stroke="#ddd"/>')
            out.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for i, (key, line) in enumerate(points.items()):
        color = COLORS[i % len(COLORS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*p) for p in line))
        out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        out.append(f'<text x="{width - 170}" y="{top + 18 * i + 10}" fill="{color}">{html.escape(key)}</text>')
    return "\n".join([*out, "</svg>\n"])
