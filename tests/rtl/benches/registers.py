"""registers: random AXI4-Lite traffic with pauses on every channel, beside interrupts, errors, counters and resets."""

import cocotb

from tests.rtl.arithmetic import REGISTERS as R
from tests.rtl.arithmetic import SIZES, VALUES
from tests.rtl.kit import Bench, amount

WRITABLE = {"CONTROL", "RING_LO", "RING_HI", "RING_SIZE", "TAIL", "IRQ_STATUS", "IRQ_ENABLE"}
COUNTERS = {"CYCLES": None, "BUSY": "busy", "MATRIX": "matrix_busy", "READS": "line_read", "WRITES": "line_written"}
OKAY, SLVERR = 0, 2


class Model:
    def __init__(self):
        self.ring, self.size, self.tail, self.irq_status, self.irq_enable = 0, 0, 0, 0, 0
        self.enable, self.resetting, self.error_before = 0, 0, 0
        self.counters = dict.fromkeys(COUNTERS, 0)

    def read(self, offset, i):
        """Response and data, from the state before the edge and the inputs `i`."""
        words = {
            "ID": VALUES["ID_VALUE"], "VERSION": SIZES["VERSION"], "CONTROL": self.enable * VALUES["CONTROL_ENABLE"],
            "STATUS": i["busy"] | i["error"] << 1 | self.resetting << 2,
            "RING_LO": self.ring, "RING_HI": self.ring >> 32, "RING_SIZE": self.size, "TAIL": self.tail,
            "IRQ_STATUS": self.irq_status, "IRQ_ENABLE": self.irq_enable, "PACKETS": i["retired"], "HEAD": i["head"],
            "ERROR_CODE": i["error_code"], "ERROR_TAG": i["error_tag"],
            "ERROR_LO": i["error_addr"], "ERROR_HI": i["error_addr"] >> 32,
        }  # fmt: skip
        for name, count in self.counters.items():
            words |= {f"{name}_LO": count, f"{name}_HI": count >> 32}
        for name, value in words.items():
            if R[name] == offset:
                return OKAY, value & 0xFFFFFFFF
        return SLVERR, 0

    def edge(self, i, write):
        """Returns the response to a write, or None."""
        done = VALUES["IRQ_DONE"] if i["irq"] else 0
        was_resetting = self.resetting
        for name, signal in COUNTERS.items():
            self.counters[name] += 1 if signal is None else i[signal]
        status = self.irq_status | done | (VALUES["IRQ_ERROR"] if i["error"] and not self.error_before else 0)
        self.error_before = i["error"]
        if was_resetting:
            self.enable = self.tail = status = 0
            self.counters = dict.fromkeys(COUNTERS, 0)
            self.resetting = int(not i["bus_idle"])
        response = None
        if write:
            offset, data = write
            name = next((n for n in WRITABLE if R[n] == offset), None)
            response = OKAY if name else SLVERR
            if name == "CONTROL":
                self.enable = data & 1
                self.resetting |= data >> 1 & 1
            elif name == "RING_LO":
                self.ring = self.ring >> 32 << 32 | data
            elif name == "RING_HI":
                self.ring = self.ring & 0xFFFFFFFF | data << 32
            elif name == "RING_SIZE":
                self.size = data
            elif name == "TAIL":
                self.tail = data
            elif name == "IRQ_STATUS":
                status = self.irq_status & ~data | done
            elif name == "IRQ_ENABLE":
                self.irq_enable = data
        self.irq_status = status
        return response


def others(rng, before):
    """What the units say. The error holds for a while, as a stopped ring does."""
    bits = {name: rng.getrandbits(1) for name in ("busy", "matrix_busy", "line_read", "line_written")}
    error = before.get("error", 0) ^ (rng.random() < 0.1)
    words = {"error_code": rng.randrange(6), "error_tag": rng.getrandbits(32), "error_addr": rng.getrandbits(40)}
    words |= {"head": rng.getrandbits(32), "retired": rng.getrandbits(32)}
    return bits | words | {"irq": int(rng.random() < 0.1), "error": error, "bus_idle": int(rng.random() < 0.3)}


@cocotb.test()
async def registers_answer_as_the_page_says(dut):
    b = Bench(dut, "registers")
    rng, model, i = b.rng, Model(), others(b.rng, {})
    i |= {"error": 0}
    idle = dict.fromkeys(("s_awvalid", "s_wvalid", "s_bready", "s_arvalid", "s_rready"), 0)
    await b.reset(**idle, **i)
    model.edge(i, None)  # the last cycle of reset() is one without
    offsets = [*R.values(), 0x3C, 0xF0]
    write = read = None  # offered
    answer = given = None  # to come: response of a write; response and data of a read
    for _ in range(amount(3000)):
        if write is None and not b.pause():
            offset = rng.choice(offsets)
            data = rng.choice([rng.getrandbits(32), rng.randrange(4), 1])
            if offset == R["CONTROL"] and rng.random() < 0.8:
                data &= 1
            write = (offset, data)
        if read is None and not b.pause():
            read = rng.choice(offsets)
        # Address and data of a write need not come together.
        i = others(rng, i)
        s = {"s_awvalid": write is not None and not b.pause(), "s_wvalid": write is not None and not b.pause()}
        s |= {"s_awaddr": write[0] if write else 0, "s_wdata": write[1] if write else 0}
        s |= {
            "s_arvalid": read is not None,
            "s_araddr": read or 0,
            "s_bready": not b.pause(),
            "s_rready": not b.pause(),
        }
        await b.drive(**i, **s)
        b.expect(b.enable == model.enable and b.resetting == model.resetting, "enable or reset is wrong")
        b.expect(b.ring == model.ring >> 6 & (1 << 34) - 1 and b.ring_size == model.size, "the ring is wrong")
        b.expect(b.tail == model.tail, f"expected tail {model.tail:#x}, got {b.tail:#x}")
        b.expect(b.irq_pin == (model.irq_status & model.irq_enable != 0), "the interrupt is wrong")
        b.expect(b.s_bvalid == (answer is not None), "an answer to a write is missing or made up")
        b.expect(b.s_rvalid == (given is not None), "an answer to a read is missing or made up")
        if answer is not None:
            b.expect(b.s_bresp == answer, f"expected response {answer}, got {b.s_bresp}")
        if given is not None:
            b.expect((b.s_rresp, b.s_rdata) == given, f"expected {given}, got {(b.s_rresp, b.s_rdata)}")
        taken = write if s["s_awvalid"] and s["s_wvalid"] and b.s_awready and b.s_wready else None
        asked = read if s["s_arvalid"] and b.s_arready else None
        given = None if s["s_rready"] else given
        if asked is not None:
            given, read = model.read(asked, i), None
        answer = None if s["s_bready"] else answer
        response = model.edge(i, taken)
        if taken:
            answer, write = response, None
        await b.edge()
