"""matrix_engine: sums of products in several tiles at once, in order, bf16 and int8."""

import cocotb
import numpy as np

from tests.rtl.arithmetic import LANES, SIZES, TYPES, lane, load
from tests.rtl.kit import Bench, amount, join, split
from tests.rtl.packets import multiply_add

TILES = SIZES["TILE_ROWS"] * SIZES["TILE_COLUMNS"]


def column(rng, narrow):
    """Elements as the engine takes them, and as lanes."""
    raw = np.array([lane(rng) >> (24 if narrow else 16) for _ in range(LANES)], np.uint32)
    as_lanes = load(TYPES["I8" if narrow else "BF16"], raw)
    return (as_lanes & 0xFFFF if narrow else raw), as_lanes


@cocotb.test()
async def sums_are_taken_in_order(dut):
    b = Bench(dut, "matrix_engine")
    for _ in range(amount(2)):
        for narrow in (False, True):
            sums = [None] * TILES
            for _ in range(90):
                enabled = not b.pause()
                tile = b.rng.randrange(TILES)
                clear = sums[tile] is None or b.rng.random() < 0.05
                (a, a_lanes), (c, c_lanes) = column(b.rng, narrow), column(b.rng, narrow)
                known = [i for i in range(TILES) if sums[i] is not None]
                look, row = (b.rng.choice(known) if known else 0), b.rng.randrange(LANES)
                await b.drive(
                    en=enabled, clear=clear, narrow=narrow, tile=tile, a=join(a, 16), b=join(c, 16),
                    out_tile=look, out_row=row,
                )  # fmt: skip
                if known:
                    got, want = split(b.out, LANES), [int(value) for value in sums[look][row]]
                    b.expect(got == want, f"tile {look} row {row}: expected {want}, got {got}")
                await b.edge()
                if enabled:
                    before = np.zeros((LANES, LANES), np.uint32) if clear else sums[tile]
                    sums[tile] = multiply_add(before, a_lanes, c_lanes, narrow)
