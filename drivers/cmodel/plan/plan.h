// What the engine works out once per program: segments, kernels, slots by liveness, and whether the whole program is
// one instruction between loads and a store. Commands add sizes and addresses; nothing here depends on them.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "drivers/cmodel/jit/jit.h"
#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/simd/kernels.h"
#include "npu/program.h"
#include "support/program/program.h"

namespace cmodel {

constexpr int kNone = -1;

class Lifted;     // plan/lifted.h
class ByChannel;  // plan/channels.h

enum class Step : uint8_t {
  kNothing,  // segment, get, const, param, size, fold members: the value is there already
  kLoad,
  kLoadAt,
  kStore,
  kStoreAt,
  kIndex,
  kCheck,
  kCompute,    // a kernel of up to three arguments
  kNormalize,  // ((a - b) * c) * d + e
  kLoop,       // a compiled loop: Plan::loops[d]
  kPhilox,     // two words of one counter: this instruction's and that of instruction d
  kCast,
  kBitcast,
  kFold,
  kScan,
  kAcc,
};

// What else holds for an instruction.
enum class Trait : uint8_t {
  kFused,       // the kernel computes an argument of the instruction too
  kAddress,     // a sum that only load_at and store_at read, as their offset
  kOnlyLooped,  // nothing but compiled loops reads this load, so that they can convert it
  kOnlyStored,  // nothing but one store reads this value of a compiled loop
  kLastLoad,    // of several loads of its operand: this row's data is not needed any more
  kRowBuffer,   // Plan::row_operand as it is between two segments
};

struct Op {
  Step step = Step::kNothing;
  uint8_t op = 0;
  uint8_t dtype = 0;  // of the value defined
  uint8_t flags = 0;
  uint8_t used = 0;    // bits of the arguments that the kernel reads
  uint8_t traits = 0;  // bits: Trait
  int16_t slot = kNone;
  int16_t view = kNone;   // number in Plan::views: where the operand (or the coordinate) lies
  int16_t store = kNone;  // the store that can take this value straight from the kernel
  uint16_t a = 0, b = 0, c = 0, mask = NPU_NO_VALUE;
  uint16_t d = 0, e = 0;  // kNormalize, kPhilox, kLoop
  uint16_t next = 0;      // the next instruction that is more than kNothing, or the end
  uint32_t imm = 0;
  // Operands, by bit: a load may hand out a pointer into memory, and a kernel write straight to the memory of `store`,
  // unless that is the memory of one of these.
  uint64_t overwritten = 0;       // stored to before the last use of a load
  uint64_t loaded_meanwhile = 0;  // between the kernel and its store
  int cost = 0;                   // of an invariant: its part of Plan::each_cost
  Kernel kernel = nullptr;

  bool is(Trait trait) const { return traits >> static_cast<int>(trait) & 1; }
  void set(Trait trait) { traits |= static_cast<uint8_t>(1 << static_cast<int>(trait)); }
};

// Something that is addressed by the point of the index space: an operand, a coordinate, or the accumulator of an
// epilogue.
struct View {
  enum Kind : uint8_t { kOperand, kIndex, kAcc } kind;
  uint8_t number;  // of the operand or dimension
};

struct FoldPlan {
  int at = 0;           // instruction
  int kind = 0;         // npu_fold
  int combine = kNone;  // segment
  int members = 1;
  uint8_t member_dtype[NPU_MAX_TUPLE] = {};
  int args = 1;
  std::vector<int> gets[NPU_MAX_TUPLE];  // values that are member k (the fold itself is in gets[0])
};

struct Segment {
  int kind = 0, begin = 0, end = 0;
  std::vector<FoldPlan> folds;
  std::vector<int> row_values;      // values of rows (folds, row segments) that this segment reads
  bool row_values_computed = true;  // nothing but kernels reads them
  int plain_load = kNone;           // the load of a segment that only folds what it loads
  int plain_index = kNone;          // argmax, argmin: the coordinate beside it
  int arg[2 * NPU_MAX_TUPLE] = {kNone, kNone, kNone, kNone, kNone, kNone};  // COMBINE
  int yield[NPU_MAX_TUPLE] = {kNone, kNone, kNone};
};

// A program of one instruction: store(op(x, y, z)), each argument an operand, a constant, a parameter or the
// accumulator of an epilogue.
struct OneInstruction {
  enum Kind : uint8_t { kNot, kCompute, kMove } kind = kNot;
  uint8_t args = 0;
  uint8_t store_operand = 0;
  uint8_t op = 0;
  uint8_t arg_dtype = 0, value_dtype = 0;
  struct Argument {
    enum Kind : uint8_t { kOperand, kConst, kParam, kAcc } kind;
    uint8_t number, dtype;
  } arg[3] = {};
  Kernel kernel = nullptr;
};

struct Plan {
  std::vector<Op> ops;
  std::vector<Segment> segments;
  std::vector<int> combines;  // segment numbers of the combine segments
  std::vector<View> views;
  std::vector<int> constants;  // values that are the same for the whole command: const, param, size
  // Values that are the same for the whole command if certain operands are one value, as a learning rate is.
  std::vector<int> invariants;
  std::vector<CompiledLoop> loops;
  // An operand that holds values of one segment for a later one, which overwrites them: a buffer of a row will do.
  int row_operand = kNone, row_view = kNone;
  int slots = 0;
  bool stores_at = false;
  bool indexes = false;    // some value is a coordinate
  bool addresses = false;  // some address is computed
  int each_cost = 0;       // picoseconds per point, roughly
  OneInstruction one_instruction;
  std::vector<uint64_t> consts;
  // The same program with compiled loops, for commands with bf16 or f16 operands; null: this plan serves them as well.
  std::shared_ptr<const Program> narrow;
  bool dense_loops = false;                     // that one also for rows that lie dense in memory
  std::shared_ptr<const Lifted> lifted;         // null: there is nothing to lift
  std::shared_ptr<const ByChannel> by_channel;  // of epilogues
};

// Which values are the same for the whole job: sets fixed[] for every instruction. Returns what they would cost per
// point, in picoseconds.
int find_fixed(const Job& job, bool* fixed);

// The job itself, or one with the plan for its types and for its operands of one value in `own`.
const Job& with_plan(const Job& job, Job& own);

}  // namespace cmodel
