"""lane_access: the addresses of a vector's lanes, one after the other; what a mask leaves out is not touched."""

import cocotb

from tests.rtl.arithmetic import LANES
from tests.rtl.kit import Bench, amount

BASE = 1 << 20


@cocotb.test()
async def every_lane_that_is_taken_is_moved_once_and_in_order(dut):
    b = Bench(dut, "lane_access")
    rng = b.rng
    quiet = dict(start=0, asked=0, pending=0, bus_idle=1, stored=0)
    await b.reset(**quiet)
    for _ in range(amount(150)):
        scatter = rng.random() < 0.6
        update = scatter and rng.random() < 0.5
        width, count = rng.choice([1, 2, 4]), rng.randint(1, LANES)
        stride = width * rng.randint(-5, 5)
        index = [rng.randint(-900, 900) for _ in range(LANES)]
        mask = [rng.choice([0, 1, 7]) for _ in range(LANES)]
        fixed = dict(scatter=scatter, update=update, base=BASE, stride=stride & 0xFFFFFFFF, width=width, count=count)
        want = [(i, BASE + i * stride + index[i] * width) for i in range(count) if mask[i]]
        asked, stored, computed, answers = [], [], 0, 0
        await b.drive(**fixed, **(quiet | {"start": 1}))
        await b.edge()
        for _ in range(2000):
            # An answer comes some cycles after it was asked for; stores arrive in their own time.
            answers -= answers > 0 and not b.pause()
            idle = answers == 0 and not b.pause()
            lane = b.lane
            inputs = dict(index=index[lane] & 0xFFFFFFFF, mask=mask[lane], pending=answers > 0, bus_idle=idle)
            ready = not b.pause()
            await b.drive(start=0, asked=ready, stored=0, **inputs)
            write = b.store and ready
            await b.drive(stored=write)
            if b.ask and ready:
                b.expect(not update or idle, "expected it to wait for the bus before it loads what it changes")
                asked.append((b.lane, b.at))
                answers += 1
            if b.compute:
                b.expect(answers == 0, "expected it to wait for the element")
                computed += 1
            if write:
                stored.append((b.lane, b.at))
            done = b.done
            await b.edge()
            if done:
                break
        b.expect(done == 1, "expected it to end, got nothing for 2000 cycles")
        b.expect(answers == 0, "expected it to wait for its answers")
        b.expect(asked == (want if update or not scatter else []), f"expected to ask for {want}, got {asked}")
        b.expect(stored == (want if scatter else []), f"expected to store {want}, got {stored}")
        b.expect(computed == (len(want) if update else 0), f"expected {len(want)} elements computed, got {computed}")
