#include "drivers/cmodel/plan/planner.h"

#include "drivers/cmodel/plan/tuning.h"
#include "support/program/op_info.h"

namespace cmodel {

void Planner::cut() {
  for (size_t i = 0; i < in_.size(); ++i) {
    if (in_[i].op == NPU_OP_SEGMENT) {
      if (!plan_.segments.empty()) plan_.segments.back().end = static_cast<int>(i);
      Segment segment;
      segment.kind = static_cast<int>(in_[i].imm);
      segment.begin = static_cast<int>(i) + 1;
      if (segment.kind == NPU_SEGMENT_COMBINE) plan_.combines.push_back(static_cast<int>(plan_.segments.size()));
      plan_.segments.push_back(segment);
    }
    segment_of_[i] = static_cast<int>(plan_.segments.size()) - 1;
    each_argument(in_[i], [&](uint16_t id) { last_[id] = static_cast<int>(i); });
    plan_.each_cost += cost_of(in_[i]);
  }
  plan_.segments.back().end = static_cast<int>(in_.size());
  // Folds and scans are fed when the segment is through: what they read lives until then.
  for (size_t i = 0; i < in_.size(); ++i)
    if (in_[i].op == NPU_OP_FOLD || in_[i].op == NPU_OP_SCAN)
      each_argument(in_[i], [&](uint16_t id) { last_[id] = std::max(last_[id], plan_.segments[segment_of_[i]].end); });
}

int Planner::view(View view) {
  for (size_t k = 0; k < plan_.views.size(); ++k)
    if (plan_.views[k].kind == view.kind && plan_.views[k].number == view.number) return static_cast<int>(k);
  plan_.views.resize(plan_.views.size() + 1);  // push_back: GCC 13 warns of a write that does not happen
  plan_.views.back() = view;
  return static_cast<int>(plan_.views.size()) - 1;
}

namespace {

// Instructions that are no kernel, and what they address.
struct Special {
  enum Addressed : uint8_t { kNoView, kByOperand, kByIndex, kByAcc };
  uint8_t op;
  Step step;
  Addressed addressed = kNoView;
};

constexpr Special kSpecials[] = {
    {NPU_OP_SEGMENT, Step::kNothing},
    {NPU_OP_GET, Step::kNothing},
    {NPU_OP_CONST, Step::kNothing},
    {NPU_OP_PARAM, Step::kNothing},
    {NPU_OP_SIZE, Step::kNothing},
    {NPU_OP_ARG, Step::kNothing},
    {NPU_OP_YIELD, Step::kNothing},
    {NPU_OP_LOAD, Step::kLoad, Special::kByOperand},
    {NPU_OP_LOAD_AT, Step::kLoadAt, Special::kByOperand},
    {NPU_OP_STORE, Step::kStore, Special::kByOperand},
    {NPU_OP_STORE_AT, Step::kStoreAt, Special::kByOperand},
    {NPU_OP_INDEX, Step::kIndex, Special::kByIndex},
    {NPU_OP_ACC, Step::kAcc, Special::kByAcc},
    {NPU_OP_CHECK_INDEX, Step::kCheck},
    {NPU_OP_CAST, Step::kCast},
    {NPU_OP_BITCAST, Step::kBitcast},
    {NPU_OP_FOLD, Step::kFold},
    {NPU_OP_SCAN, Step::kScan},
};

View view_of(Special::Addressed addressed, uint32_t imm) {
  switch (addressed) {
    case Special::kByIndex:
      return {View::kIndex, static_cast<uint8_t>(imm)};
    case Special::kByAcc:
      return {View::kAcc, 0};
    default:
      return {View::kOperand, static_cast<uint8_t>(imm)};
  }
}

}  // namespace

void Planner::decode(int i) {
  const npu_instr& in = in_[i];
  Op& op = plan_.ops[i];
  op.op = in.op;
  op.dtype = in.dtype;
  op.flags = in.flags;
  op.mask = in.mask;
  op.imm = in.imm;
  // Unused arguments name an instruction that exists, so that reading their (unused) value is safe.
  op.a = in.a == NPU_NO_VALUE ? 0 : in.a;
  op.b = in.b == NPU_NO_VALUE ? 0 : in.b;
  op.c = in.c == NPU_NO_VALUE ? 0 : in.c;
  op.used = static_cast<uint8_t>((in.a != NPU_NO_VALUE) | (in.b != NPU_NO_VALUE) << 1 | (in.c != NPU_NO_VALUE) << 2);
  const auto special =
      std::find_if(std::begin(kSpecials), std::end(kSpecials), [&](const Special& s) { return s.op == in.op; });
  if (special == std::end(kSpecials)) {
    op.step = Step::kCompute;
    op.kernel = kernels().op[in.op][type_class(in.op == NPU_OP_WHERE ? in.dtype : in_[in.a].dtype)];
    return;
  }
  op.step = special->step;
  if (special->addressed != Special::kNoView) op.view = static_cast<int16_t>(view(view_of(special->addressed, in.imm)));
  note(i);
}

// What the plan and the segment keep of the instruction.
void Planner::note(int i) {
  const npu_instr& in = in_[i];
  Segment& segment = plan_.segments[segment_of_[i]];
  if (is_constant(in.op)) plan_.constants.push_back(i);
  plan_.indexes |= in.op == NPU_OP_INDEX;
  plan_.stores_at |= in.op == NPU_OP_STORE_AT;
  plan_.addresses |= in.op == NPU_OP_STORE_AT || in.op == NPU_OP_LOAD_AT;
  if (in.op == NPU_OP_ARG) segment.arg[in.imm] = i;
  if (in.op == NPU_OP_YIELD) segment.yield[in.imm] = in.a;
  if (in.op == NPU_OP_FOLD || in.op == NPU_OP_SCAN) segment.folds.push_back(make_fold(i));
}

FoldPlan Planner::make_fold(int i) const {
  const npu_instr& in = in_[i];
  FoldPlan fold;
  fold.at = i;
  fold.kind = npu::fold_kind(in);
  fold.members = npu::tuple_size(in);
  fold.args = in.c != NPU_NO_VALUE ? 3 : in.b != NPU_NO_VALUE ? 2 : 1;
  const uint16_t ids[] = {in.a, in.b, in.c};
  for (int k = 0; k < fold.members; ++k)
    fold.member_dtype[k] = k == 0 || fold.kind == NPU_FOLD_WELFORD ? in.dtype : in_[ids[k]].dtype;
  if (fold.kind == NPU_FOLD_CUSTOM) {
    int number = npu::fold_combine(in), seen = 0;
    for (size_t k = 0; k < plan_.segments.size(); ++k)
      if (plan_.segments[k].kind == NPU_SEGMENT_COMBINE && seen++ == number) fold.combine = static_cast<int>(k);
  }
  fold.gets[0].push_back(i);
  for (size_t k = static_cast<size_t>(i) + 1; k < in_.size(); ++k)
    if (in_[k].op == NPU_OP_GET && in_[k].a == i) fold.gets[in_[k].imm].push_back(static_cast<int>(k));
  return fold;
}

// What a segment reads from rows: results of folds of earlier segments, values of row segments.
void Planner::find_row_values(Segment& segment) {
  const int self = segment_of_[segment.begin - 1];
  for (int i = segment.begin; i < segment.end; ++i)
    each_argument(in_[i], [&](uint16_t id) {
      if (in_[i].op == NPU_OP_GET) return;
      const bool foreign = segment_of_[id] != self || in_[id].op == NPU_OP_GET;
      if (!foreign) return;
      segment.row_values_computed &=
          (plan_.ops[i].step == Step::kCompute || loop_of_[i] != kNone) && in_[i].mask == NPU_NO_VALUE;
      if (std::find(segment.row_values.begin(), segment.row_values.end(), id) == segment.row_values.end())
        segment.row_values.push_back(id);
    });
}

// Members of a compiled loop are computed where its last one stands.
void Planner::place_loops() {
  for (size_t g = 0; g < plan_.loops.size(); ++g) {
    const CompiledLoop& loop = plan_.loops[g];
    for (int i : loop.members) {
      plan_.ops[i].step = Step::kNothing;
      loop_of_[i] = static_cast<int>(g);
    }
    for (int i : loop.members) plan_.each_cost -= cost_of(in_[i]) * (kLoopShare - 1) / kLoopShare;
    plan_.ops[loop.at()].step = Step::kLoop;
    plan_.ops[loop.at()].d = static_cast<uint16_t>(g);
    for (int i : loop.inputs) last_[i] = std::max(last_[i], loop.at());
    // What a fold's loop has added up stands in a slot of the fold's own until the segment is through.
    for (int i : loop.folds) {
      plan_.ops[i].step = Step::kNothing;
      plan_.ops[i].slot = static_cast<int16_t>(plan_.slots++);
    }
  }
  if (plan_.loops.empty()) return;
  std::vector<int> uses(in_.size()), others(in_.size()), stores(in_.size());
  for (size_t i = 0; i < in_.size(); ++i)
    each_argument(in_[i], [&](uint16_t id) {
      const bool loop = loop_of_[i] != kNone || (in_[i].op == NPU_OP_FOLD && plan_.ops[i].step == Step::kNothing);
      ++uses[id];
      if (!loop) ++others[id];
      if (in_[i].op == NPU_OP_STORE && in_[i].a == id) ++stores[id];
    });
  for (size_t i = 0; i < in_.size(); ++i) {
    // What a row segment loads is read by other segments, which see one value per row.
    const bool plain = in_[i].op == NPU_OP_LOAD && in_[i].dtype == NPU_F32 && in_[i].mask == NPU_NO_VALUE &&
                       plan_.segments[segment_of_[i]].kind == NPU_SEGMENT_EACH;
    if (plain && others[i] == 0) plan_.ops[i].set(Trait::kOnlyLooped);
    if (loop_of_[i] != kNone && uses[i] == 1 && stores[i] == 1) plan_.ops[i].set(Trait::kOnlyStored);
  }
}

}  // namespace cmodel
