"""operand_lane: a small memory written by lines or elements and read by elements, one cycle later."""

import cocotb

from tests.rtl.arithmetic import LINE
from tests.rtl.kit import Bench, amount

LINES = 8


@cocotb.test()
async def keeps_what_was_written(dut):
    b = Bench(dut, "operand_lane")
    model = [None] * LINES  # a line that nobody wrote is unknown
    for _ in range(amount(3)):
        size = b.rng.randrange(3)
        width = 1 << size
        for _ in range(400):
            whole = b.rng.random() < 0.3
            one = not whole and b.rng.random() < 0.6
            line, byte = b.rng.randrange(LINES), b.rng.randrange(LINE)
            byte -= byte % width
            one = one and model[line] is not None
            data, element = b.rng.getrandbits(8 * LINE), b.rng.getrandbits(32)
            known = [i for i in range(LINES) if model[i] is not None]
            read = bool(known) and not b.pause()
            from_line, from_byte = (b.rng.choice(known) if read else 0), b.rng.randrange(LINE)
            from_byte -= from_byte % width
            before = b.q if read or b.cycles else 0
            await b.drive(
                whole=whole, one=one, size=size, wline=line, wbyte=byte, wdata=data, welement=element,
                re=read, rline=from_line, rbyte=from_byte,
            )  # fmt: skip
            want = before
            if read:
                piece = model[from_line][from_byte : from_byte + width]
                want = int.from_bytes(piece, "little", signed=size == 0) & 0xFFFFFFFF
            await b.edge()
            mask = 0xFFFF if size == 1 else 0xFFFFFFFF  # of a pair, the rest of the word comes along
            want &= mask
            b.expect(
                not known or b.q & mask == want, f"line {from_line} byte {from_byte}: expected {want:#x}, got {b.q:#x}"
            )
            if whole:
                model[line] = bytearray(data.to_bytes(LINE, "little"))
            elif one:
                model[line][byte : byte + width] = element.to_bytes(4, "little")[:width]
