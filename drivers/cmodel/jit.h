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
  int64_t step[kLoopPointers];  // of inputs, in bytes per 16 points: 0 for sixteen copies of one value
  float constant[kLoopConstants];
  float sums[NPU_MAX_FOLDS][16];  // of each fold; written, not added to
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
  // A second loop that adds up what F32 sums fold, instead of writing it: for rows that are folded one by one.
  std::vector<int> folds;   // whose arguments nobody else reads
  std::vector<int> stored;  // the outputs that are none of these
  std::vector<int> others;  // sums of outputs that have other readers too
  std::unique_ptr<Code> folding;
  int at() const { return members.back(); }
};

bool can_compile();                               // on this processor
bool can_compile(const npu_instr& in, int type);  // `type`: of its first argument
// Fills group.code, and group.folding if there are folds. False: more values at once than there are registers, or no
// memory to execute.
bool compile(const std::vector<npu_instr>& in, Group& group);

}  // namespace cmodel
