// Where a tile of an operand lies, and what to say where it lies outside. Internal to the interpreter.
#pragma once
#include <cstdint>

#include "drivers/cmodel/interpreter/interpreter.h"
#include "drivers/cmodel/memory/memory.h"

namespace cmodel {

struct Place {
  const Operand* operand;
  char* at;
  int64_t row_stride, col_stride;
  int log_size;
};

inline Place place(const Frame& f, const Op& op, const Tile& t) {
  const Operand& operand = f.job->operands[op.imm];
  const int log_size = log_size_of(operand.dtype);
  const int64_t rs = t.rows == 1 ? 0 : t.row_stride[op.view], cs = t.cols == 1 ? 0 : t.col_stride[op.view];
  if (op.is(Trait::kRowBuffer) && f.row_buffer)
    return {&operand, f.row_buffer + (t.offset[op.view] << log_size), rs, cs, log_size};
  char* base = operand.immediate ? const_cast<char*>(reinterpret_cast<const char*>(&operand.bits)) : operand.ptr;
  return {&operand, base + (t.offset[op.view] << log_size), rs, cs, log_size};
}

// May all of [begin, end) be touched?
inline bool inside(const Operand& operand, const char* begin, const char* end) {
  if (operand.immediate) return true;
  if (begin < operand.begin || end > operand.end) return false;
  return !operand.parts || operand.parts->live(begin, end);
}
inline bool inside(const Operand& operand, const char* at, int log_size) {
  return inside(operand, at, at + (int64_t{1} << log_size));
}

// `element` counts from the start of the operand's allocation.
void bad_address(Frame& frame, const Op& op, int64_t element, const Tile& tile, bool write);

template <class F>
void each_point(const Tile& t, F f) {
  int64_t i = 0;
  for (int64_t r = 0; r < t.rows; ++r)
    for (int64_t c = 0; c < t.cols; ++c, ++i) f(i, r, c);
}

inline bool mask_at(Ref mask, int64_t i) {
  return mask.ptr[mask.uniform ? 0 : i] != 0;
}

// Calls f with `memory` as an array of words of 2^log_size bytes.
template <class F>
auto with_bytes(int log_size, void* memory, F f) {
  switch (log_size) {
    case 0:
      return f(static_cast<uint8_t*>(memory));
    case 1:
      return f(static_cast<uint16_t*>(memory));
    case 2:
      return f(static_cast<uint32_t*>(memory));
    default:
      return f(static_cast<uint64_t*>(memory));
  }
}

}  // namespace cmodel
