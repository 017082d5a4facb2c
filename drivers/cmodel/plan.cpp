#include "drivers/cmodel/plan.h"

#include <algorithm>

#include "drivers/cmodel/job.h"
#include "drivers/cmodel/plan_groups.h"
#include "support/op_info.h"

namespace cmodel {
namespace {

// Rough cost of one instruction per element in picoseconds, one core, data in the first cache.
int cost_of(const npu_instr& in) {
  const bool wide = in.dtype == NPU_F64;
  switch (in.op) {
    case NPU_OP_SEGMENT:
    case NPU_OP_CONST:
    case NPU_OP_PARAM:
    case NPU_OP_SIZE:
    case NPU_OP_GET:
      return 0;
    case NPU_OP_LOAD:
    case NPU_OP_STORE:
      return 150;
    case NPU_OP_LOAD_AT:
    case NPU_OP_STORE_AT:
    case NPU_OP_CHECK_INDEX:
      return 1000;
    case NPU_OP_PHILOX:
      return 8000;
    case NPU_OP_EXP:
    case NPU_OP_EXP2:
    case NPU_OP_EXPM1:
    case NPU_OP_LOG:
    case NPU_OP_LOG1P:
    case NPU_OP_SIN:
    case NPU_OP_COS:
    case NPU_OP_TANH:
    case NPU_OP_SIGMOID:
    case NPU_OP_ERF:
      return wide ? 10000 : 1000;
    case NPU_OP_DIV:
    case NPU_OP_SQRT:
    case NPU_OP_RSQRT:
    case NPU_OP_RECIPROCAL:
      return in.dtype == NPU_F32 ? 400 : 1500;
    case NPU_OP_FLOORDIV:
    case NPU_OP_MOD:
    case NPU_OP_FMOD:
    case NPU_OP_POW:
    case NPU_OP_FREXP_M:
    case NPU_OP_FREXP_E:
    case NPU_OP_LDEXP:
      return 8000;
    default:
      return in.op >= NPU_OP_LOG2 ? (in.op >= NPU_OP_ERFINV ? 40000 : 12000) : 200;
  }
}

class Planner {
 public:
  Planner(const std::vector<npu_instr>& instrs, const std::vector<uint64_t>& consts, Plan& plan)
      : in_(instrs), plan_(plan) {
    plan_.consts = consts;
  }

  void run() {
    plan_.ops.resize(in_.size());
    last_.assign(in_.size(), 0);
    segment_of_.assign(in_.size(), 0);
    group_of_.assign(in_.size(), kNone);
    cut();
    for (size_t i = 0; i < in_.size(); ++i) decode(static_cast<int>(i));
    place_groups();
    for (Segment& segment : plan_.segments) {
      find_row_values(segment);
      if (segment.kind == NPU_SEGMENT_EACH && !has_group(segment)) fuse(segment);
      if (segment.kind == NPU_SEGMENT_EACH) find_addresses(segment);
      if (segment.kind == NPU_SEGMENT_EACH) pair_philox(segment);
      if (segment.kind == NPU_SEGMENT_EACH)
        find_hazards(segment);
      else
        hold_loads(segment);
      assign_slots(segment);
      find_plain_fold(segment);
    }
    find_last_loads();
    find_row_operand();
    find_direct();
    if (plan_.segments.size() == 1 && plan_.direct.kind == Direct::kNot) find_invariants();
  }

 private:
  bool defines(int i) const { return in_[i].dtype != NPU_DTYPE_NONE; }
  static bool is_constant(int op) { return op == NPU_OP_CONST || op == NPU_OP_PARAM || op == NPU_OP_SIZE; }

  template <class F>
  static void each_argument(const npu_instr& in, F f) {
    for (uint16_t id : {in.a, in.b, in.c, in.mask})
      if (id != NPU_NO_VALUE) f(id);
  }

  void cut() {
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
        each_argument(in_[i],
                      [&](uint16_t id) { last_[id] = std::max(last_[id], plan_.segments[segment_of_[i]].end); });
  }

  int view(View::Kind kind, int number) {
    for (size_t k = 0; k < plan_.views.size(); ++k)
      if (plan_.views[k].kind == kind && plan_.views[k].number == number) return static_cast<int>(k);
    plan_.views.push_back({kind, static_cast<uint8_t>(number)});
    return static_cast<int>(plan_.views.size()) - 1;
  }

  void decode(int i) {
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
        op.view = static_cast<int16_t>(view(View::kOperand, operand));
        break;
      case NPU_OP_STORE:
        op.step = Step::kStore;
        op.view = static_cast<int16_t>(view(View::kOperand, operand));
        break;
      case NPU_OP_STORE_AT:
        op.step = Step::kStoreAt;
        op.view = static_cast<int16_t>(view(View::kOperand, operand));
        plan_.stores_at = true;
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

  FoldPlan make_fold(int i) const {
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
  void find_row_values(Segment& segment) {
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
  void place_groups() {
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
  }
  bool has_group(const Segment& segment) const {
    return std::any_of(plan_.groups.begin(), plan_.groups.end(),
                       [&](const Group& group) { return group.at() >= segment.begin && group.at() < segment.end; });
  }
  int defined_at(int i) const { return group_of_[i] == kNone ? i : plan_.groups[group_of_[i]].at(); }

  // What depends on nothing but constants and unmasked loads of operands that the program does not write.
  void find_invariants() {
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
        if (plan_.ops[i].fused) continue;
        fixed[i] = true;
        pays |= step != Step::kLoad;
        plan_.ops[i].cost = cost_of(in);
        plan_.invariants.push_back(static_cast<int>(i));
      }
    }
    if (!pays) plan_.invariants.clear();
  }

  // Neighbours that run as one kernel: two of add, sub, mul, max; exp(a - b); erf(a * b). The first one's value must
  // have no other use; its arguments then live until the second runs.
  void fuse(const Segment& segment) {
    const Kernels& k = kernels();
    std::vector<int> uses(in_.size());
    for (const npu_instr& in : in_) each_argument(in, [&](uint16_t id) { ++uses[id]; });
    auto row_of = [](int op) { return op == NPU_OP_ADD ? 0 : op == NPU_OP_SUB ? 1 : op == NPU_OP_MUL ? 2 : kNone; };
    for (int i = segment.begin; i < segment.end; ++i) {
      Op& op = plan_.ops[i];
      if (op.step != Step::kCompute || op.dtype != NPU_F32) continue;
      for (const bool second : {true, false}) {
        if (second && in_[i].b == NPU_NO_VALUE) continue;
        const int from = second ? in_[i].b : in_[i].a;
        Op& inner = plan_.ops[from];
        const int row = row_of(inner.op);
        if (from < segment.begin || uses[from] != 1 || inner.step != Step::kCompute || inner.dtype != NPU_F32 ||
            row == kNone || inner.fused)
          continue;
        Kernel kernel = nullptr;
        uint16_t other = 0;
        if (op.op == NPU_OP_EXP && inner.op == NPU_OP_SUB) {
          kernel = k.exp_sub;
        } else if (op.op == NPU_OP_ERF && inner.op == NPU_OP_MUL) {
          kernel = k.erf_mul;
        } else if (row_of(op.op) != kNone || (op.op == NPU_OP_MAX && !second)) {
          kernel = k.pair[row][op.op == NPU_OP_MAX ? 4 : op.op == NPU_OP_SUB && second ? 3 : row_of(op.op)];
          other = second ? in_[i].a : in_[i].b;
        }
        if (!kernel) continue;
        op.kernel = kernel;
        op.used = op.op == NPU_OP_EXP || op.op == NPU_OP_ERF ? 3 : 7;
        op.a = inner.a;
        op.b = inner.b;
        op.c = other;
        op.fused = true;
        for (int id : {inner.a, inner.b}) last_[id] = std::max(last_[id], i);
        inner.step = Step::kNothing;
        break;
      }
    }
    // gelu: (1 + erf(x * k)) * (x * h) with constants, in one loop.
    for (int i = segment.begin; i < segment.end; ++i) {
      Op& op = plan_.ops[i];
      if (op.step != Step::kCompute || op.kernel != k.pair[0][2] || in_[op.a].op != NPU_OP_CONST ||
          plan_.consts[in_[op.a].imm] != __builtin_bit_cast(uint64_t, 1.0))
        continue;
      Op &erf = plan_.ops[op.b], &half = plan_.ops[op.c];
      if (op.b < segment.begin || op.c < segment.begin || erf.kernel != k.erf_mul || half.step != Step::kCompute ||
          half.op != NPU_OP_MUL || half.fused || half.dtype != NPU_F32 || half.a != erf.a || uses[op.b] != 1 ||
          uses[op.c] != 1 || in_[erf.b].op != NPU_OP_CONST || in_[half.b].op != NPU_OP_CONST)
        continue;
      erf.step = half.step = Step::kNothing;
      op.kernel = k.gelu;
      op.used = 7;
      op.a = erf.a;
      op.b = erf.b;
      op.c = half.b;
      last_[op.a] = std::max(last_[op.a], i);
    }
    // Normalisation, the end of every norm: two such pairs in one loop.
    for (int i = segment.begin; i < segment.end; ++i) {
      Op& op = plan_.ops[i];
      if (op.step != Step::kCompute || op.kernel != k.pair[2][0]) continue;
      for (const uint16_t from : {op.a, op.b}) {
        Op& inner = plan_.ops[from];
        if (from < segment.begin || uses[from] != 1 || inner.step != Step::kCompute || inner.kernel != k.pair[1][2])
          continue;
        op.step = Step::kNormalize;
        op.d = from == op.a ? op.b : op.a;
        op.e = op.c;
        op.a = inner.a;
        op.b = inner.b;
        op.c = inner.c;
        for (int id : {inner.a, inner.b, inner.c}) last_[id] = std::max(last_[id], i);
        inner.step = Step::kNothing;
        break;
      }
    }
  }

  void find_last_loads() {
    for (size_t i = 0; i < in_.size(); ++i) {
      if (in_[i].op != NPU_OP_LOAD) continue;
      const auto same = [&](const npu_instr& in) { return in.op == NPU_OP_LOAD && in.imm == in_[i].imm; };
      const auto at = in_.begin() + static_cast<std::ptrdiff_t>(i);
      plan_.ops[i].last_load = std::any_of(in_.begin(), at, same) && std::none_of(at + 1, in_.end(), same);
    }
  }

  // Stored by one segment, loaded by later ones, of which the last stores it again; in F32, and never otherwise.
  void find_row_operand() {
    for (uint32_t operand = 0; operand < NPU_MAX_OPERANDS; ++operand) {
      std::vector<int> stores, loads;
      bool plain = true;
      for (size_t i = 0; i < in_.size(); ++i) {
        const npu_instr& in = in_[i];
        const bool load = in.op == NPU_OP_LOAD, store = in.op == NPU_OP_STORE;
        if (!load && !store && in.op != NPU_OP_LOAD_AT && in.op != NPU_OP_STORE_AT) continue;
        if (in.imm != operand) continue;
        plain &= (load || store) && in.mask == NPU_NO_VALUE &&
                 plan_.segments[segment_of_[i]].kind == NPU_SEGMENT_EACH &&
                 (load ? in.dtype : in_[in.a].dtype) == NPU_F32;
        (load ? loads : stores).push_back(static_cast<int>(i));
      }
      if (!plain || stores.size() != 2 || loads.empty()) continue;
      if (segment_of_[loads.front()] <= segment_of_[stores[0]] || segment_of_[loads.back()] > segment_of_[stores[1]])
        continue;
      plan_.row_operand = static_cast<int>(operand);
      plan_.row_view = plan_.ops[stores[0]].view;
      plan_.ops[stores[0]].row_buffer = true;
      for (int i : loads) plan_.ops[i].row_buffer = true;
      return;
    }
  }

  // Two words of one counter cost as much as one.
  void pair_philox(const Segment& segment) {
    for (int i = segment.begin; i + 1 < segment.end; ++i) {
      Op &first = plan_.ops[i], &second = plan_.ops[i + 1];
      if (first.step != Step::kCompute || first.op != NPU_OP_PHILOX || second.op != NPU_OP_PHILOX ||
          first.a != second.a || first.b != second.b || first.c != second.c)
        continue;
      first.step = Step::kPhilox;
      first.d = static_cast<uint16_t>(i + 1);
      second.step = Step::kNothing;
      second.slot = static_cast<int16_t>(plan_.slots++);  // written before its turn, so never shared
      ++i;
    }
  }

  // Offsets that are the sum of a row's and a column's part need not be added for every point.
  void find_addresses(const Segment& segment) {
    for (int i = segment.begin; i < segment.end; ++i) {
      Op& op = plan_.ops[i];
      if (op.step != Step::kCompute || op.op != NPU_OP_ADD || op.dtype != NPU_I64) continue;
      bool only = true;
      for (size_t k = 0; k < in_.size() && only; ++k) {
        const npu_instr& in = in_[k];
        each_argument(in, [&](uint16_t id) {
          if (id != i) return;
          only &= (in.op == NPU_OP_LOAD_AT && in.mask != i) || (in.op == NPU_OP_STORE_AT && in.a != i && in.mask != i);
        });
      }
      op.address = only;
      if (only)
        for (int id : {op.a, op.b}) last_[id] = std::max(last_[id], last_[i]);
    }
  }

  // Which kernels may write straight to the output, and which loads may hand out pointers into memory.
  void find_hazards(Segment& segment) {
    std::vector<int> writes;  // when memory changes
    for (int i = segment.begin; i < segment.end; ++i) {
      const npu_instr& in = in_[i];
      if (in.op != NPU_OP_STORE && in.op != NPU_OP_STORE_AT) continue;
      int when = i;
      if (in.op == NPU_OP_STORE && in.mask == NPU_NO_VALUE && in.a >= segment.begin) {
        Op& value = plan_.ops[in.a];
        const int from = defined_at(in.a);
        const bool writes_out = value.step == Step::kCompute || value.step == Step::kNormalize ||
                                value.step == Step::kLoadAt || group_of_[in.a] != kNone;
        bool quiet = writes_out && value.store == kNone;
        for (int k = from + 1; k < i && quiet; ++k)
          quiet = in_[k].op != NPU_OP_LOAD && in_[k].op != NPU_OP_LOAD_AT && in_[k].op != NPU_OP_STORE_AT &&
                  !(in_[k].op == NPU_OP_STORE && in_[k].imm == in.imm);
        if (quiet) {
          value.store = static_cast<int16_t>(i);
          when = from;
        }
      }
      writes.push_back(when);
    }
    for (int i = segment.begin; i < segment.end; ++i) {
      if (in_[i].op != NPU_OP_LOAD && in_[i].op != NPU_OP_LOAD_AT) continue;
      for (int when : writes)
        if (when > i && when < last_[i]) plan_.ops[i].keeps_raw = false;
      plan_.hazards |= !plan_.ops[i].keeps_raw;
    }
    // A value that went straight to memory must not be overwritten there while it is still read.
    for (int i = segment.begin; i < segment.end; ++i) {
      const int store = plan_.ops[i].store;
      if (store == kNone) continue;
      for (int when : writes)
        if (when > defined_at(i) && when < last_[i] && when != store) plan_.ops[i].store = kNone;
    }
  }

  // Values of a row are read by later segments, which may store over what they were loaded from.
  void hold_loads(const Segment& segment) {
    for (int i = segment.begin; i < segment.end; ++i)
      if (in_[i].op == NPU_OP_LOAD || in_[i].op == NPU_OP_LOAD_AT) plan_.ops[i].keeps_raw = false;
  }

  // Values live from their definition to their last use; a slot is free again for the instruction behind that. Values
  // that outlive their segment keep their slot.
  void assign_slots(const Segment& segment) {
    // A combine segment runs in the middle of others and shares no slot with them.
    std::vector<int> own;
    std::vector<int>& free_slots = segment.kind == NPU_SEGMENT_COMBINE ? own : free_slots_;
    std::vector<std::vector<int>> dying(in_.size());
    std::vector<int> self(1);
    for (int at = segment.begin; at < segment.end; ++at) {
      const Step step = plan_.ops[at].step;
      self[0] = at;
      const std::vector<int>& defined = step == Step::kGroup ? plan_.groups[plan_.ops[at].d].outputs : self;
      const bool wants = defines(at) && step != Step::kNothing && step != Step::kFold;
      for (int i : defined) {
        if (!wants) break;
        Op& op = plan_.ops[i];
        if (free_slots.empty()) {
          op.slot = static_cast<int16_t>(plan_.slots++);
        } else {
          op.slot = static_cast<int16_t>(free_slots.back());
          free_slots.pop_back();
        }
        // Yields of a combine segment and what other segments read stays.
        bool stays = last_[i] >= segment.end || op.step == Step::kScan;
        for (int y : segment.yield) stays |= y == i;
        if (!stays) dying[std::max(last_[i], at)].push_back(op.slot);
      }
      for (int slot : dying[at]) free_slots.push_back(slot);
    }
  }

  // A segment of one load and one fold of it: the fold can read memory itself.
  void find_plain_fold(Segment& segment) const {
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

  void find_direct() {
    if (plan_.segments.size() != 1 || plan_.segments[0].kind != NPU_SEGMENT_EACH || in_.size() > 12) return;
    const npu_instr& store = in_.back();
    if (store.op != NPU_OP_STORE || store.mask != NPU_NO_VALUE) return;
    Direct direct;
    direct.store_operand = static_cast<uint8_t>(store.imm);
    const npu_instr& value = in_[store.a];
    direct.value_dtype = value.dtype;
    auto argument = [&](uint16_t id) {
      const npu_instr& in = in_[id];
      Direct::Arg arg{Direct::Arg::kOperand, static_cast<uint8_t>(in.imm), in.dtype};
      if (in.op == NPU_OP_CONST)
        arg.kind = Direct::Arg::kConst;
      else if (in.op == NPU_OP_PARAM)
        arg.kind = Direct::Arg::kParam;
      else if (in.op == NPU_OP_ACC)
        arg.kind = Direct::Arg::kAcc;
      else if (in.op != NPU_OP_LOAD || in.mask != NPU_NO_VALUE)
        return false;
      direct.arg[direct.args++] = arg;
      return true;
    };
    if (value.op == NPU_OP_LOAD || value.op == NPU_OP_CONST || value.op == NPU_OP_PARAM || value.op == NPU_OP_ACC) {
      if (!argument(store.a)) return;
      direct.kind = Direct::kMove;
    } else {
      const Op& op = plan_.ops[store.a];
      if (op.step != Step::kCompute || op.op == NPU_OP_PHILOX || store.a != in_.size() - 2) return;
      const uint16_t ids[] = {op.a, op.b, op.c};
      for (int k = 0; k < 3; ++k)
        if ((op.used >> k & 1) && !argument(ids[k])) return;
      direct.kind = Direct::kCompute;
      direct.kernel = op.kernel;
      direct.op = op.fused ? uint8_t{NPU_OP_SEGMENT} : value.op;  // no fused kernel reads bf16 or f16
      direct.arg_dtype = in_[op.a].dtype;
    }
    // Other instructions than these would be lost; what a fused kernel computes is none.
    for (size_t i = 1; i + 1 < in_.size(); ++i)
      if (i != store.a && plan_.ops[i].step != Step::kNothing && in_[i].op != NPU_OP_LOAD && in_[i].op != NPU_OP_ACC)
        return;
    plan_.direct = direct;
  }

  const std::vector<npu_instr>& in_;
  Plan& plan_;
  std::vector<int> last_;
  std::vector<int> segment_of_;
  std::vector<int> group_of_;
  std::vector<int> free_slots_;
};

}  // namespace

// Passes over a tile.
static int passes(const Plan& plan) {
  return static_cast<int>(std::count_if(plan.ops.begin(), plan.ops.end(), [](const Op& op) {
    return op.step == Step::kCompute || op.step == Step::kNormalize || op.step == Step::kGroup ||
           op.step == Step::kFold;
  }));
}

std::shared_ptr<const Plan> make_plan(const npu::Program& program) {
  auto plan = std::make_shared<Plan>();
  Planner(program.instrs, program.consts, *plan).run();
  if (passes(*plan) < 2) return plan;
  const std::vector<npu_instr> ordered = stores_last(program.instrs);
  auto compiled = std::make_shared<Plan>();
  compiled->groups = find_groups(ordered);
  if (compiled->groups.empty()) return plan;
  Planner(ordered, program.consts, *compiled).run();
  // What a norm takes per row (rsqrt of a variance) is cheap outside a loop and costly in it.
  const int gain = passes(*plan) - passes(*compiled);
  const bool norm =
      std::any_of(plan->ops.begin(), plan->ops.end(), [](const Op& op) { return op.step == Step::kNormalize; });
  return gain > (norm ? 4 : 0) ? compiled : plan;
}

}  // namespace cmodel
