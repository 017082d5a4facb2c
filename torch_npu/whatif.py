"""What a chip that need not exist would take: python -m torch_npu whatif, and the same from Python.

    TORCH_NPU_DRIVER=cmodel:chip=chip.toml     events report the chip's time instead of the host's
    torch_npu.whatif.prediction()              all commands so far on that chip
    torch_npu.whatif.prediction(other_text)    the same commands on another one

The commands run on the C model; their time is computed from a description of the chip (docs/whatif.md).
"""

import ctypes
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path

from torch_npu import _info

# What a sweep changes where nobody says otherwise.
SWEPT = ("matrix.rows", "matrix.columns", "vector.lanes", "memory.dram_gbps", "memory.sram_kb", "launch_cycles")
FACTORS = (0.25, 0.5, 1, 2, 4)
PARTS = ("matrix", "vector", "memory", "launch")


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(Path(_info.library_path()) / "libnpu_cmodel.so"))
    library.npu_timing_report.restype = library.npu_timing_error.restype = ctypes.c_char_p
    return library


def prediction(chip: str | None = None) -> dict:
    """Cycles of all commands since the start or restart(), on the chip of TORCH_NPU_DRIVER or on that of a text.

    Keys: cycles, the cycles of each part (matrix, vector, memory, launch) as if it were alone, macs, bytes, bound (the
    largest part), and rows, the same for each op and kind of command.
    """
    library = _library()
    text = library.npu_timing_report(chip.encode() if chip is not None else None)
    if text is None:
        raise ValueError(library.npu_timing_error().decode())
    return json.loads(text)


def restart() -> None:
    """Forgets the commands so far."""
    _library().npu_timing_restart()


def milliseconds(facts: dict) -> float:
    """A run's predicted cycles as time, at the chip's clock."""
    return facts["cycles"] / facts["clock_mhz"] / 1000


def flat(chip: str) -> dict[str, float | str]:
    """A chip's text as one value per key: {"matrix.rows": 16, ...}."""
    values: dict[str, float | str] = {}
    for key, value in tomllib.loads(chip).items():
        if isinstance(value, dict):
            values |= {f"{key}.{inner}": v for inner, v in value.items()}
        else:
            values[key] = value
    return values


def text(values: dict[str, float | str]) -> str:
    """The way back from flat()."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def sweep(chip: str, changes: Iterable[tuple[str, list[float]]]) -> dict[str, list[tuple[float, float]]]:
    """For every key the pairs (value, milliseconds), one key changed at a time."""
    values = flat(chip)
    return {
        key: [(v, milliseconds(prediction(text({**values, key: v})))) for v in candidates]
        for key, candidates in changes
    }


def usual_changes(chip: str) -> list[tuple[str, list[float]]]:
    """A quarter to four times of what the chip has, for the keys it names."""
    values = flat(chip)
    found = ((key, values.get(key)) for key in SWEPT)
    # What is no number, or 0, is left to the C model, which says what it expects there.
    return [(key, [value * f for f in FACTORS]) for key, value in found if isinstance(value, int | float) and value]
