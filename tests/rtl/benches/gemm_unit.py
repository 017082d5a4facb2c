"""gemm_unit: random products on a memory with pauses, byte for byte."""

import cocotb

from tests.rtl.arithmetic import SIZES, TYPES
from tests.rtl.kit import Bench, LineMemory, amount, first_difference
from tests.rtl.packets import random_gemm, random_memory, run_packet

AREA = 1 << 15


@cocotb.test()
async def products_change_memory_as_the_page_says(dut):
    b = Bench(dut, "gemm_unit")
    memory = random_memory(b.rng, 4 * AREA)
    port = LineMemory(b, memory)
    await b.reset(start=0, packet=0, **port.inputs)
    for _ in range(amount(12)):
        b.stall = b.rng.choice([0.0, 0.1, 0.4])
        packet = random_gemm(b.rng, AREA)
        want = bytearray(memory)
        run_packet(packet, want)
        start, busy = 1, 0
        for _ in range(50000):
            await b.drive(start=start, packet=packet.to_int(), **port.before())
            port.after()
            start, done = 0, b.done
            busy += b.busy
            await b.edge()
            if done:
                break
        b.expect(done == 1, f"{packet}: expected it to end, got nothing for 50000 cycles")
        batch, m, n, k = packet.size
        tiles = sum(
            -(-min(32, m - i) // 16) * -(-min(32, n - j) // 16) for i in range(0, m, 32) for j in range(0, n, 32)
        )
        cycles = batch * tiles * k * (SIZES["PASSES"] if packet.kinds[1] == TYPES["F32"] else 1)
        b.expect(busy == cycles, f"{packet}: expected {cycles} busy cycles, got {busy}")
        problem = first_difference(memory, want)
        b.expect(not problem, f"{packet}: {problem}")
