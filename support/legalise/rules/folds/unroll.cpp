#include <algorithm>

#include "support/legalise/rules/folds/pieces.h"
#include "support/program/op_info.h"

namespace npu::legalise {

Unroll::Unroll(Writer& writer, const Draft& source, const Plain& plain, const Cut& cut)
    : writer_(writer), cut_(cut), instrs_(source.program->instrs) {
  const std::vector<bool> needed = needs(*source.program, {plain.id});
  for (uint16_t id = 0; id < instrs_.size(); ++id) {
    const bool place = instrs_[id].op == NPU_OP_INDEX || instrs_[id].op == NPU_OP_SIZE;
    if (needed[id] && place && static_cast<int>(instrs_[id].imm) == cut.dimension) places_.push_back(id);
  }
}

uint16_t Unroll::position(int64_t k, int dtype) {
  const uint16_t first = writer_.integer(dtype, k * cut_.next());
  if (cut_.blocks == 1) return first;
  uint16_t block = writer_.index(cut_.dimension, dtype);
  if (cut_.step() != 1) block = writer_.emit(NPU_OP_MUL, dtype, block, writer_.integer(dtype, cut_.step()));
  return k ? writer_.emit(NPU_OP_ADD, dtype, block, first) : block;
}

Operand Unroll::moved(const Operand& operand, int64_t k) const {
  if (cut_.dimension < 0 || operand.immediate()) return operand;
  Operand out = operand.moved(k * cut_.next() * operand.form.stride[cut_.dimension]);
  out.form.stride[cut_.dimension] *= cut_.step();
  return out;
}

uint16_t Unroll::at(int64_t k) {
  writer_.guard(NPU_NO_VALUE);
  writer_.forget();
  writer_.map_operands([this, k](const Operand& operand) { return moved(operand, k); });
  for (const uint16_t id : places_) {
    const int dtype = instrs_[id].dtype;
    writer_.provide(id, instrs_[id].op == NPU_OP_SIZE ? writer_.integer(dtype, cut_.n) : position(k, dtype));
  }
  if (!cut_.partial(k)) return NPU_NO_VALUE;
  const uint16_t place = position(k, NPU_I64), most = writer_.integer(NPU_I64, cut_.n);
  const uint16_t there = writer_.emit(NPU_OP_LT, NPU_BOOL, place, most);
  writer_.guard(there);
  return there;
}

void Unroll::end() {
  writer_.guard(NPU_NO_VALUE);
  writer_.map_operands({});
}

Cut cut(const Draft& source, const Plain& plain, int dimension, int64_t widest, bool in_order) {
  // Of the contract's limits, with room for what stands around the elements.
  constexpr int64_t kOperands = NPU_MAX_OPERANDS - 6, kInstructions = NPU_MAX_INSTRS - 32;
  constexpr int64_t kOfPlace = 8;  // instructions that say where an element lies, and whether it is there
  const Program& program = *source.program;
  const std::vector<bool> needed = needs(program, {plain.id});
  int64_t length = combine_length(source, plain) + kOfPlace, moving = 0;
  std::vector<bool> seen(source.operands.size(), false);
  for (size_t id = 0; id < needed.size(); ++id) {
    const npu_instr& instr = program.instrs[id];
    length += needed[id];
    if (!needed[id] || (instr.op != NPU_OP_LOAD && instr.op != NPU_OP_LOAD_AT)) continue;
    const npu_operand& form = source.operands[instr.imm].form;
    // A limit counts from the operand's address, which moves with the element.
    if (instr.op == NPU_OP_LOAD_AT && form.limit && form.stride[dimension]) widest = 1;
    moving += !seen[instr.imm];
    seen[instr.imm] = true;
  }
  const bool scan = source.command.kind == NPU_SCAN;
  const auto results = static_cast<int64_t>(plain.stores.size());
  const int64_t each = std::max<int64_t>(moving + (scan ? results : 0), 1);
  const int64_t room = kOperands - (scan ? 3 : std::max<int64_t>(results, 4));
  const int64_t most = std::min({widest, room / each, kInstructions / (length + (scan ? results : 0))});
  Cut out{.dimension = dimension, .n = source.command.size[dimension], .fan = 1, .in_order = in_order};
  if (most < 2) return out;
  // As few rounds as that takes, and in those as few elements at a time.
  int rounds = 1;
  const auto reaches = [&](int64_t fan) {
    int64_t count = 1;
    for (int k = 0; k < rounds && count < out.n; ++k) count *= fan;
    return count >= out.n;
  };
  while (!reaches(most)) ++rounds;
  for (out.fan = std::min<int64_t>(2, most); !reaches(out.fan);) ++out.fan;
  out.blocks = (out.n + out.fan - 1) / out.fan;
  if (out.in_order) out.fan = std::min(out.fan, out.n);
  return out;
}

Tuple fold_block(Combiner& combiner, Unroll& unroll, Writer& writer, const Plain& plain, const Cut& cut) {
  Tuple all;
  for (int64_t k = 0; k < cut.copies(); ++k) {
    const uint16_t there = unroll.at(k);
    Tuple one = combiner.element();
    if (k == 0 && plain.kind == NPU_FOLD_SUM && is_float(plain.types[0])) all = combiner.identity();  // 0 + -0 is 0
    if (!all.empty()) one = combiner.combine(all, one);
    all = there == NPU_NO_VALUE ? one : combiner.choose(there, one, all);
  }
  unroll.end();
  writer.forget();
  return all;
}

Draft fold_again(const Draft& refused, const Plain& plain, const std::vector<int64_t>& size,
                 const std::vector<Operand>& tuple, const std::vector<Stored>& stores) {
  const bool reduce = refused.command.kind == NPU_REDUCE;
  const int inner_rank = static_cast<int>(size.size()) - kept_rank(refused);
  Draft draft(static_cast<npu_command_kind>(refused.command.kind), size, inner_rank);
  Writer writer(refused, draft);
  FoldCopier copier(writer, *refused.program);
  std::vector<uint16_t> loaded;
  for (const Operand& member : tuple) loaded.push_back(writer.load(member, compute_dtype(member.form.dtype)));
  uint16_t mask = NPU_NO_VALUE;
  if (Combiner::flagged(plain)) {
    mask = loaded.back();
    loaded.pop_back();
  }
  const uint16_t fold = copier.fold(plain.id, loaded, mask);
  writer.segment(reduce ? NPU_SEGMENT_ROW : NPU_SEGMENT_EACH);
  for (const Stored& stored : stores)
    writer.store(stored.to, get(writer, fold, stored.member, plain.types[stored.member]));
  copier.combines();
  writer.finish(refused.program->name);
  return draft;
}

bool for_own_folds(const Draft& draft) {
  return came_by(draft, kValueFirst) || came_by(draft, kArgAsMax) || came_by(draft, kMomentsAsSums);
}

}  // namespace npu::legalise
