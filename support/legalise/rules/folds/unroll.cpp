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

namespace {

// Of the contract's limits, with room for what stands around the elements.
constexpr int64_t kOperands = NPU_MAX_OPERANDS - 4, kInstructions = NPU_MAX_INSTRS - 32;
// Elements whose moments are taken at once are all alive until their mean is known: so many values, or so many tuples.
constexpr int64_t kLiveValues = 48, kLiveTuples = 16;

bool keeps_values(const Plain& plain) {
  return plain.kind == NPU_FOLD_WELFORD && plain.instr.b == NPU_NO_VALUE && !plain.masked();
}

// What an element takes of a program.
struct Need {
  int64_t instructions = 0, operands = 0, shared = 0;  // shared: operands that all elements have in common
  bool fixed = false;                                  // an operand cannot be moved
};

Need need_of(const Draft& source, const Plain& plain, int dimension, bool in_order) {
  constexpr int64_t kPlace = 4, kGuard = 8;  // instructions that say where an element lies, and whether it is there
  const Program& program = *source.program;
  const std::vector<bool> needed = needs(program, {plain.id});
  Need need{.instructions = combine_length(source, plain, dimension) + (in_order ? kGuard : 1)};
  std::vector<bool> seen(source.operands.size(), false);
  for (size_t id = 0; id < needed.size(); ++id) {
    const npu_instr& instr = program.instrs[id];
    if (!needed[id]) continue;
    need.instructions += instr.op == NPU_OP_INDEX ? kPlace : 1;
    if (instr.op != NPU_OP_LOAD && instr.op != NPU_OP_LOAD_AT) continue;
    const npu_operand& form = source.operands[instr.imm].form;
    const bool moves = form.stride[dimension] != 0;
    // A limit counts from the operand's address, which moves with the element.
    need.fixed |= instr.op == NPU_OP_LOAD_AT && form.limit && moves;
    if (!seen[instr.imm]) ++(moves ? need.operands : need.shared);
    seen[instr.imm] = true;
  }
  if (source.command.kind == NPU_SCAN) {
    need.operands += static_cast<int64_t>(plain.stores.size());
    need.instructions += static_cast<int64_t>(plain.stores.size());
  }
  return need;
}

}  // namespace

Cut share_out(const Draft& source, const Plain& plain, int dimension, int64_t widest, bool in_order) {
  Cut out{.dimension = dimension, .n = source.command.size[dimension], .fan = 1, .in_order = in_order};
  const Need need = need_of(source, plain, dimension, in_order);
  const bool scan = source.command.kind == NPU_SCAN;
  const auto members = static_cast<int64_t>(Combiner::types(plain).size());
  const int64_t results = std::max(scan ? members : static_cast<int64_t>(plain.stores.size()), members);
  const bool moments = plain.kind == NPU_FOLD_WELFORD && !scan;
  if (moments) widest = std::min(widest, keeps_values(plain) ? kLiveValues : kLiveTuples);
  const int64_t room = kOperands - need.shared - results;
  const int64_t most =
      std::min({widest, room / std::max<int64_t>(need.operands, 1), kInstructions / need.instructions});
  if (most < 2 || need.fixed) return out;
  // What is left after the first round are tuples. As few rounds as that takes, and in those as few elements at a time.
  const int64_t later = std::clamp<int64_t>(kOperands / members / (scan ? 2 : 1), 2, moments ? kLiveTuples : most);
  int rounds = 1;
  const auto reaches = [&](int64_t first, int64_t others) {
    int64_t count = first;
    for (int k = 1; k < rounds && count < out.n; ++k) count *= others;
    return count >= out.n;
  };
  while (!reaches(most, later)) ++rounds;
  for (out.fan = 2; out.fan < most && !reaches(out.fan, std::min(out.fan, later));) ++out.fan;
  out.blocks = (out.n + out.fan - 1) / out.fan;
  if (out.in_order) out.fan = std::min(out.fan, out.n);
  return out;
}

namespace {

// What a tuple holds beside its first members, of each element of a block.
struct Element {
  Tuple tuple;
  uint16_t there;  // NPU_NO_VALUE: certainly
};

// Mean, m2 and count of a whole block: its sums, as a fold of values has them.
Tuple block_moments(const std::vector<Element>& elements, Writer& writer, const Plain& plain) {
  const int type = plain.types[0];
  const bool values = keeps_values(plain);
  const auto op = [&](npu_op op, uint16_t a, uint16_t b) { return writer.emit(op, type, a, b); };
  const uint16_t zero = writer.real(type, 0), one = writer.real(type, 1);
  const auto only = [&](uint16_t value, const Element& element) {
    if (element.there == NPU_NO_VALUE) return value;
    return writer.emit(NPU_OP_WHERE, type, element.there, value, zero);
  };
  int64_t certain = 0;
  uint16_t sum = zero, count = NPU_NO_VALUE, m2 = zero;
  for (const Element& element : elements) {
    const uint16_t n = values ? one : element.tuple[2];
    sum = op(NPU_OP_ADD, sum, only(values ? element.tuple[0] : op(NPU_OP_MUL, element.tuple[0], n), element));
    if (values && element.there == NPU_NO_VALUE)
      ++certain;
    else
      count = count == NPU_NO_VALUE ? only(n, element) : op(NPU_OP_ADD, count, only(n, element));
  }
  const uint16_t sure = writer.real(type, static_cast<double>(certain));
  count = count == NPU_NO_VALUE ? sure : certain ? op(NPU_OP_ADD, count, sure) : count;
  uint16_t mean = op(NPU_OP_DIV, sum, count);
  if (!values) mean = writer.emit(NPU_OP_WHERE, type, writer.emit(NPU_OP_EQ, NPU_BOOL, count, zero), zero, mean);
  for (const Element& element : elements) {
    const uint16_t d = op(NPU_OP_SUB, element.tuple[0], mean);
    uint16_t square = op(NPU_OP_MUL, d, d);
    if (!values) square = op(NPU_OP_ADD, element.tuple[1], op(NPU_OP_MUL, square, element.tuple[2]));
    m2 = op(NPU_OP_ADD, m2, only(square, element));
  }
  return {mean, m2, count};
}

}  // namespace

Tuple fold_block(Combiner& combiner, Unroll& unroll, Writer& writer, const Plain& plain, const Cut& cut) {
  Tuple all;
  std::vector<Element> elements;
  const bool moments = plain.kind == NPU_FOLD_WELFORD && cut.copies() > 1;
  for (int64_t k = 0; k < cut.copies(); ++k) {
    const uint16_t there = unroll.at(k);
    Tuple one = moments && keeps_values(plain) ? Tuple{writer.value(plain.instr.a)} : combiner.element();
    if (moments) {
      elements.push_back({std::move(one), there});
      continue;
    }
    if (k == 0 && plain.kind == NPU_FOLD_SUM && is_float(plain.types[0])) all = combiner.identity();  // 0 + -0 is 0
    if (!all.empty()) one = combiner.combine(all, one);
    all = there == NPU_NO_VALUE ? one : combiner.choose(there, one, all);
  }
  unroll.end();
  writer.forget();
  return moments ? block_moments(elements, writer, plain) : all;
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
  constexpr const char* kPrepare[] = {kValueFirst, kArgAsMax, kMomentsAsSums, kTurned, kLogicAsExtremes, kLogicAsCount};
  return std::any_of(std::begin(kPrepare), std::end(kPrepare), [&](const char* name) { return came_by(draft, name); });
}

}  // namespace npu::legalise
