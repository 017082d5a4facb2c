// The interpreter of programs: points, segments and instructions. Folds are in fold.cpp.
#include "support/reference/machine.h"

#include <algorithm>

#include "support/program/op_info.h"
#include "support/reference/evaluate.h"

namespace npu {

Machine::Machine(const npu_command& command, const npu_program_desc& program, Memory& memory)
    : command_(command),
      program_(program),
      memory_(memory),
      values_(program.instr_count),
      fold_place_(program.instr_count),
      offsets_(command.operand_count) {
  Segment* current = nullptr;
  for (uint16_t i = 0; i < program.instr_count; ++i) {
    const npu_instr& in = program.instrs[i];
    switch (in.op) {
      case NPU_OP_SEGMENT: {
        auto& list = in.imm == NPU_SEGMENT_COMBINE ? combines_ : segments_;
        list.emplace_back();
        current = &list.back();
        current->kind = static_cast<int>(in.imm);
        break;
      }
      case NPU_OP_CONST: {
        npu_scalar scalar;
        scalar.u = program.consts[in.imm];
        values_[i] = scalar_value(scalar, in.dtype);
        break;
      }
      case NPU_OP_PARAM:
        values_[i] = scalar_value(command.params[in.imm], in.dtype);
        break;
      case NPU_OP_SIZE:
        values_[i] = convert(value_of(command.size[in.imm]), NPU_I64, in.dtype);
        break;
      case NPU_OP_GET: {
        auto [segment, position] = fold_place_[in.a];
        segments_[segment].folds[position].gets.emplace_back(i, static_cast<int>(in.imm));
        break;
      }
      case NPU_OP_FOLD:
      case NPU_OP_SCAN: {
        Fold fold;
        fold.id = i;
        fold.segment = static_cast<int>(segments_.size()) - 1;
        fold.kind = fold_kind(in);
        fold.members = tuple_size(in);
        fold.combine = fold_combine(in);
        const uint16_t ids[] = {in.a, in.b, in.c};
        for (int k = 0; k < fold.members; ++k)
          fold.dtype[k] = fold.kind == NPU_FOLD_WELFORD ? int{in.dtype} : type(ids[k]);
        static constexpr uint8_t kOp[] = {NPU_OP_ADD, NPU_OP_MUL, NPU_OP_MAX, NPU_OP_MIN,
                                          NPU_OP_AND, NPU_OP_OR,  NPU_OP_XOR};
        if (fold.kind <= NPU_FOLD_XOR) fold.op.op = kOp[fold.kind];
        fold.op.dtype = in.dtype;
        fold_place_[i] = {fold.segment, static_cast<int>(current->folds.size())};
        current->folds.push_back(std::move(fold));
        current->body.push_back(i);
        break;
      }
      case NPU_OP_LOAD:
      case NPU_OP_STORE:
        memory.expect_space(in.imm, command.size, command.rank, in.op == NPU_OP_STORE);
        current->body.push_back(i);
        break;
      case NPU_OP_LOAD_AT:
      case NPU_OP_STORE_AT: {
        const int64_t limit = command.operands[in.imm].limit;
        if (limit) memory.expect_range(in.imm, 0, limit - 1, false);
        if (limit && in.op == NPU_OP_STORE_AT) memory.expect_range(in.imm, 0, limit - 1, true);
        current->body.push_back(i);
        break;
      }
      default:
        current->body.push_back(i);
    }
  }
}

bool Machine::step(int first, int last) {
  for (int d = last - 1; d >= first; --d) {
    const bool more = ++point_[d] < command_.size[d];
    const int64_t moved = more ? 1 : 1 - command_.size[d];
    for (uint32_t k = 0; k < command_.operand_count; ++k)
      offsets_[k] =
          static_cast<int64_t>(static_cast<uint64_t>(offsets_[k]) +
                               static_cast<uint64_t>(moved) * static_cast<uint64_t>(command_.operands[k].stride[d]));
    if (more) return true;
    point_[d] = 0;
  }
  return false;
}

void Machine::run(int inner) {
  const int first = command_.rank - inner;
  if (points(command_.size, first) == 0) return;
  do {
    run_row(first);
  } while (step(0, first));
}

void Machine::run_row(int first) {
  const int64_t elements = points(command_.size + first, command_.rank - first);
  for (Segment& segment : segments_) {
    if (segment.kind == NPU_SEGMENT_ROW) {
      run_body(segment, 0);
      continue;
    }
    for (Fold& fold : segment.folds) begin(fold, elements);
    if (elements) {
      int64_t element = 0;
      do {
        // Scans of earlier segments are values of this element.
        for (const Segment& earlier : segments_) {
          if (&earlier == &segment) break;
          for (const Fold& fold : earlier.folds)
            if (!fold.history.empty()) publish(fold, &fold.history[static_cast<size_t>(element * fold.members)]);
        }
        run_body(segment, element);
        ++element;
      } while (step(first, command_.rank));
    }
    for (Fold& fold : segment.folds) finish(fold);
  }
}

void Machine::run_point(const int64_t* point, Value acc) {
  acc_ = acc;
  std::copy_n(point, command_.rank, point_);
  for (uint32_t k = 0; k < command_.operand_count; ++k)
    offsets_[k] = offset_of(point, command_.operands[k].stride, command_.rank);
  for (const Segment& segment : segments_) run_body(segment, 0);
}

void Machine::run_body(const Segment& segment, int64_t element) {
  for (uint16_t id : segment.body) execute(id, element);
}

// load_at and store_at: the current point's offset plus the computed one, inside the operand's limit.
int64_t Machine::address(const npu_instr& in, uint16_t offset) const {
  const int64_t at = static_cast<int64_t>(static_cast<uint64_t>(offsets_[in.imm]) + values_[offset].u);
  const int64_t limit = command_.operands[in.imm].limit;
  if (limit && (at < 0 || at >= limit))
    throw Failure{NPU_ERROR_ADDRESS, "expected an offset of 0 to " + std::to_string(limit - 1) + " in operand " +
                                         std::to_string(in.imm) + ", got " + std::to_string(at)};
  return at;
}

void Machine::store_at(const npu_instr& in) {
  static constexpr uint8_t kOp[] = {0, NPU_OP_ADD, NPU_OP_MUL, NPU_OP_MAX, NPU_OP_MIN};
  const int64_t at = address(in, in.b);
  const int dtype = type(in.a);
  Value value = values_[in.a];
  if (in.flags != NPU_STORE_SET) {
    npu_instr op{};
    op.op = kOp[in.flags];
    op.dtype = static_cast<uint8_t>(dtype);
    value = evaluate(op, dtype, memory_.load(in.imm, at, dtype), value, Value{});
  }
  memory_.store(in.imm, at, value, dtype);
}

Value Machine::check_index(const npu_instr& in) const {
  const int64_t size = values_[in.b].i, given = values_[in.a].i;
  Value index = values_[in.a];
  if ((in.flags & NPU_INDEX_WRAP) && given < 0) {
    npu_instr add{};
    add.op = NPU_OP_ADD;
    index = evaluate(add, in.dtype, index, values_[in.b], Value{});
  }
  if ((in.flags & NPU_INDEX_CHECK) && (index.i < 0 || index.i >= size))
    throw Failure{NPU_ERROR_INDEX, "index " + std::to_string(given) + " is out of bounds for dimension with size " +
                                       std::to_string(size)};
  return index;
}

void Machine::execute(uint16_t id, int64_t element) {
  const npu_instr& in = program_.instrs[id];
  Value& out = values_[id];
  const bool off = in.mask != NPU_NO_VALUE && !values_[in.mask].i;
  switch (in.op) {
    case NPU_OP_INDEX:
      out = convert(value_of(point_[in.imm]), NPU_I64, in.dtype);
      return;
    case NPU_OP_LOAD:
      out = off ? Value{} : memory_.load(in.imm, offsets_[in.imm], in.dtype);
      return;
    case NPU_OP_LOAD_AT:
      out = off ? Value{} : memory_.load(in.imm, address(in, in.a), in.dtype);
      return;
    case NPU_OP_STORE:
      if (!off) memory_.store(in.imm, offsets_[in.imm], values_[in.a], type(in.a));
      return;
    case NPU_OP_STORE_AT:
      if (!off) store_at(in);
      return;
    case NPU_OP_CHECK_INDEX:
      out = off ? values_[in.a] : check_index(in);
      return;
    case NPU_OP_FOLD:
    case NPU_OP_SCAN:
      if (!off) {
        auto [segment, position] = fold_place_[id];
        accumulate(segments_[segment].folds[position], in, element);
      }
      return;
    case NPU_OP_ACC:
      out = acc_;
      return;
    case NPU_OP_ARG:
      out = combine_args_[in.imm];
      return;
    case NPU_OP_YIELD:
      combine_results_[in.imm] = values_[in.a];
      return;
    default: {
      const Value none{};
      out = evaluate(in, type(in.a), values_[in.a], in.b == NPU_NO_VALUE ? none : values_[in.b],
                     in.c == NPU_NO_VALUE ? none : values_[in.c]);
    }
  }
}

}  // namespace npu
