"""vector_alu: every operation on every kind of number, bit for bit."""

import cocotb
import numpy as np

from tests.rtl.arithmetic import ARGUMENTS, EDGES, LANES, NAMES, lanes, operate
from tests.rtl.kit import Bench, amount, join, split

SLOW = ("DIV", "SQRT")


@cocotb.test()
async def every_operation_gives_the_bits_of_the_isa(dut):
    b = Bench(dut, "vector_alu")
    # Every pair of edges once, then numbers at random.
    pairs = [(x, y) for x in EDGES for y in EDGES]
    for op, name in NAMES.items():
        if name in SLOW or op not in ARGUMENTS:
            continue
        for turn in range(len(pairs) // LANES // 4 + amount(12)):
            a, c, d = lanes(b.rng), lanes(b.rng), lanes(b.rng)
            if turn < len(pairs) // LANES // 4:
                chosen = b.rng.sample(pairs, LANES)
                a, c = (np.array(values, np.uint32) for values in zip(*chosen))
            elif b.rng.random() < 0.3:
                c = np.where(lanes(b.rng) & 1, a, a ^ np.uint32(0x80000000)).astype(
                    np.uint32
                )  # equal, or nearly opposite
            keep = b.rng.choice([LANES, LANES, b.rng.randint(0, LANES)])
            await b.drive(go=1, op=op, keep_from=keep, a=join(a), b=join(c), c=join(d))
            await b.edge()
            want = np.where(np.arange(LANES) < keep, operate(op, a, c, d), a)
            got = split(b.result, LANES)
            for i in range(LANES):
                b.expect(
                    got[i] == want[i],
                    f"{name} of {a[i]:#010x}, {c[i]:#010x}, {d[i]:#010x}: expected {want[i]:#010x}, got {got[i]:#010x}",
                )
            if b.pause():  # without `go` the result stays
                await b.drive(go=0, a=join(d))
                await b.edge()
                b.expect(split(b.result, LANES) == got, "the result changed without go")
