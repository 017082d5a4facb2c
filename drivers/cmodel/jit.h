// Compiled loops: a group of F32 instructions of a program as one loop over a tile, with values in registers instead
// of one pass over the first cache per instruction. Needs AVX-512 and memory that may be executed; without either,
// programs run instruction by instruction as ever. Results are the same bits.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "npu/program.h"

namespace cmodel {

constexpr int kLoopPointers = 12;   // inputs and outputs of a loop
constexpr int kLoopConstants = 14;  // constants and parameters

// What a loop is called with. Inputs come first, then outputs.
struct LoopArguments {
  char* pointer[kLoopPointers];
  int64_t step[kLoopPointers];   // of inputs, in bytes per 16 points: 0 for sixteen copies of one value
  int64_t ahead[kLoopPointers];  // of loaded inputs: bytes to what will be wanted soon, 0 if nothing is
  float constant[kLoopConstants];
  float sums[NPU_MAX_FOLDS][16];  // of each fold; written, not added to
  // Of columns: `step` is that of inputs per folded point, of which there are `points`, and `turn` leads from behind
  // the last of them to the next sixteen columns. Behind the inputs: what the sums are added to.
  int64_t points;
  int64_t turn[kLoopPointers];
};

class Code {
 public:
  static std::unique_ptr<Code> make(const std::vector<uint8_t>& bytes);  // null: the system does not allow it
  ~Code();
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  void operator()(LoopArguments& arguments, int64_t n) const { run_(&arguments, &arguments, n); }

 private:
  Code(void* memory, size_t bytes);
  void* memory_;
  size_t bytes_;
  void (*run_)(void*, void*, int64_t);
};

// Instructions that run as one loop. It runs at the position of its last member.
struct Group {
  std::vector<int> members, inputs, constants, outputs;  // instructions; outputs are members that others read
  std::unique_ptr<Code> code;
  // The same, with results that bypass the caches; null if not all of them are F32 that nobody but a store reads.
  std::unique_ptr<Code> streaming;
  // A second loop that adds up what F32 sums fold: for rows that are folded one by one. It writes no values that
  // nobody else reads.
  std::vector<int> folds;   // of members, and of inputs
  std::vector<int> stored;  // the outputs that others than these read
  std::unique_ptr<Code> folding;
  // A third one for columns, if nothing else is written: sixteen of them at once, one folded point after the other.
  std::unique_ptr<Code> columns;
  int at() const { return members.back(); }
};

bool can_compile();                               // on this processor
bool can_compile(const npu_instr& in, int type);  // `type`: of its first argument
// Fills group.code and the other forms. False: more values at once than there are registers, or no memory to execute.
// `streams`: the outputs may bypass the caches. `ahead`: the loops fetch what lies ahead of their inputs.
bool compile(const std::vector<npu_instr>& in, Group& group, bool streams, bool ahead);

}  // namespace cmodel
