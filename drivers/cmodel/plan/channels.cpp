#include "drivers/cmodel/plan/channels.h"

#include <algorithm>

#include "drivers/cmodel/plan/tuning.h"

namespace cmodel {
namespace {

template <class F>
void each_argument(npu_instr& in, F f) {
  for (uint16_t* id : {&in.a, &in.b, &in.c, &in.mask})
    if (*id != NPU_NO_VALUE) f(*id);
}

constexpr uint16_t kUnplaced = 0xfffe;

// Copies instructions of one program, and what they need, into another.
class Copy {
 public:
  Copy(const npu::Program& from, std::string name) : from_(from), place_(from.instrs.size(), kUnplaced) {
    to_.name = std::move(name);
    to_.consts = from.consts;
    to_.operand_count = from.operand_count;
    to_.param_count = from.param_count;
    put(from.instrs[0], 0);
  }
  // A load in the place of instruction i.
  void load(size_t i, uint32_t operand) {
    npu_instr in{};
    in.op = NPU_OP_LOAD;
    in.dtype = NPU_F32;
    in.a = in.b = in.c = in.mask = NPU_NO_VALUE;
    in.imm = operand;
    put(in, i);
  }
  void take(size_t i) {
    if (place_[i] != kUnplaced) return;
    npu_instr in = from_.instrs[i];
    each_argument(in, [&](uint16_t& id) {
      take(id);
      id = place_[id];
    });
    put(in, i);
  }
  void store(size_t i, uint32_t operand) {
    npu_instr in{};
    in.op = NPU_OP_STORE;
    in.dtype = NPU_DTYPE_NONE;
    in.a = place_[i];
    in.b = in.c = in.mask = NPU_NO_VALUE;
    in.imm = operand;
    to_.instrs.push_back(in);
  }
  Program finish(int more) {
    to_.operand_count += static_cast<uint32_t>(more);
    auto plan = make_plan(to_);
    return {std::move(to_), std::move(plan)};
  }
  bool fits() const { return to_.instrs.size() <= NPU_MAX_INSTRS; }

 private:
  void put(const npu_instr& in, size_t i) {
    place_[i] = static_cast<uint16_t>(to_.instrs.size());
    to_.instrs.push_back(in);
  }
  const npu::Program& from_;
  npu::Program to_;
  std::vector<uint16_t> place_;
};

}  // namespace

const ByChannel::Parts* ByChannel::find(uint64_t operands) const {
  std::lock_guard lock(making_);
  for (const Made& made : made_)
    if (made.operands == operands) return made.parts.get();
  if (made_.size() == kMostPlans) return nullptr;
  made_.push_back({operands, make(operands)});
  return made_.back().parts.get();
}

std::unique_ptr<const ByChannel::Parts> ByChannel::make(uint64_t operands) const {
  const std::vector<npu_instr>& in = program_.instrs;
  std::vector<bool> constant(in.size()), channel(in.size()), ahead(in.size());
  for (const npu_instr& i : in) {
    if (i.op == NPU_OP_STORE || i.op == NPU_OP_STORE_AT) operands &= ~(uint64_t{1} << i.imm);
    if (i.op == NPU_OP_SEGMENT && &i != &in[0]) return nullptr;
  }
  for (size_t i = 0; i < in.size(); ++i) {
    npu_instr copy = in[i];
    constant[i] = copy.op == NPU_OP_CONST || copy.op == NPU_OP_PARAM;
    if (copy.op == NPU_OP_LOAD && copy.mask == NPU_NO_VALUE) channel[i] = operands >> copy.imm & 1;
    bool ready = copy.a != NPU_NO_VALUE && copy.mask == NPU_NO_VALUE && copy.dtype != NPU_DTYPE_NONE, any = false;
    each_argument(copy, [&](uint16_t id) {
      ready = ready && (constant[id] || channel[id]);
      any = any || channel[id];
    });
    if (ready && any && can_compile(copy, in[copy.a].dtype)) channel[i] = true;
    if (!channel[i]) each_argument(copy, [&](uint16_t id) { ahead[id] = ahead[id] || channel[id]; });
  }
  // What the rest reads is stored, unless it is loaded as it is.
  int values = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    ahead[i] = ahead[i] && in[i].op != NPU_OP_LOAD && in[i].dtype == NPU_F32;
    values += ahead[i];
  }
  if (values == 0 || program_.operand_count + static_cast<uint32_t>(values) > NPU_MAX_OPERANDS) return nullptr;
  Copy channels(program_, program_.name + "_channels"), rest(program_, program_.name + "_rest");
  uint32_t next = program_.operand_count;
  for (size_t i = 1; i < in.size(); ++i) {
    if (ahead[i]) {
      channels.take(i);
      channels.store(i, next);
      rest.load(i, next++);
    }
  }
  for (size_t i = 1; i < in.size(); ++i)
    if (in[i].dtype == NPU_DTYPE_NONE || in[i].op == NPU_OP_CHECK_INDEX) rest.take(i);
  if (!channels.fits() || !rest.fits()) return nullptr;
  return std::make_unique<const Parts>(Parts{channels.finish(values), rest.finish(values), values});
}

}  // namespace cmodel
