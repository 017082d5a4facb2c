"""gemm_loader: rows of A and columns of B, chunk by chunk, in the order in which gemm_unit wants them."""

import cocotb
import numpy as np

from tests.rtl.arithmetic import FLAGS, LANES, SIZES, TYPES, store
from tests.rtl.kit import Bench, LineMemory, amount, split
from tests.rtl.packets import gemm_bias, gemm_inputs, random_gemm, random_memory

AREA = 1 << 15
ROWS, COLUMNS, CHUNK = LANES * SIZES["TILE_ROWS"], LANES * SIZES["TILE_COLUMNS"], SIZES["CHUNK"]


def chunk_of(packet):
    return CHUNK // 2 if packet.kinds[1] == TYPES["F32"] else CHUNK


def chunks(packet):
    batch, m, n, k = packet.size
    for i in range(batch):
        for row in range(0, m, ROWS):
            for column in range(0, n, COLUMNS):
                for step in range(0, k, chunk_of(packet)):
                    yield i, row, column, step


class Loader:
    def __init__(self, bench, memory, packet):
        self.b, self.packet = bench, packet
        self.port = LineMemory(bench, memory, writes=False)
        self.memory = np.frombuffer(memory, np.uint8)
        self.kind = packet.kinds[1]
        self.size = {TYPES["I8"]: 0, TYPES["BF16"]: 1, TYPES["F32"]: 2}[self.kind]
        self.a, self.b_columns = gemm_inputs(packet, np.frombuffer(memory, np.uint8))

    async def cycle(self, **inputs):
        inputs = {"start": 0, "release_half": 0, "packet": self.packet.to_int(), "size": self.size} | inputs
        await self.b.drive(**self.port.before(), **inputs)
        self.port.after()
        await self.b.edge()

    def compare(self, name, values):
        """An output against lanes. Of a NaN the loader keeps the bits, a lane does not."""
        want = values if self.size == 0 else store(self.kind, values)
        bits, inf, quiet = (16, 0x7F80, 0x7FC0) if self.size == 1 else (32, 0x7F800000, 0x7FC00000)
        for i, got in enumerate(split(getattr(self.b, name), len(want))):
            got &= (1 << bits) - 1
            nan = self.size > 0 and want[i] == quiet and got & (1 << bits - 1) - 1 > inf
            text = f"{self.packet}: {name}[{i}]: expected {want[i]:#x}, got {got:#x}"
            self.b.expect(nan or got == want[i], text)

    def compare_bias(self, half, batch, row, column):
        want = gemm_bias(self.packet, self.memory)[batch]
        across = self.packet.stride[3][2] != 0
        want = want[0, column : column + COLUMNS] if across else want[row : row + ROWS, 0]
        got = split(self.b.c, 2 * ROWS)[half * ROWS :][: len(want)]
        self.b.expect(got == [int(value) for value in want], f"{self.packet}: expected bias {want}, got {got}")


@cocotb.test()
async def chunks_hold_the_right_elements(dut):
    b = Bench(dut, "gemm_loader")
    memory = random_memory(b.rng, 4 * AREA)
    idle = dict(start=0, packet=0, size=0, release_half=0, released=0, read=0, read_half=0, read_step=0)
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
            if first == 0 and packet.flags & FLAGS["BIAS"]:
                loader.compare_bias(half, i, row, column)
            steps = min(chunk_of(packet), packet.size[3] - first)
            for step in b.rng.sample(range(steps), min(steps, 12)):
                await loader.cycle(read=1, read_half=half, read_step=step)
                loader.compare("a", loader.a[i, row : row + ROWS, first + step])
                loader.compare("b", loader.b_columns[i, column : column + COLUMNS, first + step])
            await loader.cycle(read=0, release_half=1, released=half)
            half ^= 1
