"""What the benches share: one module of top, driven cycle by cycle, and a memory behind its ports."""

from __future__ import annotations

import collections
import os
import random

from cocotb.triggers import Timer

from tests.rtl.arithmetic import LINE

SEED = int(os.environ.get("BENCH_SEED", "1"))
WORK = float(os.environ.get("BENCH_WORK", "1"))  # multiple of the usual amount of traffic


def amount(usual: int) -> int:
    return max(1, round(usual * WORK))


class Bench:
    """A cycle is: `await drive(inputs)`, look at outputs, `await edge()`. Inputs stay until they are driven again."""

    def __init__(self, dut, module: str):
        self.dut, self.module = dut, module
        self.rng = random.Random(f"{module} {SEED}")
        self.stall = self.rng.choice([0.0, 0.1, 0.25, 0.5])
        self.handles, self.driven = {}, {}
        self.cycles = 0

    def _handle(self, name: str):
        if name not in self.handles:
            self.handles[name] = getattr(self.dut, f"{self.module}__{name}")
        return self.handles[name]

    async def drive(self, **inputs: int) -> None:
        for name, value in inputs.items():
            if self.driven.get(name) != value:
                self._handle(name).value = int(value)
                self.driven[name] = value
        self.dut.clk.value = 0
        await Timer(1, "ns")

    async def edge(self) -> None:
        self.dut.clk.value = 1
        await Timer(1, "ns")
        self.cycles += 1

    async def reset(self, **inputs: int) -> None:
        for level in (1, 1, 0):
            await self.drive(rst=level, **inputs)
            await self.edge()

    def __getattr__(self, name: str) -> int:
        """An output (or input) as it is now."""
        return int(self._handle(name).value)

    def signed(self, name: str, bits: int = 32) -> int:
        value = getattr(self, name)
        return value - (1 << bits) if value >> (bits - 1) else value

    def pause(self) -> bool:
        return self.rng.random() < self.stall

    def expect(self, condition: bool, text: str) -> None:
        assert condition, f"{self.module}, seed {SEED}, cycle {self.cycles}: {text}"


def join(values, bits: int = 32) -> int:
    """An array port: element 0 lowest."""
    return sum(int(value) << bits * i for i, value in enumerate(values))


def split(value: int, count: int, bits: int = 32) -> list[int]:
    return [value >> bits * i & (1 << bits) - 1 for i in range(count)]


class LineMemory:
    """Behind rd_*, rsp_* and wr_* of a unit: lines in order, with random pauses."""

    def __init__(self, bench: Bench, memory: bytearray, writes: bool = True):
        self.bench, self.memory, self.writes = bench, memory, writes
        self.asked = collections.deque()
        self.inputs = {"rd_ready": 0, "rsp_valid": 0, "rsp_data": 0} | ({"wr_ready": 0} if writes else {})

    def before(self) -> dict[str, int]:
        """Inputs of the next cycle."""
        b = self.bench
        answer = bool(self.asked) and self.asked[0][1] <= b.cycles and not b.pause()
        self.inputs["rsp_valid"] = answer
        if answer:
            line = self.asked.popleft()[0] * LINE
            b.expect(line + LINE <= len(self.memory), f"expected a read inside memory, got line {line:#x}")
            self.inputs["rsp_data"] = int.from_bytes(self.memory[line : line + LINE], "little")
        self.inputs["rd_ready"] = not b.pause()
        if self.writes:
            self.inputs["wr_ready"] = not b.pause()
        return self.inputs

    def after(self) -> None:
        """With all signals settled, before the edge."""
        b = self.bench
        if self.inputs["rd_ready"] and b.rd_valid:
            self.asked.append((b.rd_line, b.cycles + b.rng.randint(1, 8)))
        if self.writes and self.inputs["wr_ready"] and b.wr_valid:
            write_line(self.memory, b.wr_line * LINE, b.wr_data, b.wr_strb)


def write_line(memory: bytearray, at: int, data: int, strobe: int) -> None:
    for i, byte in enumerate(data.to_bytes(LINE, "little")):
        if strobe >> i & 1:
            memory[at + i] = byte


def first_difference(got: bytes, want: bytes) -> str:
    at = next((i for i, (x, y) in enumerate(zip(got, want)) if x != y), None)
    return "" if at is None else f"byte {at:#x}: expected {want[at]:#04x}, got {got[at]:#04x}"
