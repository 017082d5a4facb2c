// A program written anew, instruction by instruction: what stands in the place of each is up to the caller.
#pragma once
#include <algorithm>
#include <functional>

#include "npu/command.h"
#include "support/program/program.h"

namespace npu {

class Rewrite {
 public:
  // Gets each instruction of the old program, its arguments already those of the new one. It emits what it likes and
  // answers the value that later instructions see in its place.
  using Visit = std::function<uint16_t(Rewrite& out, const npu_instr& in)>;

  explicit Rewrite(const Program& from);
  Program run(const Visit& visit);

  uint16_t emit(const npu_instr& in);
  uint16_t op(int op, int dtype, uint16_t a, uint16_t b = NPU_NO_VALUE, uint16_t c = NPU_NO_VALUE, uint32_t imm = 0);
  uint16_t cast(uint16_t a, int to, int via = NPU_DTYPE_NONE);
  uint16_t constant(int dtype, double value);  // whole where the type is no float
  uint16_t load(uint32_t operand, int dtype);
  void store(uint32_t operand, uint16_t value);
  int type(uint16_t value) const { return made_.instrs[value].dtype; }
  // Of the value before it was replaced, while its instruction is visited.
  uint16_t visited() const { return visited_; }

 private:
  const Program& from_;
  Program made_;
  uint16_t visited_ = 0;
};

// What COPY, and MATMUL and CONV without a program, are as a program. Not for other commands without one.
Program program_of(const npu_command& command);

}  // namespace npu
