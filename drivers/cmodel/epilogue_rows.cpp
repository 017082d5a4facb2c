#include "drivers/cmodel/epilogue_rows.h"

#include <cstring>

#include "drivers/cmodel/loop_inputs.h"
#include "drivers/cmodel/tile_memory.h"

namespace cmodel {
namespace {

constexpr int kActions = 12, kLoops = 2;

// A value along the current row.
struct Line {
  char* at = nullptr;
  int64_t step = 0;      // bytes to the next row
  bool uniform = false;  // one value for the row
  uint8_t stored = 0;    // NPU_BF16 or NPU_F16: an F32 value as it lies in memory, for compiled loops
};

struct Loop {
  const Code* code;
  int pointers;
  Line line[kLoopPointers];
  LoopArguments args;
  Copies copies[kLoopPointers];
};

// What is done for each row: one of the three.
struct Action {
  Kernel kernel = nullptr;
  Convert convert = nullptr;
  Loop* loop = nullptr;
  Line out, in[3];
  unsigned uniform = 0;
};

class Rows {
 public:
  Rows(const Job& job, const Block& block) : job_(job), block_(block), f_(prepare(job, sink_)) {}

  bool plan() {
    const Plan& plan = *f_.plan;
    if (plan.segments.size() != 1 || plan.ops.size() > kMost) return false;
    for (int i : plan.constants) line_[i] = {f_.val[i].ptr, 0, true, 0};
    for (int i = plan.segments[0].begin; i < plan.segments[0].end; ++i)
      if (!add(i, plan.ops[i])) return false;
    return true;
  }

  void run() {
    for (int64_t r = 0; r < block_.rows; ++r)
      for (int k = 0; k < count_; ++k) {
        Action& a = action_[k];
        if (a.loop) {
          run_loop(*a.loop);
          continue;
        }
        if (a.kernel)
          a.kernel(a.out.at, a.in[0].at, a.in[1].at, a.in[2].at, block_.cols, a.uniform);
        else
          a.convert(a.out.at, a.in[0].at, block_.cols);
        a.out.at += a.out.step;
        for (Line& line : a.in) line.at += line.step;
      }
  }

 private:
  static constexpr size_t kMost = 64;  // instructions: what has more is no shorter for being planned

  void run_loop(Loop& loop) const {
    for (int k = 0; k < loop.pointers; ++k) {
      Line& line = loop.line[k];
      loop.args.pointer[k] = line.at;
      if (line.uniform && line.step != 0) {
        loop.copies[k].set(line.at, false);
        loop.args.pointer[k] = loop.copies[k].bytes;
      }
      line.at += line.step;
    }
    (*loop.code)(loop.args, block_.cols);
  }

  bool add(int i, const Op& op) {
    switch (op.step) {
      case Step::kNothing:
        return true;
      case Step::kLoad:
        return add_load(i, op);
      case Step::kAcc:
        line_[i] = {const_cast<char*>(block_.acc), block_.ld * (int64_t{1} << log_size_of(op.dtype))};
        return block_.acc_dtype == op.dtype;
      case Step::kCompute:
        return add_kernel(i, op);
      case Step::kGroup:
        return add_loop(f_.plan->groups[op.d]);
      case Step::kStore:
        return add_store(op);
      default:
        return false;
    }
  }

  Action* next() { return count_ < kActions ? &(action_[count_++] = Action()) : nullptr; }

  int64_t row_bytes(const Operand& operand) const {
    return operand.stride[job_.command.rank - 2] * (int64_t{1} << log_size_of(operand.dtype));
  }

  bool add_load(int i, const Op& op) {
    const Operand& operand = job_.operands[op.imm];
    const int64_t along = operand.stride[job_.command.rank - 1];
    if (op.mask != NPU_NO_VALUE || (along != 0 && along != 1)) return false;
    const Convert convert = f_.k->convert[operand.dtype][op.dtype];
    if (operand.immediate || (along == 0 && row_bytes(operand) == 0)) {
      const void* from = operand.immediate ? static_cast<const void*>(&operand.bits) : block_.first_of(job_, operand);
      convert(&f_.scalar[i], from, 1);
      line_[i] = {reinterpret_cast<char*>(&f_.scalar[i]), 0, true, 0};
      return true;
    }
    if (is_one_of(f_, op.overwritten, operand)) return false;
    line_[i] = {block_.first_of(job_, operand), row_bytes(operand), along == 0, 0};
    if (operand.dtype == op.dtype) return true;
    if (along == 0) return false;
    if (op.in_loops && is_narrow(operand.dtype)) {
      line_[i].stored = operand.dtype;
      return true;
    }
    Action* action = next();
    if (!action) return false;
    action->convert = convert;
    action->in[0] = line_[i];
    action->out = line_[i] = {f_.slot(op.slot)};
    return true;
  }

  // Where the value of `op` goes: to the memory of its store, if that takes it as it is, or to its slot.
  Line target(const Op& op, bool loop) const {
    if (op.store == kNone) return {f_.slot(op.slot)};
    const Operand& operand = job_.operands[f_.plan->ops[op.store].imm];
    const bool narrow = loop && op.only_stored && op.dtype == NPU_F32 && is_narrow(operand.dtype);
    if ((operand.dtype != op.dtype && !narrow) || operand.stride[job_.command.rank - 1] != 1 ||
        is_one_of(f_, op.loaded_meanwhile, operand))
      return {f_.slot(op.slot)};
    return {block_.first_of(job_, operand), row_bytes(operand), false, narrow ? operand.dtype : uint8_t{0}};
  }

  bool add_kernel(int i, const Op& op) {
    Action* action = next();
    if (!action) return false;
    const uint16_t ids[3] = {op.a, op.b, op.c};
    for (int k = 0; k < 3; ++k) {
      if (!(op.used >> k & 1)) continue;
      action->in[k] = line_[ids[k]];
      if (line_[ids[k]].uniform) action->uniform |= 1u << k;
    }
    if (action->uniform == op.used) return false;  // one value: tiles compute that once
    action->uniform |= op.imm << 8;
    action->kernel = op.kernel;
    action->out = line_[i] = target(op, false);
    return true;
  }

  bool add_loop(const Group& group) {
    Action* action = next();
    if (!action || loops_ == kLoops || !group.folds.empty()) return false;
    Loop& loop = loop_[loops_++];
    const Plan& plan = *f_.plan;
    const int inputs = static_cast<int>(group.inputs.size()), outputs = static_cast<int>(group.outputs.size());
    loop.pointers = inputs + outputs;
    for (size_t k = 0; k < group.constants.size(); ++k)
      std::memcpy(&loop.args.constant[k], &f_.scalar[group.constants[k]], sizeof(float));
    uint64_t storage = 0;
    bool varies = false;
    for (int k = 0; k < inputs; ++k) {
      const int id = group.inputs[k];
      Line& line = loop.line[k] = line_[id];
      const bool flag = plan.ops[id].dtype == NPU_BOOL;
      if (line.uniform && line.step != 0 && flag) return false;
      if (line.uniform && line.step == 0) {
        loop.copies[k].set(line.at, flag);
        line.at = loop.copies[k].bytes;
      }
      varies |= !line.uniform;
      loop.args.step[k] = line.uniform ? 0 : (flag ? 1 : line.stored ? 2 : 4) * kLanes;
      loop.args.ahead[k] = 0;
      storage |= storage_bits(line.stored, k);
    }
    for (int k = 0; k < outputs; ++k) {
      const int id = group.outputs[k];
      loop.line[inputs + k] = line_[id] = target(plan.ops[id], true);
      storage |= storage_bits(line_[id].stored, inputs + k);
    }
    loop.code = storage == 0 ? group.code.get() : group.variant(Form::kPlain, storage);
    action->loop = &loop;
    return varies && loop.code;
  }

  bool add_store(const Op& op) {
    const Operand& operand = job_.operands[op.imm];
    const Line& value = line_[op.a];
    if (op.mask != NPU_NO_VALUE || operand.stride[job_.command.rank - 1] != 1) return false;
    const int from = f_.plan->ops[op.a].dtype;
    char* to = block_.first_of(job_, operand);
    if (value.at == to && (value.stored ? value.stored == operand.dtype : operand.dtype == from && from != NPU_BOOL))
      return true;  // written by its kernel
    Action* action = next();
    if (!action || value.uniform || value.stored) return false;
    action->convert = f_.k->convert[from][operand.dtype];
    action->in[0] = value;
    action->out = {to, row_bytes(operand)};
    return true;
  }

  const Job& job_;
  const Block& block_;
  FailureSink sink_;
  Frame& f_;
  Line line_[kMost];
  Action action_[kActions];
  Loop loop_[kLoops];
  int count_ = 0, loops_ = 0;
};

}  // namespace

bool run_rows(const Job& job, const Block& block) {
  Rows rows(job, block);
  if (!rows.plan()) return false;
  rows.run();
  return true;
}

}  // namespace cmodel
