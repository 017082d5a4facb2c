#include "drivers/cmodel/plan/planner.h"

namespace cmodel {

// A segment of one load and one fold of it: the fold can read memory itself.
void Planner::find_plain_fold(Segment& segment) const {
  if (segment.kind != NPU_SEGMENT_EACH || segment.folds.size() != 1) return;
  const FoldPlan& fold = segment.folds[0];
  const npu_instr& in = in_[fold.at];
  const bool extreme = fold.kind == NPU_FOLD_ARGMAX || fold.kind == NPU_FOLD_ARGMIN;
  if (in.mask != NPU_NO_VALUE || (fold.kind > NPU_FOLD_XOR && fold.kind != NPU_FOLD_WELFORD && !extreme)) return;
  if (extreme ? in_[in.b].op != NPU_OP_INDEX || in_[in.b].dtype != NPU_I64 : fold.args != 1) return;
  if (in_[in.a].op != NPU_OP_LOAD || in_[in.a].mask != NPU_NO_VALUE || in.a < segment.begin) return;
  if (in.dtype == NPU_BOOL || in_[in.a].dtype != in.dtype) return;
  for (int i = segment.begin; i < segment.end; ++i)
    if (i != in.a && i != fold.at && !(extreme && i == in.b) && in_[i].op != NPU_OP_GET && !is_constant(in_[i].op))
      return;
  if (extreme) segment.plain_index = in.b;
  segment.plain_load = in.a;
}

void Planner::find_one_instruction() {
  if (plan_.segments.size() != 1 || plan_.segments[0].kind != NPU_SEGMENT_EACH || in_.size() > 12) return;
  const npu_instr& store = in_.back();
  if (store.op != NPU_OP_STORE || store.mask != NPU_NO_VALUE) return;
  OneInstruction one;
  one.store_operand = static_cast<uint8_t>(store.imm);
  const npu_instr& value = in_[store.a];
  one.value_dtype = value.dtype;
  auto argument = [&](uint16_t id) {
    const npu_instr& in = in_[id];
    OneInstruction::Argument arg{OneInstruction::Argument::kOperand, static_cast<uint8_t>(in.imm), in.dtype};
    if (in.op == NPU_OP_CONST)
      arg.kind = OneInstruction::Argument::kConst;
    else if (in.op == NPU_OP_PARAM)
      arg.kind = OneInstruction::Argument::kParam;
    else if (in.op == NPU_OP_ACC)
      arg.kind = OneInstruction::Argument::kAcc;
    else if (in.op != NPU_OP_LOAD || in.mask != NPU_NO_VALUE)
      return false;
    one.arg[one.args++] = arg;
    return true;
  };
  if (value.op == NPU_OP_LOAD || value.op == NPU_OP_CONST || value.op == NPU_OP_PARAM || value.op == NPU_OP_ACC) {
    if (!argument(store.a)) return;
    one.kind = OneInstruction::kMove;
  } else {
    const Op& op = plan_.ops[store.a];
    if (op.step != Step::kCompute || op.op == NPU_OP_PHILOX || store.a != in_.size() - 2) return;
    const uint16_t ids[] = {op.a, op.b, op.c};
    for (int k = 0; k < 3; ++k)
      if ((op.used >> k & 1) && !argument(ids[k])) return;
    one.kind = OneInstruction::kCompute;
    one.kernel = op.kernel;
    one.op = op.is(Trait::kFused) ? uint8_t{NPU_OP_SEGMENT} : value.op;  // no fused kernel reads bf16 or f16
    one.arg_dtype = in_[op.a].dtype;
  }
  // Other instructions than these would be lost; what a fused kernel computes is none.
  for (size_t i = 1; i + 1 < in_.size(); ++i)
    if (i != store.a && plan_.ops[i].step != Step::kNothing && in_[i].op != NPU_OP_LOAD && in_[i].op != NPU_OP_ACC)
      return;
  plan_.one_instruction = one;
}

// What depends on nothing but constants and unmasked loads of operands that the program does not write.
void Planner::find_invariants() {
  std::vector<char> fixed(in_.size()), written(NPU_MAX_OPERANDS);
  bool pays = false;
  for (const npu_instr& in : in_)
    if (in.op == NPU_OP_STORE || in.op == NPU_OP_STORE_AT) written[in.imm] = true;
  for (size_t i = 0; i < in_.size(); ++i) {
    const npu_instr& in = in_[i];
    const Step step = plan_.ops[i].step;
    bool same = true;
    each_argument(in, [&](uint16_t id) { same &= fixed[id] != 0; });
    if (is_constant(in.op)) {
      fixed[i] = true;
    } else if (same && (step == Step::kCompute || step == Step::kCast ||
                        (step == Step::kLoad && in.mask == NPU_NO_VALUE && !written[in.imm]))) {
      if (plan_.ops[i].is(Trait::kFused)) continue;
      fixed[i] = true;
      pays |= step != Step::kLoad;
      plan_.ops[i].cost = cost_of(in);
      plan_.invariants.push_back(static_cast<int>(i));
    }
  }
  if (!pays) plan_.invariants.clear();
}

}  // namespace cmodel
