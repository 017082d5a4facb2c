// COPY: bytes as they are within one type, a one-instruction program otherwise.
#include <cstring>

#include "drivers/rtl/lower/lower.h"
#include "support/reference/value.h"

using namespace npu_hw;

namespace rtl {
namespace {

// Types under which the NPU moves elements of 1, 2 and 4 bytes without looking at them.
uint32_t raw_type(int width) {
  return width == 1 ? TYPE_U8 : width == 2 ? TYPE_U16 : TYPE_I32;
}
int raw_dtype(int width) {
  return width == 1 ? NPU_U8 : width == 2 ? NPU_U16 : NPU_I32;
}

}  // namespace

void Lowering::lower_copy() {
  npu_operand &result = operands_[0], &source = operands_[1];
  const int width = npu::dtype_size(result.dtype);
  const bool fill = source.flags & NPU_OPERAND_IMMEDIATE;
  uint64_t bits = 0;
  if (fill) {
    unsigned char from[8] = {};
    std::memcpy(from, &source.addr, sizeof from);
    const int compute = npu::compute_dtype(source.dtype);
    if (source.dtype == result.dtype)
      std::memcpy(&bits, from, static_cast<size_t>(width));
    else
      npu::store_value(&bits, result.dtype, npu::load_value(from, source.dtype, compute), compute);
  } else if (source.dtype != result.dtype) {
    const int from = npu::compute_dtype(source.dtype);
    Value value{operand(1), from};
    if (from == NPU_I64) {
      value.wide = true;
      value.high = source.dtype == NPU_I64 ? operand(1, space_, source.stride, 1) : immediate(0);
    }
    store(0, value, true);
    return;
  }
  // Elements of eight bytes are pairs of four.
  const int part = width == 8 ? 4 : width;
  if (width == 8) {
    if (space_.rank == NPU_MAX_RANK) throw Unsupported{"a copy of 8-byte elements in 8 dimensions"};
    space_.size[space_.rank++] = 2;
  }
  View views[2];
  for (uint32_t i = 0; i < (fill ? 1u : 2u); i++) {
    npu_operand& o = operands_[i];
    o.dtype = static_cast<uint8_t>(raw_dtype(part));
    if (width == 8) {
      for (int d = 0; d + 1 < space_.rank; d++) {
        if (o.stride[d] > INT64_MAX / 4 || o.stride[d] < INT64_MIN / 4) throw Unsupported{"a stride beyond all memory"};
        o.stride[d] *= 2;
      }
      o.stride[space_.rank - 1] = 1;
    }
    views[i] = operand(i);
    views[i].type = raw_type(part);
  }
  if (!fill) return vector(VEC_MOV, views[0], views[1]);
  if (width != 8) return vector(VEC_MOV, views[0], immediate(static_cast<uint32_t>(bits)));
  space_.rank--;
  vector(VEC_MOV, views[0], immediate(static_cast<uint32_t>(bits)));
  views[0].addr += 4;
  vector(VEC_MOV, views[0], immediate(static_cast<uint32_t>(bits >> 32)));
}

}  // namespace rtl
