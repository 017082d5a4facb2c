"""gemm_loader: rows of A and columns of B, chunk by chunk, in the order in which gemm_unit wants them."""

import cocotb
import numpy as np

from tests.rtl.arithmetic import LANES, SIZES, TYPES, store
from tests.rtl.kit import Bench, LineMemory, amount, split
from tests.rtl.packets import gemm_inputs, random_gemm, random_memory

AREA = 1 << 15
ROWS, COLUMNS, CHUNK = LANES * SIZES["TILE_ROWS"], LANES * SIZES["TILE_COLUMNS"], SIZES["CHUNK"]


def chunks(packet):
    batch, m, n, k = packet.size
    for i in range(batch):
        for row in range(0, m, ROWS):
            for column in range(0, n, COLUMNS):
                for step in range(0, k, CHUNK):
                    yield i, row, column, step


class Loader:
    def __init__(self, bench, memory, packet):
        self.b, self.packet = bench, packet
        self.port = LineMemory(bench, memory, writes=False)
        self.narrow = packet.kinds[1] == TYPES["I8"]
        self.a, self.b_columns = gemm_inputs(packet, np.frombuffer(memory, np.uint8))

    async def cycle(self, **inputs):
        inputs = {"start": 0, "release_half": 0, "packet": self.packet.to_int(), "narrow": self.narrow} | inputs
        await self.b.drive(**self.port.before(), **inputs)
        self.port.after()
        await self.b.edge()

    def compare(self, name, values):
        """An output against lanes. Of a NaN the loader keeps the bits, a lane does not."""
        want = values & 0xFFFF if self.narrow else store(TYPES["BF16"], values)
        for i, got in enumerate(split(getattr(self.b, name), len(want), 16)):
            nan = not self.narrow and want[i] == 0x7FC0 and got & 0x7FFF > 0x7F80
            text = f"{self.packet}: {name}[{i}]: expected {want[i]:#x}, got {got:#x}"
            self.b.expect(nan or got == want[i], text)


@cocotb.test()
async def chunks_hold_the_right_elements(dut):
    b = Bench(dut, "gemm_loader")
    memory = random_memory(b.rng, 4 * AREA)
    idle = dict(start=0, packet=0, narrow=0, release_half=0, released=0, read=0, read_half=0, read_step=0)
    for _ in range(amount(5)):
        b.stall = b.rng.choice([0.0, 0.1, 0.4])
        packet = random_gemm(b.rng, AREA)
        loader = Loader(b, memory, packet)
        await b.reset(**idle, **loader.port.inputs)
        await loader.cycle(start=1)
        half = 0
        for i, row, column, first in chunks(packet):
            for _ in range(4000):
                if b.full >> half & 1:
                    break
                await loader.cycle(read=0)
            b.expect(b.full >> half & 1 == 1, f"{packet}: expected a chunk within 4000 cycles, got none")
            steps = min(CHUNK, packet.size[3] - first)
            for step in b.rng.sample(range(steps), min(steps, 12)):
                await loader.cycle(read=1, read_half=half, read_step=step)
                loader.compare("a", loader.a[i, row : row + ROWS, first + step])
                loader.compare("b", loader.b_columns[i, column : column + COLUMNS, first + step])
            await loader.cycle(read=0, release_half=1, released=half)
            half ^= 1
