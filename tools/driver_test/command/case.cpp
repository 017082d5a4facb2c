#include "tools/driver_test/command/case.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/program/approximation.h"
#include "tools/driver_test/frame/flight.h"

namespace driver_test {

namespace {

bool is_real(int dtype) {
  return dtype >= NPU_F16 && dtype <= NPU_F64;
}

}  // namespace

void fill(Random& random, Buffer& buffer, Data data) {
  const auto size = static_cast<size_t>(npu::dtype_size(buffer.dtype));
  buffer.bytes.assign(static_cast<size_t>(buffer.elements) * size, 0);
  const std::vector<double> special = {NAN,   INFINITY, -INFINITY,    -0.0,          0.0,  1e-40, -3e-39, 65504, 1e30,
                                       -1e30, 0.5,      2147483648.0, -2147483649.0, 1e19, 255.5, -1.5,   2.5};
  for (int64_t i = 0; i < buffer.elements; i++) {
    uint8_t* at = &buffer.bytes[static_cast<size_t>(i) * size];
    if (data == Data::kZero) continue;
    if (buffer.dtype == NPU_BOOL) {
      *at = static_cast<uint8_t>(data == Data::kSpecial && random.chance(10) ? random.below(256) : random.below(2));
    } else if (is_real(buffer.dtype)) {
      double value = data == Data::kSmall ? static_cast<double>(random.between(-4, 4)) : random.unit() * 4 - 2;
      if (data == Data::kSpecial && random.chance(15)) value = random.pick(special);
      if (data == Data::kSpecial && random.chance(10)) value = static_cast<double>(random.between(-300, 300));
      put(buffer, i, value);
    } else if (data == Data::kSpecial && random.chance(50)) {
      const uint64_t bits = random.chance(20) ? ~uint64_t{0} << random.below(64) : random.next();
      std::memcpy(at, &bits, size);
    } else {
      const bool is_unsigned =
          buffer.dtype == NPU_U8 || buffer.dtype == NPU_U16 || buffer.dtype == NPU_U32 || buffer.dtype == NPU_U64;
      const int64_t value = is_unsigned ? random.between(0, 8) : random.between(-4, 4);
      std::memcpy(at, &value, size);
    }
  }
}

Case::Case(npu_command_kind kind, std::vector<int64_t> size, int inner_rank) {
  command.struct_size = sizeof command;
  command.kind = static_cast<uint8_t>(kind);
  command.rank = static_cast<uint8_t>(size.size());
  command.inner_rank = static_cast<uint8_t>(inner_rank);
  std::copy(size.begin(), size.end(), command.size);
  command.label = "driver-test";
}

uint32_t Case::place(Random& random, int dtype, Data data, const std::vector<int64_t>& size,
                     const std::vector<int64_t>& strides, int64_t before, int64_t after) {
  npu_operand operand{};
  operand.dtype = static_cast<uint8_t>(dtype);
  int64_t low = 0, high = 0;
  for (size_t d = 0; d < strides.size(); d++) {
    operand.stride[d] = strides[d];
    (strides[d] < 0 ? low : high) += strides[d] * std::max<int64_t>(size[d] - 1, 0);
  }
  Buffer buffer;
  buffer.dtype = dtype;
  buffer.elements = before + high - low + 1 + after;
  fill(random, buffer, data);
  buffers.push_back(std::move(buffer));
  operands.push_back(operand);
  places.push_back({static_cast<int>(buffers.size()) - 1, before - low});
  return static_cast<uint32_t>(operands.size() - 1);
}

uint32_t Case::at_strides(Random& random, int dtype, Data data, const std::vector<int64_t>& size,
                          const std::vector<int64_t>& strides, int64_t room) {
  return place(random, dtype, data, size, strides, room, room);
}

uint32_t Case::add(Random& random, int dtype, Data data, bool plain, bool written, int rank,
                   std::vector<int64_t> size) {
  if (size.empty()) size.assign(command.size, command.size + command.rank);
  if (rank < 0) rank = static_cast<int>(size.size());
  std::vector<int> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::reverse(order.begin(), order.end());  // innermost first
  const bool permute = !plain && random.chance(40), gaps = !plain && random.chance(30);
  if (permute)
    for (size_t i = order.size(); i > 1; i--)
      std::swap(order[i - 1], order[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  std::vector<int64_t> strides(static_cast<size_t>(rank));
  int64_t next = gaps ? random.between(1, 3) : 1;
  for (const int d : order) {
    const int64_t n = size[static_cast<size_t>(d)];
    if (!plain && !written && random.chance(15)) continue;  // broadcast
    strides[static_cast<size_t>(d)] = !plain && random.chance(12) ? -next : next;
    next *= std::max<int64_t>(n, 1);
    if (gaps && random.chance(50)) next += random.between(1, 5);
  }
  const int64_t before = plain ? 0 : random.below(9), after = random.below(9);
  return place(random, dtype, data, size, strides, before, after);
}

uint32_t Case::input(Random& random, int dtype, Data data, bool plain, int rank, std::vector<int64_t> size) {
  return add(random, dtype, data, plain, false, rank, std::move(size));
}

uint32_t Case::output(Random& random, int dtype, bool plain, int rank, std::vector<int64_t> size) {
  return add(random, dtype, Data::kReal, plain, true, rank, std::move(size));
}

uint32_t Case::table(Random& random, int dtype, int64_t elements, Data data) {
  npu_operand operand{};
  operand.dtype = static_cast<uint8_t>(dtype);
  operand.limit = elements;
  Buffer buffer;
  buffer.dtype = dtype;
  buffer.elements = elements;
  fill(random, buffer, data);
  buffers.push_back(std::move(buffer));
  operands.push_back(operand);
  places.push_back({static_cast<int>(buffers.size()) - 1, 0});
  return static_cast<uint32_t>(operands.size() - 1);
}

uint32_t Case::immediate(Random& random, int dtype, Data data) {
  npu_operand operand{};
  operand.dtype = static_cast<uint8_t>(dtype);
  operand.flags = NPU_OPERAND_IMMEDIATE;
  Buffer one;
  one.dtype = dtype;
  one.elements = 1;
  fill(random, one, data);
  operand.addr = bits_of(one, 0);
  operands.push_back(operand);
  places.push_back({});
  return static_cast<uint32_t>(operands.size() - 1);
}

void Case::alias(uint32_t operand) {
  operands.push_back(operands[operand]);
  places.push_back(places[operand]);
}

void Case::sharpen(const Context& context) {
  bool approximated = false;
  for (const npu_instr& in : program ? program->instrs : std::vector<npu_instr>{})
    approximated |= (in.dtype == NPU_F32 || in.dtype == NPU_F64) && npu::approximation(in.op).ulp > 0;
  if (context.exact || (context.exact_sums && !approximated)) tolerance = {};
  same_nans = context.exact;
}

void cases(Context& context, const std::vector<int64_t>& numbers, const std::function<void(Random&, int64_t)>& run) {
  for (const int64_t number : numbers) {
    const std::string where = say("--seed ", context.seed, " --case ", number);
    fly_seed(where);
    try {
      Random random = context.random(static_cast<uint64_t>(number));
      run(random, number);
    } catch (const Failed& e) {
      fail("  ", where, ": ", e.text);
    }
  }
  conclude(context);
}

void random_cases(Context& context, Rig& rig, const std::function<Case(Random&)>& make) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < context.count; i++) numbers.push_back(i);
  if (context.only) numbers = {*context.only};
  cases(context, numbers, [&](Random& random, int64_t) {
    Case one = make(random);
    one.sharpen(context);
    one.run(rig);
  });
}

void conclude(Context& context) {
  if (context.unsupported == context.cases)
    throw NotSupported{say("the driver took none of ", context.cases, " cases")};
  context.note = say(context.cases, " cases");
  if (context.unsupported) context.note += say(", ", context.unsupported, " of them unsupported");
}

const std::vector<int>& all_dtypes() {
  static const std::vector<int> all = {NPU_BOOL, NPU_U8,  NPU_I8,  NPU_U16,  NPU_I16, NPU_U32, NPU_I32,
                                       NPU_U64,  NPU_I64, NPU_F16, NPU_BF16, NPU_F32, NPU_F64};
  return all;
}

std::vector<int64_t> strides_in_order(const std::vector<int64_t>& size, const std::vector<int>& order) {
  std::vector<int64_t> out(size.size());
  int64_t next = 1;
  for (size_t i = order.size(); i-- > 0; next *= std::max<int64_t>(size[static_cast<size_t>(order[i])], 1))
    out[static_cast<size_t>(order[i])] = next;
  return out;
}

const std::vector<int64_t>& tile_sizes() {
  static const std::vector<int64_t> all = {7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129};
  return all;
}

std::vector<int64_t> random_sizes(Random& random, int least_rank, int most_rank, int64_t most_points) {
  static const std::vector<int64_t> sizes = {1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 257, 1000, 3001};
  std::vector<int64_t> out;
  int64_t points = 1;
  const auto rank = random.between(least_rank, random.chance(80) ? std::min(most_rank, 4) : most_rank);
  for (int64_t d = 0; d < rank; d++) {
    int64_t n = random.pick(sizes);
    while (n > 1 && points * n > most_points) n /= 2;
    if (random.chance(2)) n = 0;
    points *= std::max<int64_t>(n, 1);
    out.push_back(n);
  }
  if (out.size() > 1 && random.chance(50)) std::swap(out.front(), out.back());
  return out;
}

}  // namespace driver_test
