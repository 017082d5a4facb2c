"""divider: quotients and roots, correctly rounded, in a bounded number of cycles."""

import cocotb

from tests.rtl.arithmetic import LANES, OPERATIONS, lanes, operate
from tests.rtl.kit import Bench, amount, join, split


@cocotb.test()
async def quotients_and_roots_are_correctly_rounded(dut):
    b = Bench(dut, "divider")
    await b.reset(go=0, root=0)
    for _ in range(amount(60)):
        root = b.rng.random() < 0.4
        x, y = lanes(b.rng), lanes(b.rng)
        await b.drive(go=1, root=root, a=join(x), b=join(y))
        await b.edge()
        for _ in range(40):
            await b.drive(go=0, a=b.rng.getrandbits(32 * LANES))
            if b.done:
                break
            await b.edge()
        b.expect(b.done == 1, "expected a result within 40 cycles, got none")
        want = operate(OPERATIONS["SQRT" if root else "DIV"], x, y, y)
        for i, got in enumerate(split(b.result, LANES)):
            b.expect(
                got == want[i],
                f"{'sqrt' if root else 'div'} of {x[i]:#010x}, {y[i]:#010x}: expected {want[i]:#010x}, got {got:#010x}",
            )
        await b.edge()
        await b.drive(go=0)
        b.expect(b.done == 0, "expected done for one cycle")


@cocotb.test()
async def a_reset_ends_a_division(dut):
    b = Bench(dut, "divider")
    await b.reset(go=0)
    await b.drive(go=1, root=0, a=join(lanes(b.rng)), b=join(lanes(b.rng)))
    await b.edge()
    await b.reset(go=0)
    for _ in range(40):
        await b.drive(go=0)
        b.expect(b.done == 0, "expected nothing after a reset, got a result")
        await b.edge()
