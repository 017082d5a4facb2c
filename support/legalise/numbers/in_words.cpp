#include "support/legalise/numbers/in_words.h"

#include "support/program/op_info.h"

namespace npu::legalise {

Operand word_of(const Operand& operand, int word) {
  Operand out = operand;
  out.form.dtype = NPU_I32;
  if (operand.immediate()) {
    const Part part = word == 0 ? Part::kLow : Part::kHigh;
    if (operand.place.kind == Place::kLiteral) out.form.addr = part_of(operand.form.addr, part);
    if (operand.place.kind == Place::kOperand) out.place.part = part;
    return out;
  }
  if (dtype_size(operand.form.dtype) != 8) return out;  // u32
  for (int64_t& stride : out.form.stride) stride *= 2;
  // The last word of a kind is the last but one of the memory, so that both kinds have the same limit.
  if (operand.form.limit > 0) out.form.limit = 2 * operand.form.limit - 1;
  out.place.offset += word * dtype_size(NPU_I32);
  return out;
}

InWords::InWords(const Draft& source, Draft& target)
    : source_(source),
      target_(target),
      writer_(source, target, static_cast<npu_segment>(source.program->instrs[0].imm)),
      emit_(writer_),
      numbers_(source.program->instrs.size()),
      tuples_(source.program->instrs.size()) {
  for (const npu_instr& in : source.program->instrs) {
    const bool custom = (in.op == NPU_OP_FOLD || in.op == NPU_OP_SCAN) && fold_kind(in) == NPU_FOLD_CUSTOM;
    if (!custom) continue;
    combines_.resize(std::max(combines_.size(), static_cast<size_t>(fold_combine(in)) + 1));
    combines_[static_cast<size_t>(fold_combine(in))] = layout(in);
  }
}

bool InWords::run() {
  try {
    begin(at(0));
    for (uint16_t id = 1; id < numbers_.size(); ++id) instruction(id);
    write_combines();
  } catch (const Unsupported&) {
    return false;
  }
  writer_.finish(source_.program->name);
  return true;
}

void InWords::begin(const npu_instr& in) {
  emit_.segment();
  combine_ += in.imm == NPU_SEGMENT_COMBINE;
}

void InWords::instruction(uint16_t id) {
  const npu_instr& in = at(id);
  switch (in.op) {
    case NPU_OP_SEGMENT:
      writer_.segment(static_cast<npu_segment>(in.imm));
      return begin(in);
    case NPU_OP_STORE:
    case NPU_OP_STORE_AT:
      return store(in);
    case NPU_OP_YIELD:
      return yield(in);
    case NPU_OP_FOLD:
    case NPU_OP_SCAN:
      return fold(id);
    case NPU_OP_GET:
      return;  // read where it is used
    default:
      numbers_[id] = defined(id);
  }
}

Number InWords::defined(uint16_t id) {
  const npu_instr& in = at(id);
  switch (in.op) {
    case NPU_OP_CONST:
      return constant(in);
    case NPU_OP_PARAM:
      return param(in);
    case NPU_OP_INDEX:
    case NPU_OP_SIZE:
      return coordinate(in);
    case NPU_OP_LOAD:
    case NPU_OP_LOAD_AT:
      return load(in);
    case NPU_OP_ACC:
      if (is_wide(in.dtype)) throw Unsupported{};
      return {in.dtype, emit_.op(NPU_OP_ACC, in.dtype)};
    case NPU_OP_ARG:
      return argument(in);
    case NPU_OP_CHECK_INDEX:
      return check_index(in);
    case NPU_OP_CAST:
      return cast(number(in.a), static_cast<int>(in.imm), in.dtype);
    case NPU_OP_BITCAST:
      return bitcast(in);
    case NPU_OP_PHILOX:
      return philox(in);
    case NPU_OP_WHERE:
      return choose(number(in.a).low, number(in.b), number(in.c));
    default:
      break;
  }
  const Number a = number(in.a);
  if (!is_wide(a.type)) return copied(in);
  if (in.op >= NPU_OP_EQ && in.op <= NPU_OP_GE) return {NPU_BOOL, compare(in.op, a, number(in.b))};
  if (in.op >= NPU_OP_ISNAN && in.op <= NPU_OP_SIGNBIT) return {NPU_BOOL, test(in.op, a)};
  std::vector<Number> arguments = {a};
  if (in.b != NPU_NO_VALUE) arguments.push_back(number(in.b));
  if (in.c != NPU_NO_VALUE) arguments.push_back(number(in.c));
  return arithmetic(in.op, arguments);
}

Number InWords::copied(const npu_instr& in) {
  const auto here = [&](uint16_t id) { return id == NPU_NO_VALUE ? id : number(id).low; };
  return {in.dtype, emit_.op(static_cast<npu_op>(in.op), in.dtype, here(in.a), here(in.b), here(in.c), in.imm)};
}

Number InWords::number(uint16_t id) {
  const npu_instr& in = at(id);
  if (in.op == NPU_OP_GET) return member(in.a, in.imm);
  if (in.op == NPU_OP_FOLD || in.op == NPU_OP_SCAN) return member(id, 0);
  return numbers_[id];
}

Number InWords::constant(const npu_instr& in) {
  npu_scalar bits{};
  bits.u = source_.program->consts[in.imm];
  const Value value = scalar_value(bits, in.dtype);
  if (!is_wide(in.dtype)) return {in.dtype, emit_.constant(in.dtype, value)};
  Number out{in.dtype, word(value.i), word(value.i >> 32), {}};
  if (in.dtype == NPU_I64) out.range = {value.i, value.i};
  return out;
}

Number InWords::param(const npu_instr& in) {
  const Param& given = source_.params[in.imm];
  if (!is_wide(in.dtype)) return {in.dtype, writer_.param(in.dtype, given)};
  if (given.part != Part::kWhole) throw Unsupported{};
  if (given.from < 0) {
    if (in.dtype == NPU_I64) return integer(given.value.i);
    return {in.dtype, word(given.value.i), word(given.value.i >> 32), {}};
  }
  Param low = given, high = given;
  low.part = Part::kLow;
  high.part = Part::kHigh;
  return {in.dtype, writer_.param(NPU_I32, low), writer_.param(NPU_I32, high), {}};
}

Number InWords::coordinate(const npu_instr& in) {
  const uint16_t here = emit_.op(static_cast<npu_op>(in.op), NPU_I32, NPU_NO_VALUE, NPU_NO_VALUE, NPU_NO_VALUE, in.imm);
  const int64_t size = source_.command.size[in.imm];
  if (in.dtype == NPU_I32) return {NPU_I32, here};
  if (size > INT32_MAX) throw Unsupported{};
  return extended(here, in.op == NPU_OP_SIZE ? Range{size, size} : Range{0, std::max<int64_t>(size - 1, 0)});
}

}  // namespace npu::legalise
