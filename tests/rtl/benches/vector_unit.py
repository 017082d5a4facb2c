"""vector_unit: VECTOR, IOTA, CHECK, REDUCE, GATHER and SCATTER packets on a memory with pauses, byte for byte."""

import cocotb

from tests.rtl.kit import Bench, LineMemory, amount, first_difference
from tests.rtl.packets import first_failed, random_indexed, random_memory, random_placed, random_vector, run_packet

AREA = 1 << 14


@cocotb.test()
async def vectors_and_reductions_change_memory_as_the_page_says(dut):
    b = Bench(dut, "vector_unit")
    memory = random_memory(b.rng, 4 * AREA)
    port = LineMemory(b, memory)
    await b.reset(start=0, packet=0, sources=0, bus_idle=1, **port.inputs)
    for _ in range(amount(60)):
        b.stall = b.rng.choice([0.0, 0.1, 0.4])
        kind = b.rng.random()
        if kind < 0.3:
            packet = random_indexed(b.rng, AREA, memory)
        elif kind < 0.45:
            packet = random_placed(b.rng, AREA, memory)
        else:
            packet = random_vector(b.rng, AREA, b.rng.random() < 0.3)
        want, failed = bytearray(memory), first_failed(packet, memory)
        run_packet(packet, want)
        start = 1
        for _ in range(20000):
            inputs = port.before()
            await b.drive(
                start=start, packet=packet.to_int(), sources=packet.sources(), bus_idle=not port.asked, **inputs
            )
            port.after()
            start, done = 0, b.done
            await b.edge()
            if done:
                break
        b.expect(done == 1, f"{packet}: expected it to end, got nothing for 20000 cycles")
        got = b.check_position if b.check_failed else None
        b.expect(got == failed, f"{packet}: expected a failed CHECK at {failed}, got {got}")
        problem = first_difference(memory, want)
        b.expect(not problem, f"{packet}: {problem}")
