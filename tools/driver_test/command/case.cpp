#include "tools/driver_test/command/case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "support/program/approximation.h"
#include "support/program/validate.h"
#include "support/reference/reference.h"
#include "support/reference/value.h"
#include "tools/driver_test/frame/flight.h"

namespace driver_test {

namespace {

bool is_real(int dtype) {
  return dtype >= NPU_F16 && dtype <= NPU_F64;
}

std::string list(const int64_t* values, int n) {
  std::string out = "[";
  for (int i = 0; i < n; i++) out += say(i ? ", " : "", values[i]);
  return out + "]";
}

uint64_t bits_of(const Buffer& buffer, int64_t element) {
  uint64_t bits = 0;
  const auto size = static_cast<size_t>(npu::dtype_size(buffer.dtype));
  std::memcpy(&bits, buffer.bytes.data() + static_cast<size_t>(element) * size, size);
  return bits;
}

// Distance in units in the last place: floats of one sign are ordered as their bits are.
double ulps(const Buffer& a, const Buffer& b, int64_t element) {
  const int width = npu::dtype_size(a.dtype) * 8;
  auto order = [&](uint64_t bits) {
    const uint64_t sign = uint64_t{1} << (width - 1);
    return bits & sign ? -static_cast<double>(bits & (sign - 1)) : static_cast<double>(bits);
  };
  return std::abs(order(bits_of(a, element)) - order(bits_of(b, element)));
}

std::string show(const Buffer& buffer, int64_t element) {
  char text[64];
  if (is_real(buffer.dtype))
    std::snprintf(text, sizeof text, "%.17g", take(buffer, element));
  else if (buffer.dtype == NPU_U64)
    std::snprintf(text, sizeof text, "%llu", static_cast<unsigned long long>(bits_of(buffer, element)));
  else
    std::snprintf(text, sizeof text, "%lld",
                  static_cast<long long>(
                      npu::load_value(&buffer.bytes[static_cast<size_t>(element * npu::dtype_size(buffer.dtype))],
                                      buffer.dtype, NPU_I64)
                          .i));
  return say(text, " (", hex(bits_of(buffer, element)), ")");
}

}  // namespace

Tolerance Tolerance::sum(int64_t terms, int acc_dtype) {
  if (acc_dtype != NPU_F32 && acc_dtype != NPU_F64) return {};
  const double eps = acc_dtype == NPU_F32 ? 0x1p-23 : 0x1p-52;
  return {kSum, eps * static_cast<double>(std::max<int64_t>(terms, 1) + 2), 0};
}

void put(Buffer& buffer, int64_t element, double value) {
  npu::Value v{};
  v.f64 = value;
  npu::store_value(&buffer.bytes[static_cast<size_t>(element * npu::dtype_size(buffer.dtype))], buffer.dtype, v,
                   NPU_F64);
}

double take(const Buffer& buffer, int64_t element) {
  return npu::load_value(&buffer.bytes[static_cast<size_t>(element * npu::dtype_size(buffer.dtype))], buffer.dtype,
                         NPU_F64)
      .f64;
}

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
  places_.push_back({static_cast<int>(buffers.size()) - 1, before - low});
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
  places_.push_back({static_cast<int>(buffers.size()) - 1, 0});
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
  places_.push_back({});
  return static_cast<uint32_t>(operands.size() - 1);
}

void Case::alias(uint32_t operand) {
  operands.push_back(operands[operand]);
  places_.push_back(places_[operand]);
}

npu_status Case::reference(std::vector<Buffer>& memory, std::string* error) {
  npu_program_desc desc{};
  if (program) desc = program->desc();
  const npu::Translate translate = [&](npu_addr addr, uint64_t size, bool) -> void* {
    for (Buffer& b : memory)
      if (addr >= b.addr && addr - b.addr <= b.bytes.size() && size <= b.bytes.size() - (addr - b.addr))
        return b.bytes.data() + (addr - b.addr);
    return nullptr;
  };
  return npu::run_reference(command, program ? &desc : nullptr, translate, error);
}

bool Case::run(Rig& rig) {
  Context& context = rig.context;
  context.cases++;
  npu_program* handle = nullptr;
  if (program) {
    const npu_program_desc desc = program->desc();
    if (std::string broken = npu::validate(desc); !broken.empty())
      throw std::logic_error("the suite made a bad program: " + broken + "\n" + describe());
    npu_status status = rig.d.program_create(rig.device, &desc, &handle);
    if (status == NPU_UNSUPPORTED) return context.unsupported++, false;
    if (status != NPU_OK) fail("program_create: ", status_name(status), ": ", rig.text(), "\n", describe());
  }
  for (Buffer& b : buffers) {
    b.addr = rig.alloc(std::max<uint64_t>(b.bytes.size(), 1));
    if (!b.bytes.empty()) rig.upload(b.addr, b.bytes);
  }
  for (size_t i = 0; i < operands.size(); i++)
    if (places_[i].buffer >= 0) {
      const Buffer& b = buffers[static_cast<size_t>(places_[i].buffer)];
      operands[i].addr = b.addr + static_cast<uint64_t>(places_[i].offset * npu::dtype_size(b.dtype));
    }
  command.operands = operands.data();
  command.operand_count = static_cast<uint32_t>(operands.size());
  command.params = params.data();
  command.param_count = static_cast<uint32_t>(params.size());
  command.program = handle;
  const npu_program_desc desc = program ? program->desc() : npu_program_desc{};
  if (std::string broken = npu::validate_command(command, program ? &desc : nullptr); !broken.empty())
    throw std::logic_error("the suite made a bad command: " + broken + "\n" + describe());

  const npu_status supported = rig.d.supports(rig.device, &command);
  if (supported != NPU_OK && supported != NPU_UNSUPPORTED)
    fail("supports: expected NPU_OK or NPU_UNSUPPORTED, got ", status_name(supported), ": ", rig.text(), "\n",
         describe());
  command.choice = choice;
  npu_status status = rig.d.submit(rig.stream, &command);
  command.choice = 0;
  const bool accepted = status != NPU_UNSUPPORTED;
  if (accepted && supported == NPU_UNSUPPORTED && status == NPU_OK)
    fail("supports said NPU_UNSUPPORTED, but submit took the command\n", describe());
  if (handle) rig.d.program_destroy(handle);  // while the command may still be queued
  if (accepted) {
    std::string where = "submit", why = rig.text();
    if (status == NPU_OK) {
      status = rig.d.stream_synchronize(rig.stream);
      where = "stream_synchronize";
      why = rig.text();
    }
    std::vector<Buffer> want = buffers, got = buffers, scale;
    std::string error;
    const npu_status expected = reference(want, &error);
    if (status != expected)
      fail(where, ": expected ", status_name(expected), expected ? " (" + error + ")" : "", ", got ",
           status_name(status), status ? ": " + why : "", "\n", describe());
    if (tolerance.kind == Tolerance::kSum && expected == NPU_OK) {
      scale = buffers;
      for (Buffer& b : scale)
        for (int64_t i = 0; i < b.elements; i++) put(b, i, std::abs(take(b, i)));
      std::vector<npu_operand> kept = operands;
      for (npu_operand& o : operands)
        if ((o.flags & NPU_OPERAND_IMMEDIATE) && is_real(o.dtype))
          o.addr &= ~(uint64_t{1} << (npu::dtype_size(o.dtype) * 8 - 1));
      reference(scale, &error);
      std::copy(kept.begin(), kept.end(), operands.begin());
    }
    if (expected == NPU_OK) {
      for (Buffer& b : got)
        if (!b.bytes.empty()) b.bytes = rig.download(b.addr, b.bytes.size());
      compare(want, got, scale);
    }
  } else {
    context.unsupported++;
  }
  for (Buffer& b : buffers) rig.free(b.addr);
  return accepted;
}

void Case::compare(const std::vector<Buffer>& want, const std::vector<Buffer>& got,
                   const std::vector<Buffer>& scale) const {
  for (size_t n = 0; n < want.size(); n++) {
    const Buffer &w = want[n], &g = got[n];
    if (static_cast<int>(n) == checked_buffer) {
      check(buffers, w, g);
      continue;
    }
    if (w.bytes == g.bytes) continue;
    for (int64_t i = 0; i < w.elements; i++) {
      if (bits_of(w, i) == bits_of(g, i)) continue;
      std::string budget = "bit for bit";
      if (is_real(w.dtype)) {
        const double a = take(w, i), b = take(g, i), apart = std::abs(a - b);
        if (std::isnan(a) && std::isnan(b) && !same_nans) continue;
        const bool half = w.dtype == NPU_F16 || w.dtype == NPU_BF16;
        if (tolerance.kind == Tolerance::kUlp) {
          const double most = half ? std::max(1.0, std::ceil(tolerance.amount / 1024)) : tolerance.amount;
          if (apart <= tolerance.absolute || ulps(w, g, i) <= most) continue;
          budget = say("at most ", most, " ulp apart");
        } else if (tolerance.kind != Tolerance::kExact) {
          const double size =
              tolerance.kind == Tolerance::kSum ? std::abs(take(scale[n], i)) : std::max(std::abs(a), std::abs(b));
          const double most = tolerance.amount * size + tolerance.absolute;
          if (a == b || apart <= most || ulps(w, g, i) <= 1) continue;
          budget = say("at most ", most, " apart");
        }
      }
      std::string which;
      int64_t origin = 0;
      for (size_t k = 0; k < places_.size(); k++)
        if (places_[k].buffer == static_cast<int>(n)) {
          which += say(which.empty() ? "operand " : " and ", k);
          origin = places_[k].offset;
        }
      fail(which, ", ", npu::dtype_name(w.dtype), " element ", i - origin, " from its address: expected ", show(w, i),
           ", got ", show(g, i), "; was ", show(buffers[n], i), " before; allowed: ", budget, "\n", describe());
    }
  }
}

std::string Case::describe() const {
  std::string out = say("  ", npu::command_name(command.kind), " size ", list(command.size, command.rank));
  if (command.inner_rank) out += say(", the last ", int{command.inner_rank}, " inner");
  if (command.kind == NPU_MATMUL)
    out += say(", k ", command.u.matmul.k, ", acc ", npu::dtype_name(command.u.matmul.acc_dtype));
  if (command.kind == NPU_SORT)
    out += say(", count ", command.u.sort.count, command.u.sort.descending ? ", descending" : ", ascending",
               command.u.sort.stable ? ", stable" : "");
  if (command.kind == NPU_CONV) {
    const npu_conv& c = command.u.conv;
    const int n = static_cast<int>(c.spatial_rank);
    out += say(", mode ", c.mode, ", batch ", c.batch, ", channels ", c.in_channels, " -> ", c.out_channels,
               ", groups ", c.groups, ", in ", list(c.in_size, n), ", out ", list(c.out_size, n), ", kernel ",
               list(c.kernel, n), ", stride ", list(c.stride, n), ", padding ", list(c.padding, n), ", dilation ",
               list(c.dilation, n), ", acc ", npu::dtype_name(c.acc_dtype));
  }
  for (size_t i = 0; i < operands.size(); i++) {
    const npu_operand& o = operands[i];
    out += say("\n  operand ", i, ": ", npu::dtype_name(o.dtype));
    if (o.flags & NPU_OPERAND_IMMEDIATE)
      out += say(" immediate ", hex(o.addr));
    else
      out += say(" strides ", list(o.stride, command.rank), " at ", hex(o.addr), " (element ", places_[i].offset,
                 " of a buffer of ", buffers[static_cast<size_t>(places_[i].buffer)].elements, ")");
    if (o.limit) out += say(", limit ", o.limit);
  }
  for (size_t i = 0; i < params.size(); i++)
    out += say("\n  param ", i, ": ", params[i].i, " as an integer, ", params[i].f, " as a float");
  if (program) out += "\n" + npu::to_text(program->desc());
  return out;
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
