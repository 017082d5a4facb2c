// Coordinates, checked indices, loads and stores at computed addresses, and masks: GATHER and SCATTER packets.
#include <algorithm>
#include <cstring>

#include "drivers/rtl/lower/lower.h"
#include "support/reference/value.h"

using namespace npu_hw;

namespace rtl {
namespace {

constexpr size_t kMostExtents = 16;  // pieces of memory that each element of an access is compared with

}  // namespace

// 0, 1, 2, ... along one dimension: a row in scratch, made once.
Lowering::Value Lowering::coordinate(int dimension, int dtype) {
  const int64_t size = space_.size[dimension];
  if (size == 1) return integer(0, dtype);
  if (size > INT32_MAX) throw Unsupported{"a dimension of 2^31 elements or more"};
  if (!has_coordinate_[dimension]) {
    Space row;
    row.rank = 1;
    row.size[0] = size;
    View made = contiguous(row, TYPE_I32);
    emit(OP_VECTOR, VEC_IOTA, row, made, immediate(0));
    std::swap(made.stride[0], made.stride[dimension]);
    coordinates_[dimension] = made;
    has_coordinate_[dimension] = true;
  }
  return {coordinates_[dimension], dtype, {0, size - 1}};
}

// True everywhere where there is none.
Lowering::Value Lowering::mask_of(const npu_instr& in) {
  return in.mask == NPU_NO_VALUE ? integer(1, NPU_BOOL) : values_[in.mask];
}

// Stops the command where `bad` is true.
void Lowering::check(const Value& bad, npu_status status, const Value& index, int64_t size) {
  if (bad.view.immediate && bad.view.bits == 0) return;
  const auto word = [&](const View& view) {
    return view.immediate || view.type == TYPE_I32 ? view : apply(NPU_I32, VEC_MOV, view).view;
  };
  Check found{0, status, {}, word(index.view), word(high_word(index)), size};
  // Flags in a row, and so one packet: the number of the element that it reports is one of this space.
  found.space = varying({&bad.view});
  const View flags = contiguous_over(found.space, TYPE_I32);
  emit(OP_VECTOR, VEC_MOV, found.space, flags, bad.view);
  found.packet = packets.size();
  emit(OP_VECTOR, VEC_CHECK, found.space, flags, flags);
  checks.push_back(found);
}

Lowering::Value Lowering::check_index(const npu_instr& in, const Value& index, const Value& size) {
  const Value mask = mask_of(in), zero = integer(0, in.dtype);
  Value made = index;
  const auto sum = [&](const Value& a, const Value& b) {
    return in.dtype == NPU_I64 ? add(a, b) : apply(in.dtype, VEC_IADD, a.view, b.view);
  };
  if (in.flags & NPU_INDEX_WRAP && range_of(index).least < 0) {
    const Value below = apply(NPU_BOOL, VEC_AND, less(index, zero).view, mask.view);
    made = select(below, sum(index, size), index);
  }
  if (!(in.flags & NPU_INDEX_CHECK)) return made;
  const Range limit = range_of(size);
  const Value inside = apply(NPU_BOOL, VEC_AND, invert(less(made, zero)).view, less(made, size).view);
  check(apply(NPU_BOOL, VEC_AND, invert(inside).view, mask.view), NPU_ERROR_INDEX, index,
        limit.least == limit.most ? limit.least : -1);
  // What has passed is a number of 31 bits.
  if (mask.view.immediate && mask.view.bits && limit.most <= INT32_MAX) {
    const Range range = range_of(made);
    made = {made.view, in.dtype, {std::max<int64_t>(0, range.least), std::min(limit.most - 1, range.most)}};
    if (limit.most < 1) made.range = {0, 0};  // it cannot have passed
  }
  return made;
}

// Where nothing is masked and nothing computed, operand() has looked.
void Lowering::guard(const npu_instr& in, const Value& offset, const Value& mask) {
  const uint32_t index = in.imm;
  const npu_operand& o = command_.operands[index];
  const int64_t limit = in.op == NPU_OP_LOAD || in.op == NPU_OP_STORE ? 0 : o.limit;
  const int64_t width = npu::dtype_size(o.dtype);
  if (dry_) return;
  const Range range = range_of(offset);
  __int128 low = range.least, high = range.most;
  for (int d = 0; d < space_.rank; d++) {
    const __int128 reach = static_cast<__int128>(space_.size[d] - 1) * o.stride[d];
    (reach < 0 ? low : high) += reach;
  }
  uint64_t at = 0;
  const auto live = [&](__int128 first, __int128 count) {
    const __int128 addr = static_cast<__int128>(o.addr) + first * width;
    return addr > 0 && count * width < INT64_MAX &&
           device_->memory->find(static_cast<npu_addr>(addr), static_cast<uint64_t>(count * width), &at);
  };
  if ((limit == 0 || (low >= 0 && high < limit)) && live(low, high - low + 1)) return;
  struct Extent {
    int64_t first, end;  // elements from the operand's address
  };
  std::vector<Extent> extents;
  if (limit == 0) {
    // A masked walk may start before its allocation, and reach over others, and so may a computed offset.
    const auto address = [&](__int128 element) {
      const __int128 exact = static_cast<__int128>(o.addr) + element * width;
      return static_cast<npu_addr>(std::clamp<__int128>(exact, 0, UINT64_MAX));
    };
    const std::vector<Memory::Extent> blocks = device_->memory->around(address(low), address(high));
    if (blocks.size() > kMostExtents) throw Unsupported{"an access that may meet more than 16 allocations"};
    for (const Memory::Extent& block : blocks) {
      const auto start = static_cast<int64_t>(block.start - o.addr);
      extents.push_back({start / width, (start + static_cast<int64_t>(block.size)) / width});
    }
  } else if (live(0, limit)) {
    extents = {{0, limit}};
  } else {
    throw Refused{NPU_ERROR_ADDRESS, "expected a live allocation of " + std::to_string(limit) +
                                         " elements at operand " + std::to_string(index) + ", got none"};
  }
  Value place = offset;
  for (int d = 0; d < space_.rank; d++)
    if (o.stride[d] != 0) place = add(place, multiply(coordinate(d, NPU_I64), integer(o.stride[d])));
  Value outside = mask;
  for (const Extent& one : extents) {
    const Value out =
        apply(NPU_BOOL, VEC_OR, less(place, integer(one.first)).view, invert(less(place, integer(one.end))).view);
    outside = apply(NPU_BOOL, VEC_AND, outside.view, out.view);
  }
  check(outside, NPU_ERROR_ADDRESS, place, extents.empty() ? 0 : extents.back().end);
}

// `load` and `load_at`, masked or not. Elements of 8 bytes are two words, at twice the offset.
Lowering::Value Lowering::load(const npu_instr& in) {
  const npu_operand& o = command_.operands[in.imm];
  const Value mask = mask_of(in), offset = in.op == NPU_OP_LOAD_AT ? values_[in.a] : integer(0);
  const int exact = npu::compute_dtype(o.dtype);
  if (mask.view.immediate && mask.view.bits == 0) return scalar(npu_scalar{}, in.dtype);
  if (o.flags & NPU_OPERAND_IMMEDIATE) {
    const npu::Value value = npu::load_value(&o.addr, o.dtype, in.dtype);
    uint32_t pattern = static_cast<uint32_t>(value.u);
    if (in.dtype == NPU_F32) std::memcpy(&pattern, &value.f32, sizeof pattern);
    const Value made = in.dtype == NPU_I64 ? integer(value.i) : Value{immediate(pattern), in.dtype};
    return select(mask, made, scalar(npu_scalar{}, in.dtype));
  }
  const bool wide = o.dtype == NPU_I64;
  const bool plain = in.op == NPU_OP_LOAD && mask.view.immediate;
  if (!plain) guard(in, offset, mask);
  View index = offset.view;
  if (wide && !plain) {
    const Range range = range_of(offset);
    if (!offset.wide && (range.least < INT32_MIN / 2 || range.most > INT32_MAX / 2))
      throw Unsupported{"an offset of 2^30 elements of 8 bytes or more"};
    index = apply(NPU_I32, VEC_IADD, index, index).view;
  }
  View word[2];
  for (int i = 0; i < (wide ? 2 : 1); i++) {
    word[i] = operand(in.imm, space_, o.stride, i, plain);
    if (plain) continue;
    View sources[3] = {word[i], index, mask.view};
    if (index.immediate) {
      sources[0].addr += static_cast<uint64_t>(int64_t{static_cast<int32_t>(index.bits)} * type_width(word[i].type));
      sources[1] = immediate(mask.view.immediate ? mask.view.bits : 0);
      if (mask.view.immediate) {
        word[i] = sources[0];
        continue;
      }
    }
    const Space space = varying({&sources[0], &sources[1], &sources[2]});
    word[i] = contiguous_over(space, exact == NPU_F32 ? TYPE_F32 : TYPE_I32);
    emit(OP_GATHER, VEC_MOV, space, word[i], sources[0], sources[1], sources[2]);
  }
  Value made{word[0], exact};
  if (exact == NPU_I64) {
    made.wide = true;
    made.high = wide ? word[1] : immediate(0);  // of an u32
  }
  return convert(made, in.dtype);
}

// `store_at`, and `store` with a mask.
void Lowering::store_at(const npu_instr& in, const Value& given) {
  const npu_operand& o = command_.operands[in.imm];
  const bool computed = in.op == NPU_OP_STORE_AT;
  const int mode = computed ? in.flags : static_cast<int>(NPU_STORE_SET);
  const Value mask = mask_of(in), offset = computed ? values_[in.b] : integer(0);
  if (mask.view.immediate && mask.view.bits == 0) return;
  if (mask.view.immediate && !computed) return store(in.imm, given, false);
  const int exact = npu::compute_dtype(o.dtype);
  if (exact != NPU_I64 && hardware_type(o.dtype) < 0)
    throw Unsupported{std::string("a store as ") + npu::dtype_name(o.dtype)};
  if (mode != NPU_STORE_SET && (given.dtype != exact || exact == NPU_I64))
    throw Unsupported{std::string("a combination of ") + npu::dtype_name(given.dtype) + " with memory of " +
                      npu::dtype_name(o.dtype)};
  const Value value = convert(given, exact);
  guard(in, offset, mask);
  const bool wide = o.dtype == NPU_I64, real = exact == NPU_F32;
  View index = offset.view;
  if (wide) index = apply(NPU_I32, VEC_IADD, index, index).view;
  static constexpr uint32_t integers[] = {VEC_MOV, VEC_IADD, VEC_IMUL, VEC_IMAX, VEC_IMIN};
  static constexpr uint32_t floats[] = {VEC_MOV, VEC_ADD, VEC_MUL, VEC_MAX, VEC_MIN};
  for (int i = 0; i < (wide ? 2 : 1); i++) {
    View sources[3] = {i == 0 ? value.view : high_word(value), index, mask.view};
    settle(sources, 3);
    emit(OP_SCATTER, (real ? floats : integers)[mode], space_, operand(in.imm, space_, o.stride, i, false), sources[0],
         sources[1], sources[2]);
  }
}

}  // namespace rtl
