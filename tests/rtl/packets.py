"""Packets of docs/isa.md, "Hardware packets": made at random, as bytes, and what they do to memory."""

from __future__ import annotations

import dataclasses
import random
import struct

import numpy as np

from tests.rtl.arithmetic import (
    ARGUMENTS,
    FLAGS,
    LANES,
    LINE,
    NAMES,
    OPCODES,
    OPERATIONS,
    TYPES,
    WIDTHS,
    f32,
    lane,
    load,
    operate,
    store,
)

FOLDS = [op for op, count in ARGUMENTS.items() if count == 2 and NAMES[op] != "DIV"]
# Operations of the vector unit that its lanes do not know: they see where an element stands. One argument each.
PLACED = [OPERATIONS["IOTA"], OPERATIONS["CHECK"]]
IMMEDIATE = [FLAGS["IMM_A"], FLAGS["IMM_B"], FLAGS["IMM_C"]]


@dataclasses.dataclass
class Packet:
    """Operand 0 is the result, 1 to 3 are a, b, c; strides are in bytes, [operand][dimension]."""

    opcode: int
    op: int = 0
    flags: int = 0
    kinds: list[int] = dataclasses.field(default_factory=lambda: [0] * 4)
    tag: int = 0
    imm: int = 0
    size: list[int] = dataclasses.field(default_factory=lambda: [1] * 4)
    addr: list[int] = dataclasses.field(default_factory=lambda: [0] * 4)
    stride: list[list[int]] = dataclasses.field(default_factory=lambda: [[0] * 4 for _ in range(4)])

    def to_bytes(self) -> bytes:
        types = sum(kind << 4 * i for i, kind in enumerate(self.kinds))
        first = struct.pack(
            "<BBHHHII4I4Q", self.opcode, self.op, self.flags, types, 0, self.tag, self.imm, *self.size, *self.addr
        )
        return first if self.opcode == OPCODES["SYNC"] else first + struct.pack("<16i", *sum(self.stride, []))

    def to_int(self) -> int:
        """As the signal packet_t: both lines, the first one in the low bits."""
        return int.from_bytes(self.to_bytes().ljust(2 * LINE, b"\0"), "little")

    def arguments(self) -> int:
        """A bit for each of a, b, c that the operation takes."""
        return (1 << (1 if self.op in PLACED else ARGUMENTS.get(self.op, 2))) - 1

    def sources(self) -> int:
        """A bit for each of a, b, c that the vector unit reads by vectors; a GATHER's a it reads by elements."""
        if self.opcode == OPCODES["REDUCE"]:
            return 1
        wanted = {OPCODES["GATHER"]: 6, OPCODES["SCATTER"]: 7}.get(self.opcode, self.arguments())
        return wanted & ~sum(1 << i for i, flag in enumerate(IMMEDIATE) if self.flags & flag)


def _place(rng: random.Random, packet: Packet, operand: int, size: list[int], base: int) -> None:
    """Row-major or not, with gaps, backwards, or (sources only) repeated."""
    width = WIDTHS[packet.kinds[operand]]
    order = [3, 2, 1, 0]
    if rng.random() < 0.4:
        rng.shuffle(order)
    step, low = width, 0
    for d in order:
        step += width * rng.choice([0, 0, 0, 0, 0, 1, 2])
        stride = -step if rng.random() < 0.15 else step
        if operand and rng.random() < 0.12:
            stride = 0
        packet.stride[operand][d] = stride
        low += min(stride, 0) * (size[d] - 1)
        step *= size[d]
    packet.addr[operand] = base - low + rng.randrange(64) * width


def random_vector(rng: random.Random, area: int, reduce: bool = False, longest: int = 70) -> Packet:
    """Operand i lies in [i * area, (i + 1) * area)."""
    packet = Packet(
        OPCODES["REDUCE" if reduce else "VECTOR"], rng.choice(FOLDS) if reduce else rng.choice(list(ARGUMENTS))
    )
    packet.imm = rng.choice([0, 0x3F800000]) if reduce else lane(rng)
    packet.kinds = [rng.choice(list(TYPES.values())) for _ in range(4)]
    packet.size = [1 if rng.random() < 0.5 else rng.randint(1, 3) for _ in range(3)] + [rng.randint(1, longest)]
    for i in range(4):
        _place(rng, packet, i, [*packet.size[:3], 1 if reduce and i == 0 else packet.size[3]], i * area)
        if not reduce and i and rng.random() < 0.15:
            packet.flags |= IMMEDIATE[i - 1]
    if reduce:
        packet.stride[0][3] = 0
    return packet


def random_placed(rng: random.Random, area: int, memory: bytearray) -> Packet:
    """IOTA, or a CHECK of elements that are nearly all 0."""
    packet = random_vector(rng, area)
    packet.op = rng.choice(PLACED)
    if packet.op == OPERATIONS["CHECK"]:
        memory[area : 2 * area] = bytes(area)
        for _ in range(rng.choice([0, 1, 1, 3, 200])):
            memory[area + rng.randrange(area)] = rng.randint(1, 255)
    return packet


def random_indexed(rng: random.Random, area: int, memory: bytearray) -> Packet:
    """GATHER or SCATTER. Indices in memory are made small first; what they move lies in the middle of its area."""
    packet = random_vector(rng, area, longest=40)
    gather = rng.random() < 0.5
    packet.opcode, moved = (OPCODES["GATHER"], 1) if gather else (OPCODES["SCATTER"], 0)
    packet.op = 0 if gather else rng.choice([0, 0, *FOLDS])
    if gather:
        packet.flags &= ~FLAGS["IMM_A"]
    packet.imm = rng.randrange(100)
    packet.kinds[2] = TYPES[rng.choice(["I32", "I8", "U8", "BOOL"])]
    packet.kinds[3] = TYPES[rng.choice(["BOOL", "I32"])]
    for i in (2, 3):
        _place(rng, packet, i, packet.size, i * area)
    packet.addr[moved] += area // 4
    packet.stride[moved] = [0 if rng.random() < 0.2 else stride for stride in packet.stride[moved]]
    small = np.array([rng.randint(-200, 200) for _ in range(area // 4)], np.int32)
    if packet.kinds[2] == TYPES["I32"]:
        memory[2 * area : 3 * area] = small.tobytes()
    if packet.kinds[3] == TYPES["I32"]:
        memory[3 * area : 4 * area] = (small % 3).astype(np.int32).tobytes()
    return packet


def random_gemm(rng: random.Random, area: int, most: int = 40, deepest: int = 90) -> Packet:
    inputs = TYPES[rng.choice(["I8", "BF16", "F32"])]
    narrow, width = inputs == TYPES["I8"], WIDTHS[inputs]
    floats = [TYPES["F32"], TYPES["BF16"], TYPES["F16"]]
    result, bias = (TYPES["I32"], TYPES["I32"]) if narrow else (rng.choice(floats), rng.choice(floats))
    packet = Packet(OPCODES["GEMM"], kinds=[result, inputs, inputs, bias])
    if not narrow and rng.random() < 0.3:
        packet.flags |= FLAGS["GAPS"]
    if rng.random() < 0.3:
        packet.flags |= FLAGS["RELU"]
    if rng.random() < 0.4:
        packet.flags |= FLAGS["BIAS"]
        packet.stride[3][rng.choice([1, 2])] = WIDTHS[bias]
        packet.stride[3][0] = rng.choice([0, 64 * WIDTHS[bias]])
        packet.addr[3] = 3 * area + rng.randrange(64) * WIDTHS[bias]
    batch, m, n, k = packet.size = [
        rng.randint(1, 2),
        rng.randint(1, most),
        rng.randint(1, most),
        rng.randint(1, deepest),
    ]
    if rng.random() < 0.25:  # more than two blocks of rows or columns
        m, n, k = rng.choice([(rng.randint(65, 100), n, k % 9 + 1), (m, rng.randint(65, 100), k % 9 + 1)])
        packet.size = [batch, m, n, k]
    for i, lanes in ((1, m), (2, n)):
        gap = width * rng.choice([0, 0, 1, 5])
        along = rng.random() < 0.5
        packet.stride[i][3] = width if along else lanes * width + gap
        packet.stride[i][i] = k * width + gap if along else width
        packet.stride[i][0] = rng.choice([0, (max(m, n) + 8) * (k + 8) * width])
        packet.addr[i] = i * area + rng.randrange(64) * width
    out = WIDTHS[result]
    across = rng.random() < 0.3
    packet.stride[0][:3] = [m * n * out, out if across else n * out, m * out if across else out]
    packet.addr[0] = rng.randrange(64) * out
    return packet


def random_memory(rng: random.Random, size: int) -> bytearray:
    return bytearray(np.array([lane(rng) for _ in range(size // 4)], np.uint32).tobytes())


def _places(packet: Packet, operand: int, size: list[int], dims: tuple[int, ...] = (0, 1, 2, 3)) -> np.ndarray:
    """Addresses of an operand over an index space; `dims` are the packet's dimensions that it has."""
    at = np.full(size, packet.addr[operand], np.int64)
    for axis, d in enumerate(dims):
        shape = [1] * len(size)
        shape[axis] = size[axis]
        at = at + np.arange(size[axis]).reshape(shape) * packet.stride[operand][d]
    return at


def _read(memory: np.ndarray, kind: int, at: np.ndarray) -> np.ndarray:
    raw = sum(memory[at + i].astype(np.uint32) << np.uint32(8 * i) for i in range(WIDTHS[kind]))
    return load(kind, raw)


def _write(memory: np.ndarray, kind: int, at: np.ndarray, lanes: np.ndarray) -> None:
    raw = store(kind, lanes)
    for i in range(WIDTHS[kind]):
        memory[at + i] = raw >> np.uint32(8 * i) & np.uint32(255)


def run_packet(packet: Packet, memory: bytearray) -> None:
    view = np.frombuffer(memory, np.uint8)
    if packet.opcode == OPCODES["VECTOR"]:
        _run_vector(packet, view)
    elif packet.opcode == OPCODES["REDUCE"]:
        _run_reduce(packet, view)
    elif packet.opcode == OPCODES["GEMM"]:
        _run_gemm(packet, view)
    elif packet.opcode in (OPCODES["GATHER"], OPCODES["SCATTER"]):
        _run_indexed(packet, view)


def _arguments(packet: Packet, memory: np.ndarray) -> list[np.ndarray]:
    values = []
    for i in range(3):
        if packet.arguments() >> i & 1 and not packet.flags & IMMEDIATE[i]:
            values.append(_read(memory, packet.kinds[i + 1], _places(packet, i + 1, packet.size)))
        else:
            values.append(np.full(packet.size, packet.imm, np.uint32))
    return values


def _run_vector(packet: Packet, memory: np.ndarray) -> None:
    values = _arguments(packet, memory)
    if packet.op == OPERATIONS["IOTA"]:
        result = values[0] + np.arange(packet.size[3], dtype=np.uint32)
    elif packet.op == OPERATIONS["CHECK"]:
        result = values[0]
    else:
        result = operate(packet.op, *values)
    _write(memory, packet.kinds[0], _places(packet, 0, packet.size), result)


def first_failed(packet: Packet, memory: bytearray) -> int | None:
    """Of a CHECK: the number of the first element other than 0."""
    if (packet.opcode, packet.op) != (OPCODES["VECTOR"], OPERATIONS["CHECK"]):
        return None
    found = np.flatnonzero(_arguments(packet, np.frombuffer(memory, np.uint8))[0])
    return int(found[0]) if found.size else None


def _run_indexed(packet: Packet, memory: np.ndarray) -> None:
    gather = packet.opcode == OPCODES["GATHER"]

    def vector(i: int) -> np.ndarray:
        if packet.flags & IMMEDIATE[i - 1]:
            return np.full(packet.size, packet.imm, np.uint32)
        return _read(memory, packet.kinds[i], _places(packet, i, packet.size))

    moved = 1 if gather else 0
    kind = packet.kinds[moved]
    at = _places(packet, moved, packet.size) + vector(2).view(np.int32).astype(np.int64) * WIDTHS[kind]
    taken = vector(3) != 0
    if gather:
        values = np.where(taken, _read(memory, kind, np.where(taken, at, 0)), np.uint32(0))
        return _write(memory, packet.kinds[0], _places(packet, 0, packet.size), values)
    for place, value in zip(at[taken], vector(1)[taken]):  # in order: one element may be met twice
        here = np.array([place])
        given = np.array([value], np.uint32)
        _write(
            memory, kind, here, given if packet.op == 0 else operate(packet.op, _read(memory, kind, here), given, given)
        )


def _run_reduce(packet: Packet, memory: np.ndarray) -> None:
    source = _read(memory, packet.kinds[1], _places(packet, 1, packet.size))
    sums = np.full([*packet.size[:3], LANES], packet.imm, np.uint32)
    for first in range(0, packet.size[3], LANES):
        part = source[..., first : first + LANES]
        count = part.shape[-1]
        sums[..., :count] = operate(packet.op, sums[..., :count].copy(), part.copy(), part.copy())
    apart = LANES // 2
    while apart:
        left, right = sums[..., :apart].copy(), sums[..., apart : 2 * apart].copy()
        sums[..., :apart] = operate(packet.op, left, right, right)
        apart //= 2
    _write(memory, packet.kinds[0], _places(packet, 0, packet.size[:3], (0, 1, 2)), sums[..., 0])


def gemm_inputs(packet: Packet, memory: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lanes of A [batch, m, k] and B [batch, n, k]."""
    batch, m, n, k = packet.size
    a = _read(memory, packet.kinds[1], _places(packet, 1, [batch, m, k], (0, 1, 3)))
    return a, _read(memory, packet.kinds[2], _places(packet, 2, [batch, n, k], (0, 2, 3)))


def multiply_add(sums: np.ndarray, a: np.ndarray, b: np.ndarray, narrow: bool) -> np.ndarray:
    """One step of k: sums [..., m, n], a [..., m], b [..., n], as lanes."""
    a, b = a[..., :, None], b[..., None, :]
    if narrow:
        return sums + a * b
    with np.errstate(all="ignore"):
        total = f32(sums) + f32(a) * f32(b)
    return np.where(np.isnan(total), np.uint32(0x7FC00000), total.view(np.uint32))


def gemm_bias(packet: Packet, memory: np.ndarray) -> np.ndarray:
    """Lanes of c, [batch, m, n]."""
    return _read(memory, packet.kinds[3], _places(packet, 3, packet.size[:3], (0, 1, 2)))


def _run_gemm(packet: Packet, memory: np.ndarray) -> None:
    batch, m, n, k = packet.size
    narrow = packet.kinds[1] == TYPES["I8"]
    a, b = gemm_inputs(packet, memory)
    gaps = np.zeros(b.shape, bool)
    if packet.flags & FLAGS["GAPS"]:
        raw = TYPES["I32" if packet.kinds[2] == TYPES["F32"] else "I16"]
        gaps = _read(memory, raw, _places(packet, 2, [batch, n, k], (0, 2, 3))) == np.uint32(0xFFFFFFFF)
    sums = np.zeros([batch, m, n], np.uint32)
    for step in range(k):
        more = multiply_add(sums, a[..., step], b[..., step], narrow)
        sums = np.where(gaps[:, None, :, step], sums, more)
    if packet.flags & FLAGS["BIAS"]:
        sums = operate(OPERATIONS["IADD" if narrow else "ADD"], sums, gemm_bias(packet, memory), sums)
    if packet.flags & FLAGS["RELU"]:
        with np.errstate(all="ignore"):
            sums = np.where(sums.view(np.int32) < 0 if narrow else f32(sums) < 0, np.uint32(0), sums)
    _write(memory, packet.kinds[0], _places(packet, 0, [batch, m, n], (0, 1, 2)), sums)
