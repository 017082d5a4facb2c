"""npu_top: registers on one side, memory on the other, packets through the ring; and recorded commands, if there are.

BENCH_VECTORS names test vectors that the rtl driver has written (docs/verification.md, "Test vectors").
"""

import collections
import json
import os

import cocotb

from tests.rtl.arithmetic import ERRORS, FLAGS, LINE, VALUES
from tests.rtl.arithmetic import REGISTERS as R
from tests.rtl.kit import Bench, amount, first_difference, write_line
from tests.rtl.packets import random_gemm, random_memory, random_vector, run_packet

AREA, RING_LINES = 1 << 15, 16
RING = 4 * AREA  # behind the operands
SIZE = RING + RING_LINES * LINE


class Npu:
    """The host and the memory, with pauses on every channel. Memory ends where `memory` ends."""

    def __init__(self, bench, memory):
        self.b, self.memory = bench, memory
        self.reads, self.addrs, self.data, self.answers = (collections.deque() for _ in range(4))
        self.lite = dict.fromkeys(("s_awvalid", "s_wvalid", "s_arvalid", "s_awaddr", "s_wdata", "s_araddr"), 0)
        self.lite |= {"s_bready": 1, "s_rready": 1}
        self.m = dict.fromkeys(("m_arready", "m_rvalid", "m_rdata", "m_rresp", "m_awready", "m_wready", "m_bvalid"), 0)
        self.m["m_bresp"] = 0

    def inside(self, addr):
        return addr + LINE <= len(self.memory)

    async def cycle(self):
        b, m = self.b, self.m
        m["m_arready"], m["m_awready"], m["m_wready"] = (not b.pause() for _ in range(3))
        m["m_rvalid"] = bool(self.reads) and self.reads[0][1] <= b.cycles and not b.pause()
        if m["m_rvalid"]:
            addr = self.reads.popleft()[0]
            m["m_rresp"] = 0 if self.inside(addr) else 3
            m["m_rdata"] = int.from_bytes(self.memory[addr : addr + LINE].ljust(LINE, b"\0"), "little")
        m["m_bvalid"] = bool(self.answers) and not b.pause()
        if m["m_bvalid"]:
            m["m_bresp"] = self.answers.popleft()
        await b.drive(**self.lite, **m)
        if m["m_arready"] and b.m_arvalid:
            b.expect((b.m_arlen, b.m_arsize, b.m_arburst) == (0, 6, 1), "expected reads of one line")
            self.reads.append((b.m_araddr, b.cycles + b.rng.randint(1, 8)))
        if m["m_awready"] and b.m_awvalid:
            b.expect((b.m_awlen, b.m_awsize, b.m_awburst) == (0, 6, 1), "expected writes of one line")
            self.addrs.append(b.m_awaddr)
        if m["m_wready"] and b.m_wvalid:
            self.data.append((b.m_wdata, b.m_wstrb))
        while self.addrs and self.data:
            addr, (data, strobe) = self.addrs.popleft(), self.data.popleft()
            if self.inside(addr):
                write_line(self.memory, addr, data, strobe)
            self.answers.append(0 if self.inside(addr) else 3)

    async def write(self, name, value):
        self.lite |= {"s_awvalid": 1, "s_wvalid": 1, "s_awaddr": R[name], "s_wdata": value & 0xFFFFFFFF}
        taken = 0
        while not taken:
            await self.cycle()
            taken = self.b.s_awready and self.b.s_wready
            await self.b.edge()
        self.lite |= {"s_awvalid": 0, "s_wvalid": 0}
        await self.cycle()
        await self.b.edge()

    async def read(self, name):
        self.lite |= {"s_arvalid": 1, "s_araddr": R[name], "s_rready": 0}
        taken = 0
        while not taken:
            await self.cycle()
            taken = self.b.s_arready
            await self.b.edge()
        self.lite |= {"s_arvalid": 0, "s_rready": 1}
        await self.cycle()
        self.b.expect(self.b.s_rvalid == 1, f"expected an answer from {name}")
        value = self.b.s_rdata
        await self.b.edge()
        return value

    async def start(self, ring=RING, lines=RING_LINES):
        self.ring, self.lines, self.tail = ring, lines, 0
        await self.b.reset(**self.lite, **self.m)
        await self.enable()

    async def enable(self):
        self.tail = 0
        await self.write("RING_LO", self.ring)
        await self.write("RING_HI", self.ring >> 32)
        await self.write("RING_SIZE", self.lines)
        await self.write("IRQ_ENABLE", VALUES["IRQ_DONE"] | VALUES["IRQ_ERROR"])
        await self.write("CONTROL", VALUES["CONTROL_ENABLE"])

    async def run(self, packet, most=100000):
        """The bytes of a packet with FLAG_IRQ. Returns what IRQ_STATUS says."""
        for i in range(0, len(packet), LINE):
            at = self.ring + self.tail % self.lines * LINE
            self.memory[at : at + LINE] = packet[i : i + LINE]
            self.tail += 1
        await self.write("TAIL", self.tail)
        for _ in range(most):
            await self.cycle()
            raised = self.b.irq_pin
            await self.b.edge()
            if raised:
                status = await self.read("IRQ_STATUS")
                await self.write("IRQ_STATUS", status)
                return status
        raise AssertionError(f"npu_top: expected an interrupt within {most} cycles, got none")


@cocotb.test()
async def packets_through_the_ring_change_memory_as_the_page_says(dut):
    b = Bench(dut, "npu_top")
    npu = Npu(b, random_memory(b.rng, SIZE))
    await npu.start()
    b.expect(await npu.read("ID") == VALUES["ID_VALUE"], "this is not the NPU")
    count = amount(20)
    for _ in range(count):
        b.stall = b.rng.choice([0.0, 0.1, 0.4])
        packet = (
            random_gemm(b.rng, AREA, 40, 70)
            if b.rng.random() < 0.3
            else random_vector(b.rng, AREA, b.rng.random() < 0.3)
        )
        packet.flags |= FLAGS["IRQ"]
        want = bytearray(npu.memory[:RING])
        run_packet(packet, want)
        status = await npu.run(packet.to_bytes())
        b.expect(status == VALUES["IRQ_DONE"], f"{packet}: expected it to retire, got interrupt {status}")
        problem = first_difference(npu.memory[:RING], want)
        b.expect(not problem, f"{packet}: {problem}")
    b.expect(await npu.read("PACKETS") == count, "the count of packets is wrong")


@cocotb.test()
async def a_bus_error_stops_the_ring_and_a_reset_starts_it_again(dut):
    b = Bench(dut, "npu_top")
    npu = Npu(b, random_memory(b.rng, SIZE))
    await npu.start()
    for operand in (0, 1):
        packet = random_gemm(b.rng, AREA)
        packet.flags |= FLAGS["IRQ"]
        good = packet.to_bytes()
        packet.tag, packet.addr[operand] = 4711, SIZE + 4096
        status = await npu.run(packet.to_bytes())
        b.expect(status == VALUES["IRQ_ERROR"], f"expected an error, got interrupt {status}")
        b.expect(await npu.read("ERROR_CODE") == ERRORS["BUS"], "expected a bus error")
        b.expect(await npu.read("ERROR_TAG") == 4711, "expected the tag of the packet")
        b.expect(await npu.read("ERROR_LO") >= SIZE, "expected an address outside memory")
        await npu.write("CONTROL", VALUES["CONTROL_RESET"])
        while await npu.read("STATUS") & VALUES["STATUS_RESETTING"]:
            pass
        await npu.enable()
        b.expect(await npu.run(good) == VALUES["IRQ_DONE"], "expected the NPU to go on after a reset")


@cocotb.test(skip=not os.environ.get("BENCH_VECTORS"))
async def recorded_commands_give_the_recorded_memory(dut):
    for path in os.environ.get("BENCH_VECTORS", "").split(os.pathsep):
        with open(path) as file:
            vector = json.load(file)
        b = Bench(dut, "npu_top")
        end = max(area["address"] + len(area["bytes"]) // 2 for area in vector["memory"] + vector["expected"])
        ring = -(-end // LINE) * LINE
        memory = bytearray(ring + 64 * LINE)
        for area in vector["memory"]:
            at, data = area["address"], bytes.fromhex(area["bytes"])
            memory[at : at + len(data)] = data
        npu = Npu(b, memory)
        await npu.start(ring, 64)
        for number, packet in enumerate(vector["packets"]):
            data = bytearray.fromhex(packet)
            data[2] |= FLAGS["IRQ"]
            status = await npu.run(bytes(data))
            b.expect(status == VALUES["IRQ_DONE"], f"{path}: packet {number}: got interrupt {status}")
        for area in vector["expected"]:
            at, want = area["address"], bytes.fromhex(area["bytes"])
            problem = first_difference(npu.memory[at : at + len(want)], want)
            b.expect(not problem, f"{path}: in the bytes from {at:#x} on, {problem}")
