"""walker: four dimensions in row-major order, at most LANES elements at a time."""

import itertools

import cocotb

from tests.rtl.arithmetic import LANES, SIZES
from tests.rtl.kit import Bench, amount, join

MASK = (1 << SIZES["ADDR_WIDTH"]) - 1


def vectors(base, size, stride):
    rows = list(itertools.product(*(range(n) for n in size[:3])))
    for row in rows:
        start = base + sum(i * s for i, s in zip(row, stride))
        for first in range(0, size[3], LANES):
            row_last = first + LANES >= size[3]
            count = min(LANES, size[3] - first)
            yield (start + first * stride[3]) & MASK, count, int(row_last), int(row_last and row == rows[-1])


@cocotb.test()
async def walks_every_vector_in_order(dut):
    b = Bench(dut, "walker")
    for _ in range(amount(60)):
        size = [b.rng.choice([1, 1, 2, 3]) for _ in range(3)] + [
            b.rng.choice([1, 15, 16, 17, 32, b.rng.randint(1, 70)])
        ]
        stride = [
            b.rng.randint(-(2**31), 2**31 - 1) if b.rng.random() < 0.3 else b.rng.randint(-99, 99) for _ in range(4)
        ]
        base = b.rng.getrandbits(SIZES["ADDR_WIDTH"])
        ports = {"base": base, "size": join(size), "stride": join(s & 0xFFFFFFFF for s in stride)}
        await b.drive(start=1, step=b.rng.getrandbits(1), **ports)
        await b.edge()
        for want in vectors(base, size, stride):
            while True:
                step = not b.pause()
                await b.drive(start=0, step=step)
                got = (b.addr, b.count, b.row_last, b.last)
                b.expect(got == want, f"size {size}, stride {stride}: expected {want}, got {got}")
                await b.edge()
                if step:
                    break
