"""matrix_engine: sums of products in several tiles at once, in order: bf16, int8, and f32 in passes."""

import cocotb
import numpy as np

from tests.rtl.arithmetic import LANES, SIZES, TYPES, lane, load
from tests.rtl.kit import Bench, amount, join, split
from tests.rtl.packets import multiply_add

TILES = SIZES["TILE_ROWS"] * SIZES["TILE_COLUMNS"]


def column(rng, kind):
    """Elements as the engine takes them, and as lanes."""
    raw = np.array([lane(rng) >> {"I8": 24, "BF16": 16, "F32": 0}[kind] for _ in range(LANES)], np.uint32)
    as_lanes = load(TYPES[kind], raw)
    return (as_lanes if kind == "I8" else raw), as_lanes


@cocotb.test()
async def sums_are_taken_in_order(dut):
    b = Bench(dut, "matrix_engine")
    for _ in range(amount(2)):
        for kind in ("BF16", "I8", "F32"):
            sums = [None] * TILES
            for _ in range(90 if kind != "F32" else 25):
                tile = b.rng.randrange(TILES)
                clear = sums[tile] is None or b.rng.random() < 0.05
                (a, a_lanes), (c, c_lanes) = column(b.rng, kind), column(b.rng, kind)
                gap = b.rng.getrandbits(LANES) & b.rng.getrandbits(LANES) if kind != "I8" else 0
                for step in range(SIZES["PASSES"] if kind == "F32" else 1):
                    enabled = False
                    while not enabled:
                        enabled = not b.pause()
                        known = [i for i in range(TILES) if sums[i] is not None]
                        look, row = (b.rng.choice(known) if known else 0), b.rng.randrange(LANES)
                        await b.drive(
                            en=enabled, clear=clear, narrow=kind == "I8", wide=kind == "F32", gap=gap, tile=tile,
                            a=join(a), b=join(c), out_tile=look, out_row=row, **{"pass": step},
                        )  # fmt: skip
                        if known:
                            got, want = split(b.out, LANES), [int(value) for value in sums[look][row]]
                            b.expect(got == want, f"tile {look} row {row}: expected {want}, got {got}")
                        await b.edge()
                before = np.zeros((LANES, LANES), np.uint32) if clear else sums[tile]
                absent = np.array([gap >> j & 1 for j in range(LANES)], bool)
                sums[tile] = np.where(absent[None, :], before, multiply_add(before, a_lanes, c_lanes, kind == "I8"))
