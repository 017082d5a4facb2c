// The sanitizer's parts that know no PyTorch: sets of bytes, bits, clocks, and what commands touch.
#include <cstring>
#include <random>
#include <set>

#include "csrc/core/observe/sanitizer/order.h"
#include "csrc/core/observe/sanitizer/shadow.h"
#include "support/program/program.h"
#include "tests/cpp/harness/harness.h"

using namespace torch_npu::sanitizer;

namespace torch_npu::sanitizer {
struct Record {};
}  // namespace torch_npu::sanitizer

namespace {

std::set<npu_addr> bytes_of(const Bytes& bytes) {
  std::set<npu_addr> all;
  bytes.each_run([&](const Run& run) {
    for (npu_addr at = run.begin; at < run.end; ++at) all.insert(at);
    return true;
  });
  return all;
}

// Boxes against a loop over their points.
TEST(boxes_hold_what_their_points_touch) {
  std::mt19937 random(1);
  const auto below = [&](int end) { return static_cast<int64_t>(random() % static_cast<unsigned>(end)); };
  std::vector<Bytes> made;
  std::vector<std::set<npu_addr>> wanted;
  for (int turn = 0; turn < 2000; ++turn) {
    const int rank = static_cast<int>(below(4));
    const uint64_t width = uint64_t{1} << below(4);
    int64_t size[4], stride[4];
    for (int d = 0; d < rank; ++d) {
      size[d] = 1 + below(4);
      stride[d] = below(13) - 6;
    }
    const npu_addr addr = 1000 + static_cast<npu_addr>(below(100));
    std::set<npu_addr> want;
    int64_t point[4] = {};
    while (true) {
      int64_t offset = 0;
      for (int d = 0; d < rank; ++d) offset += point[d] * stride[d];
      for (uint64_t k = 0; k < width; ++k) want.insert(addr + static_cast<uint64_t>(offset) * width + k);
      int d = rank - 1;
      while (d >= 0 && ++point[d] == size[d]) point[d--] = 0;
      if (d < 0) break;
    }
    const Bytes bytes(Box(addr, size, stride, rank, width));
    CHECK(bytes_of(bytes) == want);
    CHECK(bytes.begin() == *want.begin() && bytes.end() == *want.rbegin() + 1);
    if (bytes.is_run()) CHECK(want.size() == bytes.end() - bytes.begin());
    made.push_back(bytes);
    wanted.push_back(want);
  }
  for (size_t k = 0; k + 1 < made.size(); ++k) {
    bool meet = false, covers = true;
    for (const npu_addr at : wanted[k + 1]) {
      meet |= wanted[k].count(at) > 0;
      covers &= wanted[k].count(at) > 0;
    }
    CHECK(made[k].overlaps(made[k + 1]) == meet);
    if (made[k].covers(made[k + 1])) CHECK(covers);
  }
}

TEST(contiguous_tensors_are_one_run) {
  const int64_t size[] = {4, 1, 3, 5}, stride[] = {15, 7, 5, 1}, flipped[] = {-15, 7, 5, -1};
  CHECK(Box(0, size, stride, 4, 4).is_run());
  CHECK(Box(1000, size, flipped, 4, 4).is_run());
}

TEST(bits_are_those_of_a_list) {
  std::mt19937 random(2);
  for (int turn = 0; turn < 300; ++turn) {
    const uint64_t size = 1 + random() % 300;
    Written written(size, turn % 2);
    std::vector<bool> want(size, turn % 2);
    for (int step = 0; step < 10; ++step) {
      const uint64_t begin = random() % size, end = begin + random() % (size - begin + 1);
      const bool value = random() % 2;
      value ? written.set(begin, end) : written.clear(begin, end);
      for (uint64_t k = begin; k < end; ++k) want[k] = value;
      const uint64_t from = random() % size, to = from + random() % (size - from + 1);
      uint64_t unwritten = from, first = from;
      while (unwritten < to && want[unwritten]) ++unwritten;
      while (first < to && !want[first]) ++first;
      CHECK(written.first_unwritten(from, to) == unwritten);
      CHECK(written.first_written(from, to) == first);
    }
  }
}

TEST(events_and_waits_make_an_order) {
  Order order;
  int handles[4] = {};
  const auto stream_of = [&](int k) { return order.stream(reinterpret_cast<npu_stream*>(&handles[k]), 0); };
  const auto* event = reinterpret_cast<npu_event*>(&handles[3]);
  const uint32_t a = stream_of(0), b = stream_of(1), c = stream_of(2);
  const Stamp first = order.step(a);
  order.recorded(event, a);
  const Stamp second = order.step(a);
  CHECK(!order.now(b).has(first));
  order.waits(b, event);
  CHECK(order.now(b).has(first) && !order.now(b).has(second));
  const Stamp third = order.step(b);
  CHECK(!order.now(c).has(first) && !order.host().has(first));
  order.recorded(event, b);
  order.waits(c, event);  // what b waited for comes along
  CHECK(order.now(c).has(first) && order.now(c).has(third) && !order.now(c).has(second));
  order.finished(a);  // the host has waited: all that it gives from now on comes behind
  CHECK(order.now(b).has(second) && order.now(c).has(second));
  order.finished_all(1);
  CHECK(!order.host().has(third));
  order.finished_all(0);
  CHECK(order.host().has(third));
}

npu_operand operand_at(npu_addr addr, int dtype, std::initializer_list<int64_t> strides) {
  npu_operand operand{};
  operand.addr = addr;
  operand.dtype = static_cast<uint8_t>(dtype);
  int d = 0;
  for (const int64_t stride : strides) operand.stride[d++] = stride;
  return operand;
}

// load_at with a mask that depends on an index from memory: only what is asked for is touched.
TEST(computed_addresses_are_computed) {
  const npu::Program program = npu::parse(R"(program rows(out, table, index)
each:
  %i = load index : i64
  %zero = const 0 : i64
  %good = ge %i, %zero
  %four = const 4 : i64
  %at = mul %i, %four
  %x = load_at table, %at, mask %good : f32
  store out, %x
)");
  const int64_t memory[] = {2, -1, 5};
  const npu_operand operands[] = {operand_at(0x1000, NPU_F32, {4, 1}), operand_at(0x2000, NPU_F32, {0, 1}),
                                  operand_at(0x3000, NPU_I64, {1, 0})};
  npu_command command{};
  command.kind = NPU_MAP;
  command.rank = 2;
  command.size[0] = 3;
  command.size[1] = 4;
  command.operand_count = 3;
  command.operands = operands;
  const npu_program_desc desc = program.desc();
  const auto touches = touches_of(command, &desc, [&](npu_addr addr, uint64_t size, void* out) {
    CHECK(addr == 0x3000 && size == sizeof(memory));
    std::memcpy(out, memory, sizeof(memory));
    return true;
  });
  CHECK(touches.size() == 3);
  CHECK(!touches[1].write && !touches[1].unsure);
  CHECK(touches[1].bytes.begin() == 0x2000 + 2 * 16 && touches[1].bytes.end() == 0x2000 + 6 * 16);
  CHECK(bytes_of(touches[1].bytes).size() == 32);
  CHECK(touches[2].write && touches[2].bytes.is_run());
  const auto unknown = touches_of(command, &desc, [](npu_addr, uint64_t, void*) { return false; });
  CHECK(unknown[1].unsure);
  command.size[0] = 100'000'000;  // too many steps: then nothing is fetched for them
  const auto too_many = touches_of(command, &desc, [](npu_addr, uint64_t, void*) {
    CHECK(!"read");
    return false;
  });
  CHECK(too_many[1].unsure);
}

Touch touch_of(npu_addr begin, npu_addr end, bool write) {
  Touch touch;
  touch.write = write;
  touch.bytes = Bytes(Run{begin, end});
  return touch;
}

void allocate(Shadow& shadow, npu_addr begin, uint64_t size) {
  Storage storage;
  storage.begin = begin;
  storage.size = size;
  storage.written = Written(size);
  shadow.allocated(std::move(storage));
}

TEST(memory_has_owners) {
  Shadow shadow;
  const auto add = [&](npu_addr begin, uint64_t size) { allocate(shadow, begin, size); };
  const auto kind_of = [&](npu_addr begin, npu_addr end) {
    const auto fault = shadow.check_memory(touch_of(begin, end, false), begin, false);
    return fault ? static_cast<int>(fault->kind) : -1;
  };
  add(1000, 100);
  add(2000, 100);
  CHECK(kind_of(1000, 1100) == -1);
  CHECK(kind_of(1050, 1101) == Fault::kPastEnd);
  CHECK(kind_of(1100, 1104) == Fault::kPastEnd);
  CHECK(kind_of(1990, 2004) == Fault::kBeforeBegin);
  shadow.freed(1000, nullptr, {}, {});
  CHECK(kind_of(1050, 1060) == Fault::kAfterFree);
  add(1040, 20);  // of the old one both ends are left
  CHECK(kind_of(1050, 1060) == -1 && kind_of(1000, 1010) == Fault::kAfterFree &&
        kind_of(1090, 1100) == Fault::kAfterFree);
  CHECK(shadow.check_memory(touch_of(1090, 1100, false), 1090, false)->size == 100);
  shadow.freed(1040, nullptr, {}, {});
  CHECK(kind_of(900'000, 900'004) == Fault::kNoTensor);

  const Touch read = touch_of(2000, 2040, false);
  CHECK(shadow.check_written(read, nullptr, 0, false)->bytes == (Run{2000, 2040}));
  shadow.wrote(Bytes(Run{2000, 2030}));
  CHECK(shadow.check_written(read, nullptr, 0, false)->bytes == (Run{2030, 2040}));
  const Touch own = touch_of(2030, 2040, true);  // what the same command stores first
  CHECK(!shadow.check_written(read, &own, 1, false));
  add(1000, 100);
  const int64_t size = 40, stride = 1;
  shadow.copied(Box(1000, &size, &stride, 1, 1), Box(2000, &size, &stride, 1, 1), nullptr);
  CHECK(shadow.check_written(touch_of(1000, 1040, false), nullptr, 0, false)->bytes == (Run{1030, 1040}));
  const int64_t more = 1100;  // past the end of the source, which counts as written
  add(10'000, 1100);
  shadow.copied(Box(10'000, &more, &stride, 1, 1), Box(2000, &more, &stride, 1, 1), nullptr);
  CHECK(shadow.check_written(touch_of(10'000, 11'100, false), nullptr, 0, false)->bytes == (Run{10'030, 10'100}));
  CHECK(!shadow.check_written(touch_of(10'100, 11'100, false), nullptr, 0, false));
  Written written(100);
  written.set(0, 50);
  CHECK(written.first_written(60, 50'000) == 50'000 && written.first_unwritten(10, 50'000) == 50);
}

TEST(the_oldest_frees_are_forgotten) {
  Shadow shadow;
  const npu_addr base = 1 << 20, step = 1 << 20;
  for (npu_addr k = 25'000; k > 0; --k) {  // the newest has the lowest address
    allocate(shadow, base + k * step, 100);
    shadow.freed(base + k * step, nullptr, {}, {});
  }
  const auto is_known = [&](npu_addr k) {
    const npu_addr begin = base + k * step;
    return shadow.check_memory(touch_of(begin, begin + 4, false), begin, false)->kind == Fault::kAfterFree;
  };
  CHECK(is_known(1) && is_known(10'000) && !is_known(25'000));
}

TEST(large_copies_are_not_walked) {
  Shadow shadow;
  const int64_t n = 10'000;
  const uint64_t size = static_cast<uint64_t>(n * n);
  for (const npu_addr begin : {uint64_t{1} << 40, uint64_t{1} << 41}) allocate(shadow, begin, size);
  const npu_operand operands[] = {operand_at(uint64_t{1} << 41, NPU_U8, {n, 1}),
                                  operand_at(uint64_t{1} << 40, NPU_U8, {n, 1})};
  npu_command copy{};
  copy.kind = NPU_COPY;
  copy.rank = 2;
  copy.size[0] = copy.size[1] = n;
  copy.operand_count = 2;
  copy.operands = operands;
  const Touch read = touch_of(uint64_t{1} << 41, (uint64_t{1} << 41) + size, false);
  shadow.copied(copy, nullptr);
  CHECK(shadow.check_written(read, nullptr, 0, false));
  shadow.wrote(Bytes(Run{uint64_t{1} << 40, (uint64_t{1} << 40) + 10}));  // a mixture: not worked out
  shadow.copied(copy, nullptr);
  CHECK(!shadow.check_written(read, nullptr, 0, false));
}

TEST(unordered_accesses_are_races) {
  Shadow shadow;
  Storage storage;
  storage.begin = 1000;
  storage.size = 100;
  shadow.allocated(std::move(storage));
  Clock a, b;
  const auto access = [&](Clock& clock, uint32_t stream, npu_addr begin, npu_addr end, bool write) {
    const Touch touch = touch_of(begin, end, write);
    const bool races = shadow.check_race(touch, clock).has_value();
    shadow.accessed(touch, clock.step(stream), clock, {}, nullptr);
    return races;
  };
  CHECK(!access(a, 0, 1000, 1100, true));
  CHECK(!access(a, 0, 1000, 1100, false));
  CHECK(access(b, 1, 1090, 1100, false));  // not behind a's write
  b.join(a);
  CHECK(!access(b, 1, 1000, 1100, false));
  CHECK(!access(a, 0, 1000, 1100, false));  // both read
  CHECK(access(a, 0, 1050, 1051, true));    // b may still read
  a.join(b);
  CHECK(!access(a, 0, 1000, 1050, true));
}

}  // namespace
