#include "support/legalise/rules/words.h"

#include <algorithm>
#include <bit>

namespace npu::legalise {
namespace {

uint16_t convert(Writer& writer, uint16_t value, int to) {
  if (writer.type(value) == to) return value;
  return writer.emit(NPU_OP_CAST, to, value, NPU_NO_VALUE, NPU_NO_VALUE, NPU_DTYPE_NONE);
}

uint16_t reinterpret(Writer& writer, uint16_t value, int from, int to) {
  if (from == to) return value;
  return writer.emit(NPU_OP_BITCAST, compute_dtype(to), value, NPU_NO_VALUE, NPU_NO_VALUE,
                     static_cast<uint32_t>(from | to << 8));
}

int integer_of(int64_t width) {
  return width == 1 ? NPU_U8 : width == 2 ? NPU_U16 : width == 4 ? NPU_I32 : NPU_I64;
}

}  // namespace

bool Words::find(int type, Types kept, Words* out) {
  // `bool` keeps one bit only, and 16-bit floats do not keep every NaN.
  static constexpr int kWords[] = {NPU_U8,  NPU_I8,  NPU_I16, NPU_U16, NPU_I32,
                                   NPU_U32, NPU_F32, NPU_I64, NPU_U64, NPU_F64};
  const int width = dtype_size(type);
  int same = -1, wider = -1;
  bool four = false;
  int four_type = NPU_I32;
  for (const int word : kWords) {
    if (!(kept >> word & 1)) continue;
    const int size = dtype_size(word);
    if (size == width && same < 0) same = word;
    if (size > width && size >= 4 && (wider < 0 || size < dtype_size(wider))) wider = word;
    if (size == 4 && !four) four = true, four_type = word;
  }
  *out = {type, same, 1, 1};
  if (same >= 0) return true;
  if (width == 8 && four) {
    *out = {type, four_type, 2, 1};
    return true;
  }
  if (wider < 0) return false;
  *out = {type, wider, 1, dtype_size(wider) / width};
  return true;
}

int Words::bits_type() const {
  return std::max(dtype_size(type), dtype_size(word)) == 8 ? NPU_I64 : NPU_I32;
}

uint16_t Words::to_value(Writer& writer, uint16_t bits, int to) const {
  const int integer = integer_of(width());
  uint16_t value = convert(writer, bits, compute_dtype(integer));
  // Above the element's bits are those of its neighbours.
  if (type == integer && per_word > 1)
    value =
        writer.emit(NPU_OP_CAST, compute_dtype(type), value, NPU_NO_VALUE, NPU_NO_VALUE, static_cast<uint32_t>(type));
  return convert(writer, reinterpret(writer, value, integer, type), to);
}

uint16_t Words::to_bits(Writer& writer, uint16_t value) const {
  const uint16_t narrow = convert(writer, value, compute_dtype(type));
  return convert(writer, reinterpret(writer, narrow, type, integer_of(width())), bits_type());
}

uint16_t Words::word_bits(Writer& writer, uint16_t word_value) const {
  const int integer = integer_of(dtype_size(word));
  return convert(writer, reinterpret(writer, word_value, word, integer), bits_type());
}

uint16_t Words::bits_word(Writer& writer, uint16_t bits) const {
  const int integer = integer_of(dtype_size(word));
  return reinterpret(writer, convert(writer, bits, compute_dtype(integer)), integer, word);
}

Operand Words::view(const Operand& operand, int part) const {
  Operand out = part ? operand.moved_bytes(part * dtype_size(word)) : operand;
  out.form.dtype = static_cast<uint8_t>(word);
  for (int64_t& stride : out.form.stride) stride *= per_element;
  if (out.form.limit) out.form.limit = out.form.limit * per_element - part;
  return out;
}

bool align(const Words& words, const Operand& operand, Script& script, Aligned* out) {
  const int64_t width = words.width(), skew = script.skew(operand) % (width * words.per_word);
  if (skew % width) return false;
  out->base = operand.moved_bytes(-skew);
  out->base.form.dtype = static_cast<uint8_t>(words.word);
  out->base.form.limit = 0;
  set_strides(out->base.form, {});
  out->shift = skew / width;
  return true;
}

}  // namespace npu::legalise
