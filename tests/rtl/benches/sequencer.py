"""sequencer: packets of a ring, good and bad, become starts of units, retirements, interrupts and errors."""

import cocotb

from tests.rtl.arithmetic import ERRORS, FLAGS, LINE, OPCODES, TYPES
from tests.rtl.kit import Bench, LineMemory, amount
from tests.rtl.packets import Packet, random_gemm, random_memory, random_vector

RING_LINES = 16
RING_AT = 8  # lines


def spoil(rng, packet):
    """Makes a good packet a bad one; returns the error code."""
    gemm = packet.opcode == OPCODES["GEMM"]
    touched = [0, 1, 2] if gemm else [0] + [i + 1 for i in range(3) if packet.sources() >> i & 1]
    wide = [i for i in touched if packet.kinds[i] in (TYPES["F32"], TYPES["I32"], TYPES["BF16"], TYPES["F16"])]
    ways = (
        ["opcode", "operation", "type", "size"] + ["address", "stride"] * bool(wide) + ["gemm stride", "mixed"] * gemm
    )
    if gemm and packet.flags & FLAGS["BIAS"]:
        ways += ["bias stride", "bias type"]
    way = rng.choice(ways)
    if way == "opcode":
        packet.opcode = rng.randint(max(OPCODES.values()) + 1, 255)
    elif way == "operation" and not gemm:
        packet.op = rng.randint(200, 255)
    elif way in ("operation", "mixed") and gemm:
        packet.kinds[0] = TYPES["U16"]
    elif way == "type":
        packet.kinds[rng.choice(touched)] = 15
    elif way == "size":
        packet.size[rng.randrange(4)] = 0
        return ERRORS["SIZE"]
    elif way == "address":
        packet.addr[rng.choice(wide)] += 1
        return ERRORS["ALIGNMENT"]
    elif way == "stride":
        packet.stride[rng.choice(wide)][0] += 1
        return ERRORS["ALIGNMENT"]
    elif way == "bias stride":  # along neither dimension, or along both
        packet.stride[3][1:3] = rng.choice([[0, 12], [12, 0], [4, 4]])
        return ERRORS["STRIDE"]
    elif way == "bias type":
        packet.kinds[3] = TYPES["U8"]
    elif way == "gemm stride":
        packet.stride[rng.choice([1, 2])] = [0, 6, 6, 6]
        return ERRORS["STRIDE"]
    return ERRORS["OPCODE"]


def make(rng):
    if rng.random() < 0.25:
        packet = Packet(OPCODES["SYNC"])
    elif rng.random() < 0.4:
        packet = random_gemm(rng, 1 << 14)
    else:
        packet = random_vector(rng, 1 << 14, rng.random() < 0.3)
    packet.tag = rng.getrandbits(32)
    if rng.random() < 0.5:
        packet.flags |= FLAGS["IRQ"]
    return packet


@cocotb.test()
async def packets_start_units_and_retire_or_stop_the_ring(dut):
    b = Bench(dut, "sequencer")
    rng = b.rng
    memory = random_memory(rng, (RING_AT + RING_LINES) * LINE)
    for _ in range(amount(100)):
        port = LineMemory(b, memory, writes=False)
        quiet = dict(
            enable=0, ring=RING_AT, ring_size=RING_LINES, tail=0, unit_done=0, stored=1, bus_error=0, check_failed=0
        )
        await b.reset(**quiet, **port.inputs)
        head = retired = 0
        queue, there = [make_with_fate(rng) for _ in range(rng.randint(3, 12))], False
        for i, (packet, code, bus_fails) in enumerate(queue):
            # The next packet may stand in the ring while this one is at work.
            behind = queue[i + 1][0] if i + 1 < len(queue) and rng.random() < 0.5 else None
            await one_packet(b, port, packet, behind, there, head, retired, code, bus_fails)
            if code or bus_fails:
                break
            head, retired, there = head + lines_of(packet), retired + 1, behind is not None


def make_with_fate(rng):
    """A packet, the error that it or its unit has, and whether the bus fails."""
    packet = make(rng)
    code = ERRORS["NONE"]
    if packet.opcode != OPCODES["SYNC"] and rng.random() < 0.2:
        code = spoil(rng, packet)
    bus_fails = code == ERRORS["NONE"] and rng.random() < 0.08
    if code == ERRORS["NONE"] and not bus_fails and packet.opcode == OPCODES["VECTOR"] and rng.random() < 0.1:
        code = ERRORS["CHECK"]  # found by the unit
    return packet, code, bus_fails


def lines_of(packet):
    return len(packet.to_bytes()) // LINE


def ring(memory, packet, head, lines):
    """The first lines of a packet into the ring; behind them is what the ring held before."""
    data = packet.to_bytes()
    for i in range(lines):
        at = (RING_AT + (head + i) % RING_LINES) * LINE
        memory[at : at + LINE] = data[i * LINE : (i + 1) * LINE]


async def one_packet(b, port, packet, behind, there, head, retired, code, bus_fails):
    rng, lines = b.rng, lines_of(packet)
    is_sync, is_gemm = packet.opcode == OPCODES["SYNC"], packet.opcode == OPCODES["GEMM"]
    where = f"packet {packet}"
    # The doorbell may ring for the first line before the second one.
    tail, started, busy_for, irq = head + (1 if rng.random() < 0.3 and not there else lines), 0, 0, 0
    unit_done = bus_error = check_failed = 0
    ring(port.memory, packet, head, tail - head)
    for wait in range(400):
        if wait == 20 or tail == head + lines:
            tail = head + lines
            ring(port.memory, packet, head, lines)
            if behind:
                ring(port.memory, behind, tail, lines_of(behind))
                tail += lines_of(behind)
        drain = rng.random() < 0.3
        await b.drive(
            enable=1,
            tail=tail & 0xFFFFFFFF,
            unit_done=unit_done,
            stored=drain,
            bus_error=bus_error,
            check_failed=check_failed,
            **port.before(),
        )
        port.after()
        irq += b.irq
        unit_done = 0
        if b.start_vector or b.start_gemm:
            started += 1
            b.expect(code in (0, ERRORS["CHECK"]) and not is_sync, f"{where}: expected no start")
            b.expect((b.start_vector, b.start_gemm) == (not is_gemm, is_gemm), f"{where}: the wrong unit was started")
            b.expect(b.packet == packet.to_int(), f"{where}: the unit sees another packet")
            if not is_gemm:
                b.expect(
                    b.sources == packet.sources(), f"{where}: expected sources {packet.sources()}, got {b.sources}"
                )
            busy_for = rng.randint(1, 6)
        elif busy_for:
            busy_for -= 1
            if busy_for == 0:
                unit_done, bus_error = 1, int(bus_fails)
                check_failed = int(code == ERRORS["CHECK"])
        if is_sync and bus_fails:
            bus_error = 1
        if b.error:
            want = ERRORS["BUS"] if bus_fails else code
            b.expect(want != 0 and b.error_code == want, f"{where}: expected error {want}, got {b.error_code}")
            b.expect((b.head, b.retired) == (head, retired), f"{where}: a failed packet retired")
            b.expect(b.packet >> 64 & 0xFFFFFFFF == packet.tag, f"{where}: the tag is lost")
            return
        if b.head != head:
            break
        await b.edge()
    b.expect(not code and not bus_fails, f"{where}: expected error {code or ERRORS['BUS']}, got none")
    b.expect((b.head, b.retired) == (head + lines, retired + 1), f"{where}: expected it to retire, got head {b.head}")
    b.expect(started == (not is_sync), f"{where}: expected one start, got {started}")
    b.expect(irq == (packet.flags & FLAGS["IRQ"] != 0), f"{where}: expected an interrupt as its flag says, got {irq}")
    await b.edge()
