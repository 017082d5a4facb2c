#include "support/legalise/draft/ranges.h"

#include <algorithm>
#include <numeric>

namespace npu::legalise {
namespace {

constexpr int64_t kFar = int64_t{1} << 40;  // elements: beyond it nothing is known, and no sum of two overflows

// The result of an operation of this type, which wraps: what leaves the type is not known.
Range of_type(int dtype, const Range& value) {
  if (dtype == NPU_I32) return value.within(INT32_MIN, INT32_MAX) ? value : Range{};
  return dtype == NPU_I64 ? value : Range{};
}

Range of_storage(int dtype) {
  switch (dtype) {
    case NPU_BOOL:
      return range(0, 1, 1);
    case NPU_U8:
      return range(0, 255, 1);
    case NPU_I8:
      return range(-128, 127, 1);
    case NPU_U16:
      return range(0, 65535, 1);
    case NPU_I16:
      return range(-32768, 32767, 1);
    default:
      return {};
  }
}

Range minimum(const Range& a, const Range& b) {
  if (!a.known || !b.known) return {};
  return range(std::min(a.low, b.low), std::min(a.high, b.high), 1);
}

Range negative(const Range& a) {
  return a * range(-1, -1, 0);
}

Range quotient(const Range& a, const Range& b) {
  if (!a.known || !b.known || a.low < 0 || b.low != b.high || b.low <= 0) return {};
  return range(a.low / b.low, a.high / b.low, 1);
}

Range rest(const Range& a, const Range& b) {
  if (!a.known || !b.known || a.low < 0 || b.low <= 0) return {};
  return range(0, std::min(a.high, b.high - 1), 1);
}

Range checked(const npu_instr& in, uint16_t mask, const Range& index, const Range& size) {
  const bool checks = (in.flags & NPU_INDEX_CHECK) && (in.mask == NPU_NO_VALUE || in.mask == mask);
  if (checks && size.known && size.high > 0) return range(0, size.high - 1, 1);
  return in.flags & NPU_INDEX_WRAP ? Range{} : index;
}

Range range_of(const Draft& draft, const npu_instr& in, uint16_t mask, const std::vector<Range>& known) {
  const auto at = [&](uint16_t id) { return id == NPU_NO_VALUE ? Range{} : known[id]; };
  const Range a = at(in.a), b = at(in.b), c = at(in.c);
  const auto number = [](int64_t value) { return range(value, value, 0); };
  switch (in.op) {
    case NPU_OP_CONST:
      return number(static_cast<int64_t>(draft.program->consts[in.imm]));
    case NPU_OP_PARAM: {
      const Param& param = draft.params[in.imm];
      return param.from < 0 || param.known ? number(param.value.i) : Range{};
    }
    case NPU_OP_INDEX:
      return range(0, std::max<int64_t>(draft.command.size[in.imm], 1) - 1, 1);
    case NPU_OP_SIZE:
      return number(draft.command.size[in.imm]);
    case NPU_OP_LOAD:
    case NPU_OP_LOAD_AT:
      return of_storage(draft.operands[in.imm].form.dtype);
    case NPU_OP_CHECK_INDEX:
      return checked(in, mask, a, b);
    case NPU_OP_CAST:
      return in.imm == NPU_DTYPE_NONE ? a : Range{};
    case NPU_OP_ADD:
      return a + b;
    case NPU_OP_SUB:
      return a + negative(b);
    case NPU_OP_NEG:
      return negative(a);
    case NPU_OP_MUL:
      return a * b;
    case NPU_OP_FMA:
      return a * b + c;
    case NPU_OP_DIV:
    case NPU_OP_FLOORDIV:
      return quotient(a, b);
    case NPU_OP_MOD:
    case NPU_OP_FMOD:
      return rest(a, b);
    case NPU_OP_MIN:
      return minimum(a, b);
    case NPU_OP_MAX:
      return negative(minimum(negative(a), negative(b)));
    case NPU_OP_WHERE:
      return either(b, c);
    default:
      return {};
  }
}

}  // namespace

Range range(int64_t low, int64_t high, int64_t step) {
  if (low < -kFar || high > kFar || low > high) return {};
  if (low == high || step == 0) return {true, low, low, 0};
  return {true, low, low + (high - low) / step * step, step};
}

Range operator+(const Range& a, const Range& b) {
  if (!a.known || !b.known) return {};
  return range(a.low + b.low, a.high + b.high, std::gcd(a.step, b.step));
}

Range operator*(const Range& a, const Range& b) {
  if (!a.known || !b.known) return {};
  if (a.low != a.high && b.low != b.high) {
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (const int64_t x : {a.low, a.high})
      for (const int64_t y : {b.low, b.high}) {
        int64_t product = 0;
        if (__builtin_mul_overflow(x, y, &product)) return {};
        low = std::min(low, product);
        high = std::max(high, product);
      }
    return range(low, high, 1);
  }
  const Range& many = a.low == a.high ? b : a;
  const int64_t by = a.low == a.high ? a.low : b.low;
  int64_t one = 0, other = 0, step = 0;
  if (__builtin_mul_overflow(many.low, by, &one) || __builtin_mul_overflow(many.high, by, &other) ||
      __builtin_mul_overflow(many.step, by, &step))
    return {};
  return range(std::min(one, other), std::max(one, other), std::abs(step));
}

Range either(const Range& a, const Range& b) {
  if (!a.known || !b.known) return {};
  const int64_t step = std::gcd(std::gcd(a.step, b.step), a.low - b.low);
  return range(std::min(a.low, b.low), std::max(a.high, b.high), step);
}

std::vector<Range> ranges_of(const Draft& draft, uint16_t mask) {
  std::vector<Range> out;
  for (const npu_instr& in : draft.program->instrs) {
    Range found = of_type(in.dtype, range_of(draft, in, mask, out));
    // Where another mask is false, a load yields 0.
    const bool loads = in.op == NPU_OP_LOAD || in.op == NPU_OP_LOAD_AT;
    if (loads && in.mask != NPU_NO_VALUE && in.mask != mask) found = either(found, range(0, 0, 0));
    if (in.dtype == NPU_BOOL) found = range(0, 1, 1);
    out.push_back(found);
  }
  return out;
}

std::vector<uint32_t> dimensions_of(const Draft& draft) {
  std::vector<uint32_t> out;
  for (const npu_instr& in : draft.program->instrs) {
    uint32_t dimensions = 0;
    for (const uint16_t id : {in.a, in.b, in.c, in.mask})
      if (id != NPU_NO_VALUE) dimensions |= out[id];
    if (in.op == NPU_OP_INDEX) dimensions |= 1u << in.imm;
    const bool touches =
        in.op == NPU_OP_LOAD || in.op == NPU_OP_LOAD_AT || in.op == NPU_OP_STORE || in.op == NPU_OP_STORE_AT;
    for (int d = 0; touches && d < draft.command.rank; ++d)
      if (draft.operands[in.imm].form.stride[d] != 0) dimensions |= 1u << d;
    out.push_back(dimensions);
  }
  return out;
}

std::vector<uint32_t> params_of_offsets(const Program& program) {
  std::vector<bool> wanted(program.instrs.size(), false);
  std::vector<uint32_t> out;
  for (size_t k = program.instrs.size(); k-- > 0;) {
    const npu_instr& in = program.instrs[k];
    if (in.op == NPU_OP_STORE_AT && in.b != NPU_NO_VALUE) wanted[in.b] = true;
    if (!wanted[k]) continue;
    for (const uint16_t id : {in.a, in.b, in.c})
      if (id != NPU_NO_VALUE) wanted[id] = true;
    const bool whole = in.dtype == NPU_I32 || in.dtype == NPU_I64;
    if (in.op == NPU_OP_PARAM && whole && std::find(out.begin(), out.end(), in.imm) == out.end()) out.push_back(in.imm);
  }
  return out;
}

}  // namespace npu::legalise
