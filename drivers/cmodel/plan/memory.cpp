#include "drivers/cmodel/plan/planner.h"

namespace cmodel {

void Planner::find_last_loads() {
  for (size_t i = 0; i < in_.size(); ++i) {
    if (in_[i].op != NPU_OP_LOAD) continue;
    const auto same = [&](const npu_instr& in) { return in.op == NPU_OP_LOAD && in.imm == in_[i].imm; };
    const auto at = in_.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::any_of(in_.begin(), at, same) && std::none_of(at + 1, in_.end(), same)) plan_.ops[i].set(Trait::kLastLoad);
  }
}

// Stored by one segment, loaded by later ones, of which the last stores it again; in F32, and never otherwise.
void Planner::find_row_operand() {
  for (uint32_t operand = 0; operand < NPU_MAX_OPERANDS; ++operand) {
    std::vector<int> stores, loads;
    bool plain = true;
    for (size_t i = 0; i < in_.size(); ++i) {
      const npu_instr& in = in_[i];
      const bool load = in.op == NPU_OP_LOAD, store = in.op == NPU_OP_STORE;
      if (!load && !store && in.op != NPU_OP_LOAD_AT && in.op != NPU_OP_STORE_AT) continue;
      if (in.imm != operand) continue;
      plain &= (load || store) && in.mask == NPU_NO_VALUE && plan_.segments[segment_of_[i]].kind == NPU_SEGMENT_EACH &&
               (load ? in.dtype : in_[in.a].dtype) == NPU_F32;
      (load ? loads : stores).push_back(static_cast<int>(i));
    }
    if (!plain || stores.size() != 2 || loads.empty()) continue;
    if (segment_of_[loads.front()] <= segment_of_[stores[0]] || segment_of_[loads.back()] > segment_of_[stores[1]])
      continue;
    plan_.row_operand = static_cast<int>(operand);
    plan_.row_view = plan_.ops[stores[0]].view;
    plan_.ops[stores[0]].set(Trait::kRowBuffer);
    for (int i : loads) plan_.ops[i].set(Trait::kRowBuffer);
    return;
  }
}

// Offsets that are the sum of a row's and a column's part need not be added for every point.
void Planner::find_addresses(const Segment& segment) {
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
    if (!only) continue;
    op.set(Trait::kAddress);
    for (int id : {op.a, op.b}) last_[id] = std::max(last_[id], last_[i]);
  }
}

// Which kernels may write straight to the output, and which loads may hand out pointers into memory. Operands that are
// one and the same memory show in a command only, so here stand the numbers of those that must not be.
void Planner::find_hazards(Segment& segment) {
  struct Write {
    int when, store;
  };
  std::vector<Write> writes;
  const auto bit = [&](int i) { return uint64_t{1} << in_[i].imm; };
  for (int i = segment.begin; i < segment.end; ++i) {
    const npu_instr& in = in_[i];
    if (in.op != NPU_OP_STORE && in.op != NPU_OP_STORE_AT) continue;
    writes.push_back({i, i});
    if (in.op == NPU_OP_STORE_AT || in.mask != NPU_NO_VALUE || in.a < segment.begin) continue;
    Op& value = plan_.ops[in.a];
    const int from = defined_at(in.a);
    const bool writes_out = value.step == Step::kCompute || value.step == Step::kNormalize ||
                            value.step == Step::kLoadAt || loop_of_[in.a] != kNone;
    bool quiet = writes_out && value.store == kNone;
    uint64_t loaded = 0;
    for (int k = from + 1; k < i && quiet; ++k) {
      if (in_[k].op == NPU_OP_LOAD || in_[k].op == NPU_OP_LOAD_AT) loaded |= bit(k);
      quiet = in_[k].op != NPU_OP_STORE_AT && !(in_[k].op == NPU_OP_STORE && in_[k].imm == in.imm);
    }
    if (!quiet || (loaded & bit(i))) continue;
    value.store = static_cast<int16_t>(i);
    value.loaded_meanwhile = loaded;
    writes.push_back({from, i});
  }
  for (int i = segment.begin; i < segment.end; ++i) {
    if (in_[i].op != NPU_OP_LOAD && in_[i].op != NPU_OP_LOAD_AT) continue;
    for (const Write& write : writes)
      if (write.when > i && write.when < last_[i]) plan_.ops[i].overwritten |= bit(write.store);
  }
  // A value that went straight to memory must not be overwritten there while it is still read.
  for (int i = segment.begin; i < segment.end; ++i) {
    const int store = plan_.ops[i].store;
    if (store == kNone) continue;
    for (const Write& write : writes)
      if (write.when > defined_at(i) && write.when < last_[i] && write.store != store &&
          in_[write.store].imm == in_[store].imm)
        plan_.ops[i].store = kNone;
  }
}

// Values of a row are read by later segments, which may store over what they were loaded from.
void Planner::hold_loads(const Segment& segment) {
  for (int i = segment.begin; i < segment.end; ++i)
    if (in_[i].op == NPU_OP_LOAD || in_[i].op == NPU_OP_LOAD_AT) plan_.ops[i].overwritten = ~uint64_t{0};
}

// Values live from their definition to their last use; a slot is free again for the instruction behind that. Values
// that outlive their segment keep their slot.
void Planner::assign_slots(const Segment& segment) {
  // A combine segment runs in the middle of others and shares no slot with them.
  std::vector<int> own;
  std::vector<int>& free_slots = segment.kind == NPU_SEGMENT_COMBINE ? own : free_slots_;
  std::vector<std::vector<int>> dying(in_.size());
  std::vector<int> self(1);
  for (int at = segment.begin; at < segment.end; ++at) {
    const Step step = plan_.ops[at].step;
    self[0] = at;
    const std::vector<int>& defined = step == Step::kLoop ? plan_.loops[plan_.ops[at].d].outputs : self;
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

}  // namespace cmodel
