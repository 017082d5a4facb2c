// Conversions from and to 64 bits (docs/isa.md, "Conversions").
#include "support/legalise/numbers/in_words.h"
#include "support/program/op_info.h"

namespace npu::legalise {

Number InWords::convert(const Number& value, int to) {
  const int from = value.type;
  if (from == to) return value;
  const bool integers = from != NPU_F32 && from != NPU_F64;
  if (!is_wide(from) && !is_wide(to))
    return {to, emit_.op(NPU_OP_CAST, to, value.low, NPU_NO_VALUE, NPU_NO_VALUE, NPU_DTYPE_NONE)};
  if (to == NPU_BOOL) {
    const uint16_t high = from == NPU_F64 ? emit_.same(NPU_OP_AND, value.high, word(INT32_MAX)) : value.high;
    return {to, is(NPU_OP_NE, emit_.same(NPU_OP_OR, value.low, high), word(0))};
  }
  if (from == NPU_BOOL && to == NPU_F64) return {to, word(0), choose(value.low, word(0x3ff00000), word(0)), {}};
  if (from == NPU_BOOL) {
    Number out = extended(convert(value, NPU_I32).low, {0, 1});
    out.type = to;
    return out;
  }
  if (from == NPU_I32 && to != NPU_F64) {
    Number out = extended(value.low, {INT32_MIN, INT32_MAX});
    out.type = to;
    return out;
  }
  if (integers && to == NPU_I32) return {to, value.low};
  if (integers && to != NPU_F32 && to != NPU_F64) return {to, value.low, value.high, {}};
  const bool unsigned_word = from == NPU_I64 && value.range.least >= 0 && value.range.most <= UINT32_MAX;
  if (unsigned_word && to == NPU_F64) {
    const std::vector<uint16_t> words = emit_.call("f64_of_u32", {value.low});
    return {to, words[0], words[1], {}};
  }
  if (from == NPU_I64 && value.range.in_word()) return convert({NPU_I32, value.low}, to);
  return called(std::string(dtype_name(to)) + "_of_" + dtype_name(from), to, {value});
}

// `through` is a storage type, or none.
Number InWords::cast(const Number& value, int through, int to) {
  if (through == NPU_DTYPE_NONE) return convert(value, to);
  const int exact = compute_dtype(through);
  Number stored = convert(value, exact);
  if (through == NPU_U32) stored = {NPU_I64, stored.low, word(0), {0, UINT32_MAX}};
  if (!is_wide(exact))
    stored.low = emit_.op(NPU_OP_CAST, exact, stored.low, NPU_NO_VALUE, NPU_NO_VALUE, static_cast<uint32_t>(through));
  return convert(stored, to);
}

Number InWords::bitcast(const npu_instr& in) {
  const int from = static_cast<int>(in.imm & 0xff), to = static_cast<int>(in.imm >> 8);
  Number value = number(in.a);
  if (dtype_size(from) == 8) return {in.dtype, value.low, value.high, {}};
  if (!in_wide_storage(from) && !in_wide_storage(to)) return copied(in);
  // Of an u32 the low word is what is stored.
  const int from_here = from == NPU_U32 ? int{NPU_I32} : from, to_here = to == NPU_U32 ? int{NPU_I32} : to;
  const uint16_t bits = from_here == to_here ? value.low
                                             : emit_.op(NPU_OP_BITCAST, compute_dtype(to_here), value.low, NPU_NO_VALUE,
                                                        NPU_NO_VALUE, static_cast<uint32_t>(from_here | to_here << 8));
  if (to == NPU_U32) return {NPU_I64, bits, word(0), {0, UINT32_MAX}};
  return {in.dtype, bits};
}

}  // namespace npu::legalise
