// The NPU's RTL through its registers, ring and memory port, without a driver's table above: random packets against the
// model of packets, bit for bit and with random pauses on the bus; how busy the matrix engine is; every error.
// `npu-rtl-test busy` adds the figures of a whole Qwen2-0.5B layer.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>

#include "drivers/rtl/device/processor.h"
#include "drivers/rtl/packet/packet_model.h"
#include "drivers/rtl/simulator/simulation.h"
#include "tests/cpp/harness/harness.h"

using namespace rtl;
using namespace npu_hw;

namespace {

constexpr uint64_t kMemory = 16 << 20, kFirst = Processor::kRingBytes, kArea = 128 << 10;

struct Random {
  std::mt19937_64 engine;
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(engine() % n); }
  bool chance(uint32_t percent) { return below(100) < percent; }
};

// An operand of its own area, far from the others: strides row-major or with gaps, backwards, permuted, or 0.
void place(Random& r, Packet& p, int operand, const uint32_t* size, bool written) {
  const int width = static_cast<int>(type_width(p.type(operand)));
  int order[4] = {3, 2, 1, 0};
  if (r.chance(40)) std::shuffle(order, order + 4, r.engine);
  int64_t step = width, low = 0;
  for (int d : order) {
    if (r.chance(15)) step += width * static_cast<int>(r.below(3));
    p.stride[operand][d] = static_cast<int32_t>(r.chance(15) ? -step : step);
    if (!written && r.chance(12)) p.stride[operand][d] = 0;
    if (p.stride[operand][d] < 0) low += p.stride[operand][d] * int64_t{size[d] - 1};
    step *= size[d];
  }
  p.addr[operand] = kFirst + static_cast<uint64_t>(operand) * kArea + static_cast<uint64_t>(-low) +
                    r.below(64) * static_cast<uint32_t>(width);
}

Packet random_vector(Random& r, bool reduce) {
  Packet p;
  p.opcode = reduce ? OP_REDUCE : OP_VECTOR;
  static const uint8_t folds[] = {VEC_ADD, VEC_MUL, VEC_MIN, VEC_MAX, VEC_IADD, VEC_IMAX, VEC_AND, VEC_OR, VEC_XOR};
  p.op = static_cast<uint8_t>(reduce ? folds[r.below(sizeof folds)] : r.below(VEC_SQRT + 1));
  if (p.op == VEC_CHECK) p.op = VEC_MOV;
  p.imm = static_cast<uint32_t>(r.engine());
  if (reduce) p.imm = r.chance(50) ? 0 : 0x3f800000;
  for (int d = 0; d < 4; d++) p.size[d] = r.chance(40) ? 1 : 1 + r.below(d == 3 ? 70 : 4);
  for (int i = 0; i < 4; i++) {
    p.set_type(i, r.below(TYPE_BOOL + 1));
    uint32_t size[4] = {p.size[0], p.size[1], p.size[2], i == 0 && reduce ? 1 : p.size[3]};
    place(r, p, i, size, i == 0);
    if (!reduce && i > 0 && r.chance(15)) p.flags |= static_cast<uint16_t>(FLAG_IMM_A << (i - 1));
  }
  if (reduce) p.stride[0][3] = 0;
  return p;
}

// Areas are full of bits that would be indices of anywhere: those of an index become small numbers first, and the moved
// operand lies in the middle of its area.
Packet random_indexed(Random& r, unsigned char* memory) {
  static const uint8_t updates[] = {VEC_MOV, VEC_MOV, VEC_ADD, VEC_MUL, VEC_MAX, VEC_IADD, VEC_IMIN, VEC_OR};
  static const uint32_t indices[] = {TYPE_I32, TYPE_I16, TYPE_I8, TYPE_U8, TYPE_BOOL};
  Packet p = random_vector(r, false);
  p.opcode = static_cast<uint8_t>(r.chance(50) ? OP_GATHER : OP_SCATTER);
  p.op = p.opcode == OP_GATHER ? static_cast<uint8_t>(VEC_MOV) : updates[r.below(sizeof updates)];
  if (p.opcode == OP_GATHER) p.flags &= static_cast<uint16_t>(~FLAG_IMM_A);
  p.set_type(kB, indices[r.below(5)]);
  p.set_type(kC, r.chance(70) ? TYPE_BOOL : TYPE_I32);
  p.imm = r.below(100);
  for (int i = kB; i <= kC; i++) place(r, p, i, p.size, false);
  const int moved = p.opcode == OP_GATHER ? kA : kResult;
  p.addr[moved] += kArea / 4;
  for (int d = 0; d < 4; d++)
    if (r.chance(20)) p.stride[moved][d] = 0;  // many to one place
  unsigned char* area = memory + kFirst + kB * kArea;
  if (p.type(kB) == TYPE_I32)
    for (uint64_t at = 0; at + 4 <= kArea; at += 4) {
      const int32_t index = static_cast<int32_t>(r.below(400)) - 200;
      std::memcpy(area + at, &index, 4);
    }
  if (p.type(kB) == TYPE_I16)
    for (uint64_t at = 0; at < kArea; at += 2) area[at + 1] = static_cast<unsigned char>(r.chance(50) ? 0xff : 0);
  area = memory + kFirst + kC * kArea;
  for (uint64_t at = 0; at < kArea; at++)
    if (p.type(kC) == TYPE_BOOL && r.chance(30)) area[at] = 0;
  return p;
}

Packet random_gemm(Random& r) {
  Packet p;
  p.opcode = OP_GEMM;
  const uint32_t type = r.chance(30) ? TYPE_I8 : r.chance(50) ? TYPE_BF16 : TYPE_F32;
  const int width = static_cast<int>(type_width(type));
  for (int i = 0; i < 3; i++) p.set_type(i, i > 0 ? type : type == TYPE_I8 ? TYPE_I32 : r.below(3));
  if (type != TYPE_I8 && r.chance(30)) p.flags |= FLAG_GAPS;
  const uint32_t batch = 1 + r.below(2), m = 1 + r.below(40), n = 1 + r.below(40),
                 k = 1 + r.below(r.chance(20) ? 150 : 40);
  const uint32_t sizes[4] = {batch, m, n, k};
  std::memcpy(p.size, sizes, sizeof sizes);
  const int lane_of[3] = {0, 1, 2};
  for (int i = 1; i < 3; i++) {
    const uint32_t lanes = i == 1 ? m : n;
    const bool along = r.chance(50);
    const int64_t gap = r.chance(50) ? 0 : width * static_cast<int>(r.below(5));
    p.stride[i][3] = static_cast<int32_t>(along ? width : lanes * width + gap);
    p.stride[i][lane_of[i]] = static_cast<int32_t>(along ? k * width + gap : width);
    p.stride[i][0] = r.chance(30) ? 0 : static_cast<int32_t>((m + n + k) * 64 * width);
    p.addr[i] = kFirst + static_cast<uint64_t>(i) * kArea + r.below(64) * static_cast<uint32_t>(width);
  }
  if (r.chance(40)) {
    p.flags |= FLAG_BIAS;
    p.set_type(kC, type == TYPE_I8 ? TYPE_I32 : r.below(3));
    const auto step = static_cast<int32_t>(type_width(p.type(kC)));
    p.stride[kC][1 + r.below(2)] = step;
    p.stride[kC][0] = r.chance(50) ? 0 : 64 * step;
    p.addr[kC] = kFirst + 3 * kArea + r.below(64) * static_cast<uint32_t>(step);
  }
  if (r.chance(30)) p.flags |= FLAG_RELU;
  const int out = static_cast<int>(type_width(p.type(0)));
  const bool across = r.chance(30);
  p.stride[0][1] = static_cast<int32_t>(across ? out : static_cast<int>(n) * out);
  p.stride[0][2] = static_cast<int32_t>(across ? static_cast<int>(m) * out : out);
  p.stride[0][0] = static_cast<int32_t>(m * n) * out;
  p.addr[0] = kFirst + r.below(64) * static_cast<uint32_t>(out);
  return p;
}

// Numbers of every kind: bytes at random are mostly huge or tiny as floats, so half are of moderate size.
std::vector<unsigned char> random_memory(Random& r) {
  std::vector<unsigned char> bytes(4 * kArea);
  for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    uint32_t word = static_cast<uint32_t>(r.engine());
    if (r.chance(50)) word = (word & 0x807fffff) | (120 + r.below(12)) << 23;
    if (r.chance(30)) word = (word & 0xffff0000) | (word >> 16);
    if (r.chance(2)) word = r.chance(50) ? 0x7f800000 : 0x80000000;
    if (r.chance(2)) word = 0xffffffff;  // a gap, where a packet has them; a NaN elsewhere
    std::memcpy(&bytes[i], &word, 4);
  }
  return bytes;
}

std::string describe(const Packet& p) {
  std::ostringstream text;
  text << "opcode " << +p.opcode << " op " << +p.op << std::hex << " flags " << p.flags << " types " << p.types
       << " imm " << p.imm << std::dec << " size";
  for (const uint32_t size : p.size) text << ' ' << size;
  for (int i = 0; i < 4; i++) {
    text << "\n  operand " << i << " at " << std::hex << p.addr[i] << std::dec << ", strides";
    for (const int32_t stride : p.stride[i]) text << ' ' << stride;
  }
  return text.str();
}

void random_packets(int count, uint64_t seed, uint64_t stall) {
  SimulationOptions options;
  options.memory = kMemory;
  options.stall = stall;
  options.latency = stall ? 7 : 20;
  Processor npu(std::make_unique<Simulation>(options));
  Random r{std::mt19937_64(seed)};
  std::vector<unsigned char> model(kMemory);
  for (int done = 0; done < count;) {
    const std::vector<unsigned char> bytes = random_memory(r);
    std::memcpy(&model[kFirst], bytes.data(), bytes.size());
    npu.board().write_memory(kFirst, bytes.data(), bytes.size());
    for (int i = 0; i < 25; i++, done++) {
      std::vector<Packet> packets;
      if (r.chance(20)) {
        packets = {random_indexed(r, model.data())};
        npu.board().write_memory(kFirst, &model[kFirst], 4 * kArea);
      } else {
        packets = {r.chance(20) ? random_gemm(r) : random_vector(r, r.chance(25))};
      }
      run_packet(packets[0], model.data());
      const Failure failure = npu.run(packets);
      const std::string name = "packet " + std::to_string(done) + " of seed " + std::to_string(seed) + ", stall " +
                               std::to_string(stall) + ", " + describe(packets[0]);
      CHECK_NOTE(failure.status == NPU_OK, name + ": " + failure.text);
      std::vector<unsigned char> got(4 * kArea);
      npu.board().read_memory(got.data(), kFirst, got.size());
      if (std::memcmp(got.data(), &model[kFirst], got.size()) == 0) continue;
      CHECK_NOTE(false, name + ": memory differs");
      std::memcpy(&model[kFirst], got.data(), got.size());
    }
  }
}

// A times B, B by rows of k (an activation) or by columns (a layer's weight, [out, in]).
Packet product(uint32_t m, uint32_t n, uint32_t k, uint32_t batch = 1, bool weight = false, uint32_t type = TYPE_BF16) {
  Packet p;
  p.opcode = OP_GEMM;
  p.set_type(kResult, TYPE_F32);
  p.set_type(kA, type);
  p.set_type(kB, type);
  const uint32_t width = type_width(type);
  p.size[0] = batch, p.size[1] = m, p.size[2] = n, p.size[3] = k;
  p.addr[kResult] = 1 << 20, p.addr[kA] = 4 << 20, p.addr[kB] = 6 << 20;
  p.stride[kResult][0] = static_cast<int32_t>(m * n * 4);
  p.stride[kResult][1] = static_cast<int32_t>(n * 4), p.stride[kResult][2] = 4;
  p.stride[kA][0] = static_cast<int32_t>(m * k * width), p.stride[kB][0] = static_cast<int32_t>(k * n * width);
  p.stride[kA][1] = static_cast<int32_t>(k * width), p.stride[kA][3] = static_cast<int32_t>(width);
  p.stride[kB][weight ? 2 : 3] = static_cast<int32_t>((weight ? k : n) * width);
  p.stride[kB][weight ? 3 : 2] = static_cast<int32_t>(width);
  return p;
}

// In what share of their cycles the matrix engine multiplies, and how fast it is simulated.
void matrix_engine_is_busy(const char* name, std::vector<Packet> packets, double least) {
  SimulationOptions options;
  options.memory = kMemory;
  Processor npu(std::make_unique<Simulation>(options));
  // Ordinary numbers in every input.
  Random r{std::mt19937_64(3)};
  std::vector<unsigned char> numbers(kMemory - (4 << 20));
  for (size_t i = 0; i + 2 <= numbers.size(); i += 2) {
    const auto half = static_cast<uint16_t>((r.engine() & 0x80ff) | (0x3e + r.below(2)) << 8);
    std::memcpy(&numbers[i], &half, sizeof half);
  }
  npu.board().write_memory(4 << 20, numbers.data(), numbers.size());
  double macs = 0;
  for (const Packet& p : packets) macs += 1.0 * p.size[0] * p.size[1] * p.size[2] * p.size[3];
  const std::clock_t start = std::clock();
  const Failure failure = npu.run(packets);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  CHECK_NOTE(failure.status == NPU_OK, std::string(name) + ": " + failure.text);
  const auto matrix = static_cast<double>(npu.counter(REG_MATRIX_LO));
  const auto busy = static_cast<double>(npu.counter(REG_BUSY_LO));
  CHECK_NOTE(matrix >= least * busy, std::string(name) + ": expected the engine busy in " +
                                         std::to_string(100 * least) + " % of the cycles, got " +
                                         std::to_string(100 * matrix / busy));
  std::printf("%s: matrix engine busy in %.1f %% of %.0f cycles; %.1f M multiply-adds per second of simulation\n", name,
              100 * matrix / busy, busy, macs / seconds * 1e-6);
}

// Every product of a Qwen2-0.5B layer at 16 tokens.
std::vector<Packet> qwen2_layer() {
  constexpr uint32_t tokens = 16, hidden = 896, inner = 4864, heads = 14, key_heads = 2, head = 64;
  const auto linear = [](uint32_t in, uint32_t out) { return product(tokens, out, in, 1, true); };
  return {linear(hidden, hidden),
          linear(hidden, key_heads * head),
          linear(hidden, key_heads * head),
          product(tokens, tokens, head, heads, true),
          product(tokens, head, tokens, heads),
          linear(hidden, hidden),
          linear(hidden, inner),
          linear(hidden, inner),
          linear(inner, hidden)};
}

}  // namespace

TEST(errors_are_reported_and_survived) {
  SimulationOptions options;
  options.memory = kMemory;
  Processor npu(std::make_unique<Simulation>(options));
  Packet good = product(5, 5, 5);
  const auto expect = [&](const char* what, const char* text, const std::function<void(Packet&)>& spoil) {
    Packet bad = good;
    spoil(bad);
    std::vector<Packet> packets = {good, bad, good};
    const Failure failure = npu.run(packets);
    CHECK_NOTE(failure.text.find(text) != std::string::npos && failure.text.find("packet 1") != std::string::npos,
               std::string(what) + ": expected '" + text + "' in packet 1, got '" + failure.text + "'");
    std::vector<Packet> again = {good, good};
    CHECK_NOTE(npu.run(again).status == NPU_OK, std::string(what) + ": expected the NPU to go on after it");
  };
  expect("opcode", "error code 1", [](Packet& p) { p.opcode = 77; });
  expect("operation", "error code 1", [](Packet& p) { p.opcode = OP_VECTOR, p.op = 200; });
  expect("type", "error code 1", [](Packet& p) { p.set_type(kA, 15); });
  expect("mixed types", "error code 1", [](Packet& p) { p.set_type(kA, TYPE_I8); });
  expect("size", "error code 2", [](Packet& p) { p.size[3] = 0; });
  expect("alignment", "error code 3", [](Packet& p) { p.addr[kA] += 1; });
  expect("strides", "error code 4", [](Packet& p) { p.stride[kA][3] = 6; });
  expect("gather with arithmetic", "error code 1", [](Packet& p) { p.opcode = OP_GATHER, p.op = VEC_ADD; });
  expect("scatter with a quotient", "error code 1", [](Packet& p) { p.opcode = OP_SCATTER, p.op = VEC_DIV; });
  expect("check", "found by a check at element 0",
         [](Packet& p) { p.opcode = OP_VECTOR, p.op = VEC_CHECK, p.flags |= FLAG_IMM_A, p.imm = 1; });
  expect("read outside memory", "bus error", [](Packet& p) { p.addr[kA] = kMemory; });
  expect("write outside memory", "bus error", [](Packet& p) { p.addr[kResult] = kMemory + 4096; });
}

TEST(the_matrix_engine_is_busy) {
  matrix_engine_is_busy("256 x 256 x 256 in bf16", {product(256, 256, 256)}, 0.9);
  matrix_engine_is_busy("128 x 128 x 128 in f32", {product(128, 128, 128, 1, false, TYPE_F32)}, 0.9);
  matrix_engine_is_busy("a Qwen2-0.5B key projection at 16 tokens", {qwen2_layer()[1]}, 0.9);
}

TEST_ON_REQUEST(the_matrix_engine_is_busy_in_a_whole_layer) {
  matrix_engine_is_busy("a Qwen2-0.5B layer's products at 16 tokens", qwen2_layer(), 0.9);
}

TEST(random_packets_agree_with_their_model) {
  random_packets(harness::work(500), harness::seed(), 0);
}

TEST(random_packets_agree_on_a_bus_with_pauses) {
  random_packets(harness::work(500), harness::seed() + 1, harness::seed() + 1);
}
