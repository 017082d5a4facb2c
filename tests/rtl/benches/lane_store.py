"""lane_store: a vector becomes bytes in memory: each of its elements, nothing else."""

import cocotb
import numpy as np

from tests.rtl.arithmetic import LANES, LINE, TYPES, WIDTHS, lanes, store
from tests.rtl.kit import Bench, amount, first_difference, join, write_line

SIZE = 256 * LINE  # room for the widest strides on both sides


@cocotb.test()
async def stores_each_element_and_nothing_else(dut):
    b = Bench(dut, "lane_store")
    await b.reset(valid=0, wr_ready=0)
    for _ in range(amount(250)):
        kind = b.rng.choice(list(TYPES.values()))
        width, count, data = WIDTHS[kind], b.rng.randint(1, LANES), lanes(b.rng)
        stride = width if b.rng.random() < 0.5 else width * b.rng.choice([-1, 2, 3, -5, b.rng.randint(-90, 90) or 1])
        addr = SIZE // 2 + width * b.rng.randrange(LINE)
        memory = bytearray(b.rng.randbytes(SIZE))
        want = bytearray(memory)
        for i, value in enumerate(store(kind, np.asarray(data))[:count]):
            at = addr + i * stride
            want[at : at + width] = int(value).to_bytes(4, "little")[:width]
        lines = 0
        while True:
            ready = not b.pause()
            await b.drive(
                valid=1, data=join(data), count=count, kind=kind, addr=addr, stride=stride & 0xFFFFFFFF, wr_ready=ready
            )
            b.expect(b.wr_valid == 1, "expected a line to write")
            if ready:
                write_line(memory, b.wr_line * LINE, b.wr_data, b.wr_strb)
                lines += 1
            finished = b.ready
            await b.edge()
            if finished:
                break
            b.expect(lines <= LANES, f"expected at most {LANES} lines, got more")
        if stride == width:
            b.expect(lines <= 2, f"expected neighbours in at most 2 lines, got {lines}")
        problem = first_difference(memory, want)
        b.expect(not problem, f"type {kind}, {count} elements, stride {stride} at {addr:#x}: {problem}")
        if b.pause():
            await b.drive(valid=0, wr_ready=1)
            b.expect(b.wr_valid == 0, "expected no line without valid")
            await b.edge()
