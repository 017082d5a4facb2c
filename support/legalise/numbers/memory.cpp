// Loads and stores: an element of 64 bits is two words at twice the offset.
#include "support/legalise/numbers/in_words.h"
#include "support/program/op_info.h"

namespace npu::legalise {
namespace {

// Elements, or words, that an offset of load_at and store_at may reach: what does not fit its word is saturated, and
// is then outside, wherever within this many elements the point itself lies.
constexpr int64_t kMostOffset = int64_t{1} << 30;

Range range_of(int storage) {
  switch (storage) {
    case NPU_U8:
      return {0, UINT8_MAX};
    case NPU_I8:
      return {INT8_MIN, INT8_MAX};
    case NPU_U16:
      return {0, UINT16_MAX};
    case NPU_I16:
      return {INT16_MIN, INT16_MAX};
    default:
      return {INT32_MIN, INT32_MAX};
  }
}

}  // namespace

// The offset as the i64 that load_at and store_at ask for: an i32 that is cast, and nothing else.
uint16_t InWords::offset(const Number& elements, const Operand& operand, bool doubled, uint16_t mask) {
  const Range range = elements.range;
  const bool fits = range.least >= -kMostOffset && range.most < kMostOffset;
  uint16_t here = doubled ? emit_.same(NPU_OP_SHL, elements.low, word(1)) : elements.low;
  if (!fits) {
    uint16_t inside = is(NPU_OP_EQ, elements.high, sign_of(elements.low));
    if (doubled) {
      const uint16_t next = emit_.same(NPU_OP_SHR, elements.low, word(30));
      inside = emit_.op(NPU_OP_AND, NPU_BOOL, inside, is(NPU_OP_EQ, elements.high, next));
    }
    const uint16_t end = emit_.same(NPU_OP_XOR, sign_of(elements.high), word(INT32_MAX));
    here = choose(inside, here, end);
    // Where nothing says how far the operand reaches, what is too far must fail all the same.
    if (operand.form.limit == 0) {
      uint16_t bad = inverted(inside);
      if (mask != NPU_NO_VALUE) bad = emit_.op(NPU_OP_AND, NPU_BOOL, bad, mask);
      writer_.emit(NPU_OP_CHECK_INDEX, NPU_I32, end, word(0), NPU_NO_VALUE, 0, bad, NPU_INDEX_CHECK);
    }
  }
  return writer_.emit(NPU_OP_CAST, NPU_I64, here, NPU_NO_VALUE, NPU_NO_VALUE, NPU_DTYPE_NONE);  // also of a constant
}

Number InWords::load(const npu_instr& in) {
  const Operand& operand = source_.operands[in.imm];
  const int storage = operand.form.dtype, exact = compute_dtype(storage);
  const bool two = dtype_size(storage) == 8, computed = in.op == NPU_OP_LOAD_AT;
  const uint16_t where = mask(in);
  uint16_t at = NPU_NO_VALUE;
  if (computed) {
    if (operand.form.limit * (two ? 2 : 1) > kMostOffset) throw Unsupported{};
    at = offset(number(in.a), operand, two, where);
  }
  const auto loaded = [&](const Operand& from, int type) {
    return computed ? writer_.load_at(from, type, at, where) : writer_.load(from, type, where);
  };
  if (!in_wide_storage(storage)) {
    const bool direct = !is_wide(in.dtype);
    const int type = direct ? int{in.dtype} : exact;
    const Number value{type, loaded(operand, type)};
    if (in.dtype == NPU_I64 && type == NPU_I32) return extended(value.low, range_of(storage));
    return direct ? value : convert(value, in.dtype);
  }
  const uint16_t low = loaded(word_of(operand, 0), NPU_I32);
  if (!two) return convert({NPU_I64, low, word(0), {0, UINT32_MAX}}, in.dtype);
  return convert({exact, low, loaded(word_of(operand, 1), NPU_I32), {}}, in.dtype);
}

// `store`, and `store_at` that sets. What a combining store_at loads must not be more than a word.
void InWords::store(const npu_instr& in) {
  const Operand& operand = source_.operands[in.imm];
  const int storage = operand.form.dtype, exact = compute_dtype(storage);
  const bool two = dtype_size(storage) == 8, computed = in.op == NPU_OP_STORE_AT;
  const uint16_t where = mask(in);
  Number value = number(in.a);
  if (in.flags != NPU_STORE_SET) {
    // Sums and products of integers wrap, so that the low word is all of them that is stored.
    const bool wraps = in.flags == NPU_STORE_ADD || in.flags == NPU_STORE_MUL;
    const bool low_only = value.type != NPU_F64 && value.type != NPU_F32 && wraps;
    const bool in_word = exact == NPU_I32 || storage == NPU_U32;
    if ((is_wide(exact) || is_wide(value.type)) && !(low_only && in_word)) throw Unsupported{};
    if (is_wide(value.type)) value = {NPU_I32, value.low};
  } else if (is_wide(value.type) || is_wide(exact)) {
    value = convert(value, exact);
  }
  uint16_t at = NPU_NO_VALUE;
  if (computed) {
    if (operand.form.limit * (two ? 2 : 1) > kMostOffset) throw Unsupported{};
    at = offset(number(in.b), operand, two, where);
  }
  for (int k = 0; k < (two ? 2 : 1); ++k) {
    const Operand to = is_wide(exact) ? word_of(operand, k) : operand;
    writer_.emit(static_cast<npu_op>(in.op), NPU_DTYPE_NONE, k == 0 ? value.low : value.high, at, NPU_NO_VALUE,
                 writer_.operand(to), where, in.flags);
  }
}

}  // namespace npu::legalise
