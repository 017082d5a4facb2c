"""axi_port: requests reach the bus in order and once, answers come back in order, errors name their address."""

import collections

import cocotb

from tests.rtl.arithmetic import LINE, SIZES
from tests.rtl.kit import Bench, amount

LINES = 1 << SIZES["ADDR_WIDTH"] - 6


class Traffic:
    """Both sides of the port. Every queue holds what has to appear at the other end."""

    def __init__(self, bench):
        self.b = bench
        self.ar, self.aw, self.w = (collections.deque() for _ in range(3))
        self.reads, self.writes, self.data = (collections.deque() for _ in range(3))
        self.write_answers = 0
        self.error = None
        self.inputs = {}

    def choose(self, more, errors):
        b, rng = self.b, self.b.rng
        i = self.inputs
        if not i.get("rd_valid") or self.rd_taken:
            i["rd_valid"], i["rd_line"] = more and not b.pause(), rng.randrange(LINES)
            i["rd_fetch"] = rng.getrandbits(1)
        if not i.get("wr_valid") or self.wr_taken:
            i["wr_valid"], i["wr_line"] = more and not b.pause(), rng.randrange(LINES)
            i["wr_data"], i["wr_strb"] = rng.getrandbits(8 * LINE), rng.getrandbits(LINE)
        i["m_arready"], i["m_awready"], i["m_wready"] = (not b.pause() for _ in range(3))
        i["m_rvalid"] = len(self.reads) > len(self.ar) and not b.pause()
        i["m_bvalid"] = self.write_answers > 0 and not b.pause()
        i["m_rdata"] = rng.getrandbits(8 * LINE)
        i["m_rresp"], i["m_bresp"] = ((2 | rng.getrandbits(1)) if rng.random() < errors else 0 for _ in range(2))
        i["clear_error"] = errors > 0 and rng.random() < 0.05
        return i

    def look(self):
        """Signals have settled: compare, and remember what the edge does."""
        b, i = self.b, self.inputs
        b.expect(b.idle == (not self.reads and not self.writes), "idle is wrong")
        b.expect(b.stored == (not self.writes), "stored is wrong")
        b.expect(len(self.reads) <= SIZES["READS"], f"expected at most {SIZES['READS']} reads, got {len(self.reads)}")
        b.expect(b.error == (self.error is not None), f"expected error {self.error}, got {b.error}")
        if self.error is not None:
            b.expect(b.error_addr == self.error, f"expected an error at {self.error:#x}, got {b.error_addr:#x}")
        b.expect(b.rsp_valid == i["m_rvalid"], "an answer was held back or made up")
        for valid, queue, addr in ((b.m_arvalid, self.ar, b.m_araddr), (b.m_awvalid, self.aw, b.m_awaddr)):
            b.expect(valid == bool(queue), f"expected valid {bool(queue)}, got {valid}")
            if valid:
                b.expect(addr == queue[0] * LINE, f"expected address {queue[0] * LINE:#x}, got {addr:#x}")
        b.expect(b.m_wvalid == bool(self.w), "wvalid is wrong")
        if self.w:
            b.expect((b.m_wdata, b.m_wstrb) == self.w[0], "expected the data that was given, got other data")
        self.rd_taken, self.wr_taken = i["rd_valid"] and b.rd_ready, i["wr_valid"] and b.wr_ready
        if self.ar and i["m_arready"]:
            self.ar.popleft()
        if i["m_rvalid"]:
            b.expect(b.rsp_data == i["m_rdata"], "the answer is not the bus's")
        if self.aw and i["m_awready"]:
            self.aw.popleft()
            self.ready_to_answer()
        if self.w and i["m_wready"]:
            self.w.popleft()
            self.ready_to_answer()
        error = self.error
        if i["m_rvalid"]:
            line, fetch = self.reads.popleft()
            b.expect(b.rsp_fetch == fetch, "the answer goes to the wrong side")
            if error is None and i["m_rresp"]:
                error = line * LINE
        if i["m_bvalid"]:
            line = self.writes.popleft()
            self.write_answers -= 1
            if error is None and i["m_bresp"]:
                error = line * LINE
        self.error = None if i["clear_error"] else error
        if self.rd_taken:
            self.ar.append(i["rd_line"])
            self.reads.append((i["rd_line"], i["rd_fetch"]))
        if self.wr_taken:
            self.aw.append(i["wr_line"])
            self.w.append((i["wr_data"], i["wr_strb"]))
            self.writes.append(i["wr_line"])

    def ready_to_answer(self):
        # Address and data of a line are both on the bus.
        self.write_answers = len(self.writes) - max(len(self.aw), len(self.w))


async def run(dut, cycles, errors):
    b = Bench(dut, "axi_port")
    zero = dict.fromkeys(
        ("rd_valid", "rd_fetch", "wr_valid", "m_arready", "m_rvalid", "m_awready", "m_wready", "m_bvalid"), 0
    )
    await b.reset(clear_error=0, **zero)
    traffic = Traffic(b)
    for cycle in range(cycles + 400):
        # A memory that is slow at times fills the queues.
        b.stall = [0.1, 0.6, 0.0, 0.9][cycle // 150 % 4] if cycle < cycles else 0.0
        await b.drive(**traffic.choose(cycle < cycles, errors))
        traffic.look()
        await b.edge()
    await b.drive()
    b.expect(b.idle == 1, "expected an idle bus at the end, got one with open requests")


@cocotb.test()
async def every_request_arrives_once_and_in_order(dut):
    await run(dut, amount(2000), 0)


@cocotb.test()
async def the_first_error_is_kept_with_its_address(dut):
    await run(dut, amount(600), 0.05)
