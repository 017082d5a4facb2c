// Writes programs for tests, one call per instruction.
#pragma once
#include <bit>

#include "npu/program.h"
#include "support/program/program.h"

namespace driver_test {

using Id = uint16_t;
constexpr Id none = NPU_NO_VALUE;

struct Builder {
  npu::Program program;

  explicit Builder(const char* name = "test", npu_segment first = NPU_SEGMENT_EACH) {
    program.name = name;
    segment(first);
  }

  Id emit(int op, int dtype, Id a = none, Id b = none, Id c = none, uint32_t imm = 0, int flags = 0, Id mask = none) {
    const auto byte = [](int value) { return static_cast<uint8_t>(value); };
    program.instrs.push_back({byte(op), byte(dtype), byte(flags), 0, a, b, c, mask, imm});
    return static_cast<Id>(program.instrs.size() - 1);
  }
  int type(Id id) const { return program.instrs[id].dtype; }

  void segment(npu_segment kind) { emit(NPU_OP_SEGMENT, NPU_DTYPE_NONE, none, none, none, kind); }
  Id load(uint32_t operand, int dtype, Id mask = none) {
    return emit(NPU_OP_LOAD, dtype, none, none, none, use(operand), 0, mask);
  }
  Id load_at(uint32_t operand, int dtype, Id offset, Id mask = none) {
    return emit(NPU_OP_LOAD_AT, dtype, offset, none, none, use(operand), 0, mask);
  }
  void store(uint32_t operand, Id value, Id mask = none) {
    emit(NPU_OP_STORE, NPU_DTYPE_NONE, value, none, none, use(operand), 0, mask);
  }
  void store_at(uint32_t operand, Id value, Id offset, int mode, Id mask = none) {
    emit(NPU_OP_STORE_AT, NPU_DTYPE_NONE, value, offset, none, use(operand), mode, mask);
  }
  Id constant(int dtype, double value) {
    const bool real = dtype == NPU_F32 || dtype == NPU_F64;
    program.consts.push_back(real ? std::bit_cast<uint64_t>(value)
                                  : static_cast<uint64_t>(static_cast<int64_t>(value)));
    return emit(NPU_OP_CONST, dtype, none, none, none, static_cast<uint32_t>(program.consts.size() - 1));
  }
  Id param(int dtype, uint32_t number) {
    program.param_count = std::max(program.param_count, number + 1);
    return emit(NPU_OP_PARAM, dtype, none, none, none, number);
  }
  Id index(uint32_t dimension, int dtype = NPU_I64) { return emit(NPU_OP_INDEX, dtype, none, none, none, dimension); }
  Id size(uint32_t dimension, int dtype = NPU_I64) { return emit(NPU_OP_SIZE, dtype, none, none, none, dimension); }
  Id op(int op, Id a, Id b = none, Id c = none) { return emit(op, type(a), a, b, c); }
  Id compare(int op, Id a, Id b = none) { return emit(op, NPU_BOOL, a, b); }
  Id where(Id condition, Id yes, Id no) { return emit(NPU_OP_WHERE, type(yes), condition, yes, no); }
  Id cast(Id a, int to, int through = NPU_DTYPE_NONE) {
    return emit(NPU_OP_CAST, to, a, none, none, static_cast<uint32_t>(through));
  }
  Id check_index(Id index, Id size, int flags, Id mask = none) {
    return emit(NPU_OP_CHECK_INDEX, type(index), index, size, none, 0, flags, mask);
  }
  Id fold(int kind, Id a, Id b = none, Id c = none, Id mask = none, uint32_t combine = 0) {
    return emit(NPU_OP_FOLD, type(a), a, b, c, static_cast<uint32_t>(kind) | combine << 8, 0, mask);
  }
  Id scan(int kind, Id a, Id b = none, Id c = none, uint32_t combine = 0) {
    return emit(NPU_OP_SCAN, type(a), a, b, c, static_cast<uint32_t>(kind) | combine << 8);
  }
  Id get(Id tuple, uint32_t member, int dtype) { return emit(NPU_OP_GET, dtype, tuple, none, none, member); }
  Id acc(int dtype) { return emit(NPU_OP_ACC, dtype); }
  Id arg(uint32_t number, int dtype) { return emit(NPU_OP_ARG, dtype, none, none, none, number); }
  void yield(uint32_t member, Id value) { emit(NPU_OP_YIELD, NPU_DTYPE_NONE, value, none, none, member); }

 private:
  uint32_t use(uint32_t operand) {
    program.operand_count = std::max(program.operand_count, operand + 1);
    return operand;
  }
};

}  // namespace driver_test
