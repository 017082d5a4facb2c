#include "support/legalise/draft/writer.h"

#include <bit>
#include <cstring>
#include <utility>

#include "support/program/op_info.h"

namespace npu::legalise {
namespace {

bool same(const npu_operand& a, const npu_operand& b) {
  return std::memcmp(&a, &b, sizeof(npu_operand)) == 0;
}

bool same(const Param& a, const Param& b) {
  return a.from == b.from && a.part == b.part && (a.from >= 0 || a.value.u == b.value.u);
}

}  // namespace

Writer::Writer(const Draft& source, Draft& target, npu_segment first) : source_(source), target_(target) {
  const size_t count = source.program ? source.program->instrs.size() : 0;
  values_.assign(count, NPU_NO_VALUE);
  lasting_.assign(count, false);
  needed_.assign(count, false);
  emit(NPU_OP_SEGMENT, NPU_DTYPE_NONE, NPU_NO_VALUE, NPU_NO_VALUE, NPU_NO_VALUE, first);
}

void Writer::provide(uint16_t id, uint16_t here) {
  if (provided(id)) flush();  // sinks so far are those of the value so far
  values_[id] = here;
  lasting_[id] = true;
}

void Writer::forget() {
  flush();
  for (size_t k = 0; k < values_.size(); ++k)
    if (!lasting_[k]) values_[k] = NPU_NO_VALUE;
}

void Writer::segment(npu_segment kind) {
  forget();
  emit(NPU_OP_SEGMENT, NPU_DTYPE_NONE, NPU_NO_VALUE, NPU_NO_VALUE, NPU_NO_VALUE, kind);
}

uint16_t Writer::value(uint16_t id) {
  if (id == NPU_NO_VALUE) return NPU_NO_VALUE;
  if (values_[id] == NPU_NO_VALUE) values_[id] = add(moved(source_.program->instrs[id]));
  return values_[id];
}

// What was asked for so far is copied as it would have been then.
void Writer::map_dimensions(std::vector<int> dimension) {
  flush();
  dimensions_ = std::move(dimension);
}

void Writer::map_operands(std::function<Operand(const Operand&)> become) {
  flush();
  become_ = std::move(become);
}

void Writer::guard(uint16_t mask) {
  flush();
  guard_ = mask;
}

void Writer::sink(uint16_t id) {
  need(id);
}

void Writer::need(uint16_t id) {
  if (id == NPU_NO_VALUE || provided(id) || needed_[id]) return;
  needed_[id] = true;
  const npu_instr& in = source_.program->instrs[id];
  for (const uint16_t argument : {in.a, in.b, in.c, in.mask}) need(argument);
}

void Writer::flush() {
  for (uint16_t id = 0; id < needed_.size(); ++id) {
    if (!needed_[id]) continue;
    needed_[id] = false;
    if (source_.program->instrs[id].dtype == NPU_DTYPE_NONE)
      add(moved(source_.program->instrs[id]));
    else
      value(id);
  }
}

npu_instr Writer::moved(npu_instr instr) {
  instr.a = value(instr.a);
  instr.b = value(instr.b);
  instr.c = value(instr.c);
  instr.mask = value(instr.mask);
  if (guard_ != NPU_NO_VALUE && op_info(instr.op).uses & kUsesMask)
    instr.mask = instr.mask == NPU_NO_VALUE ? guard_ : emit(NPU_OP_AND, NPU_BOOL, instr.mask, guard_);
  switch (instr.op) {
    case NPU_OP_CONST:
      instr.imm = constant(source_.program->consts[instr.imm]);
      break;
    case NPU_OP_PARAM: {
      const uint16_t there = param(instr.dtype, source_.params[instr.imm]);
      instr.imm = program_.instrs[there].imm;
      break;
    }
    case NPU_OP_LOAD:
    case NPU_OP_LOAD_AT:
    case NPU_OP_STORE:
    case NPU_OP_STORE_AT:
      instr.imm = operand(become_ ? become_(source_.operands[instr.imm]) : source_.operands[instr.imm]);
      break;
    case NPU_OP_INDEX:
    case NPU_OP_SIZE:
      if (!dimensions_.empty()) instr.imm = static_cast<uint32_t>(dimensions_[instr.imm]);
      break;
    default:
      break;
  }
  return instr;
}

void Writer::keep(uint16_t id) {
  const npu_instr& in = source_.program->instrs[id];
  const uint16_t here = add(moved(in));
  if (in.dtype != NPU_DTYPE_NONE) provide(id, here);
}

void rewrite(const Draft& source, Draft& target, const Replace& replace) {
  const std::vector<npu_instr>& instrs = source.program->instrs;
  Writer writer(source, target, static_cast<npu_segment>(instrs[0].imm));
  for (uint16_t id = 1; id < instrs.size(); ++id) {
    if (instrs[id].op == NPU_OP_SEGMENT)
      writer.segment(static_cast<npu_segment>(instrs[id].imm));
    else if (!replace(writer, id, instrs[id]))
      writer.keep(id);
  }
  writer.finish(source.program->name);
}

uint16_t Writer::add(npu_instr instr) {
  program_.instrs.push_back(instr);
  return static_cast<uint16_t>(program_.instrs.size() - 1);
}

uint16_t Writer::emit(npu_op op, int dtype, uint16_t a, uint16_t b, uint16_t c, uint32_t imm, uint16_t mask,
                      int flags) {
  return add(
      {static_cast<uint8_t>(op), static_cast<uint8_t>(dtype), static_cast<uint8_t>(flags), 0, a, b, c, mask, imm});
}

uint16_t Writer::load(const Operand& from, int dtype, uint16_t mask) {
  return emit(NPU_OP_LOAD, dtype, NPU_NO_VALUE, NPU_NO_VALUE, NPU_NO_VALUE, operand(from), mask);
}

uint16_t Writer::load_at(const Operand& from, int dtype, uint16_t offset, uint16_t mask) {
  return emit(NPU_OP_LOAD_AT, dtype, offset, NPU_NO_VALUE, NPU_NO_VALUE, operand(from), mask);
}

void Writer::store(const Operand& to, uint16_t value, uint16_t mask) {
  emit(NPU_OP_STORE, NPU_DTYPE_NONE, value, NPU_NO_VALUE, NPU_NO_VALUE, operand(to), mask);
}

uint16_t Writer::integer(int dtype, int64_t value) {
  return emit(NPU_OP_CONST, dtype, NPU_NO_VALUE, NPU_NO_VALUE, NPU_NO_VALUE, constant(static_cast<uint64_t>(value)));
}

uint16_t Writer::real(int dtype, double value) {
  return emit(NPU_OP_CONST, dtype, NPU_NO_VALUE, NPU_NO_VALUE, NPU_NO_VALUE, constant(std::bit_cast<uint64_t>(value)));
}

uint16_t Writer::param(int dtype, const Param& wanted) {
  uint32_t number = 0;
  while (number < target_.params.size() && !same(target_.params[number], wanted)) ++number;
  if (number == target_.params.size()) target_.params.push_back(wanted);
  return emit(NPU_OP_PARAM, dtype, NPU_NO_VALUE, NPU_NO_VALUE, NPU_NO_VALUE, number);
}

uint16_t Writer::index(int dimension, int dtype) {
  return emit(NPU_OP_INDEX, dtype, NPU_NO_VALUE, NPU_NO_VALUE, NPU_NO_VALUE, static_cast<uint32_t>(dimension));
}

uint32_t Writer::operand(const Operand& wanted) {
  uint32_t number = 0;
  for (; number < target_.operands.size(); ++number) {
    const Operand& there = target_.operands[number];
    if (there.place == wanted.place && same(there.form, wanted.form)) return number;
  }
  target_.operands.push_back(wanted);
  return number;
}

uint32_t Writer::constant(uint64_t bits) {
  uint32_t number = 0;
  while (number < program_.consts.size() && program_.consts[number] != bits) ++number;
  if (number == program_.consts.size()) program_.consts.push_back(bits);
  return number;
}

void Writer::finish(const std::string& name) {
  flush();
  program_.name = name;
  program_.operand_count = static_cast<uint32_t>(target_.operands.size());
  program_.param_count = static_cast<uint32_t>(target_.params.size());
  target_.program = std::make_shared<const Program>(std::move(program_));
}

}  // namespace npu::legalise
