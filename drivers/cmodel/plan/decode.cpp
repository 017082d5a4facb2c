#include "drivers/cmodel/plan/planner.h"

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

int Planner::view(View::Kind kind, int number) {
  for (size_t k = 0; k < plan_.views.size(); ++k)
    if (plan_.views[k].kind == kind && plan_.views[k].number == number) return static_cast<int>(k);
  plan_.views.resize(plan_.views.size() + 1);  // push_back: GCC 13 warns of a write that does not happen
  plan_.views.back() = {kind, static_cast<uint8_t>(number)};
  return static_cast<int>(plan_.views.size()) - 1;
}

void Planner::decode(int i) {
  const npu_instr& in = in_[i];
  Op& op = plan_.ops[i];
  Segment& segment = plan_.segments[segment_of_[i]];
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
  const int operand = static_cast<int>(in.imm);
  switch (in.op) {
    case NPU_OP_SEGMENT:
    case NPU_OP_GET:
      break;
    case NPU_OP_CONST:
    case NPU_OP_PARAM:
    case NPU_OP_SIZE:
      plan_.constants.push_back(i);
      break;
    case NPU_OP_ARG:
      segment.arg[in.imm] = i;
      break;
    case NPU_OP_YIELD:
      segment.yield[in.imm] = in.a;
      break;
    case NPU_OP_LOAD:
      op.step = Step::kLoad;
      op.view = static_cast<int16_t>(view(View::kOperand, operand));
      break;
    case NPU_OP_LOAD_AT:
      op.step = Step::kLoadAt;
      plan_.addresses = true;
      op.view = static_cast<int16_t>(view(View::kOperand, operand));
      break;
    case NPU_OP_STORE:
      op.step = Step::kStore;
      op.view = static_cast<int16_t>(view(View::kOperand, operand));
      break;
    case NPU_OP_STORE_AT:
      op.step = Step::kStoreAt;
      op.view = static_cast<int16_t>(view(View::kOperand, operand));
      plan_.stores_at = plan_.addresses = true;
      break;
    case NPU_OP_INDEX:
      plan_.indexes = true;
      op.step = Step::kIndex;
      op.view = static_cast<int16_t>(view(View::kIndex, operand));
      break;
    case NPU_OP_ACC:
      op.step = Step::kAcc;
      op.view = static_cast<int16_t>(view(View::kAcc, 0));
      break;
    case NPU_OP_CHECK_INDEX:
      op.step = Step::kCheck;
      break;
    case NPU_OP_CAST:
      op.step = Step::kCast;
      break;
    case NPU_OP_BITCAST:
      op.step = Step::kBitcast;
      break;
    case NPU_OP_FOLD:
    case NPU_OP_SCAN:
      op.step = in.op == NPU_OP_FOLD ? Step::kFold : Step::kScan;
      segment.folds.push_back(make_fold(i));
      break;
    default: {
      op.step = Step::kCompute;
      const int type = in.op == NPU_OP_WHERE ? in.dtype : in_[in.a].dtype;
      op.kernel = kernels().op[in.op][type_class(type)];
    }
  }
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
          (plan_.ops[i].step == Step::kCompute || group_of_[i] != kNone) && in_[i].mask == NPU_NO_VALUE;
      if (std::find(segment.row_values.begin(), segment.row_values.end(), id) == segment.row_values.end())
        segment.row_values.push_back(id);
    });
}

// Members of a compiled loop are computed where its last one stands.
void Planner::place_groups() {
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    const Group& group = plan_.groups[g];
    for (int i : group.members) {
      plan_.ops[i].step = Step::kNothing;
      group_of_[i] = static_cast<int>(g);
    }
    // In registers an instruction costs a fraction of a pass over the first cache.
    for (int i : group.members) plan_.each_cost -= cost_of(in_[i]) * 3 / 4;
    plan_.ops[group.at()].step = Step::kGroup;
    plan_.ops[group.at()].d = static_cast<uint16_t>(g);
    for (int i : group.inputs) last_[i] = std::max(last_[i], group.at());
    // What a fold's loop has added up stands in a slot of the fold's own until the segment is through.
    for (int i : group.folds) {
      plan_.ops[i].step = Step::kNothing;
      plan_.ops[i].slot = static_cast<int16_t>(plan_.slots++);
    }
  }
  if (plan_.groups.empty()) return;
  std::vector<int> uses(in_.size()), others(in_.size()), stores(in_.size());
  for (size_t i = 0; i < in_.size(); ++i)
    each_argument(in_[i], [&](uint16_t id) {
      const bool loop = group_of_[i] != kNone || (in_[i].op == NPU_OP_FOLD && plan_.ops[i].step == Step::kNothing);
      ++uses[id];
      if (!loop) ++others[id];
      if (in_[i].op == NPU_OP_STORE && in_[i].a == id) ++stores[id];
    });
  for (size_t i = 0; i < in_.size(); ++i) {
    // What a row segment loads is read by other segments, which see one value per row.
    const bool plain = in_[i].op == NPU_OP_LOAD && in_[i].dtype == NPU_F32 && in_[i].mask == NPU_NO_VALUE &&
                       plan_.segments[segment_of_[i]].kind == NPU_SEGMENT_EACH;
    plan_.ops[i].in_loops = plain && others[i] == 0;
    plan_.ops[i].only_stored = group_of_[i] != kNone && uses[i] == 1 && stores[i] == 1;
  }
}

}  // namespace cmodel
