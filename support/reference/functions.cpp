#include "support/reference/functions.h"

#include <array>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "support/program/approximation.h"
#include "support/reference/evaluate.h"

namespace npu {

extern const char* const kFunctionText;  // by codegen/sequences.py

namespace {

// Decoded once: what is the same for all arguments is in `start` already.
struct Function {
  struct Step {
    npu_instr in;
    int type;  // of the first argument
    uint16_t to;
  };
  Program program;
  std::vector<Value> start;
  std::vector<Step> steps;
  uint16_t arguments[2] = {};
  uint16_t result = 0;

  explicit Function(std::string_view text) : program(parse(text)), start(program.instrs.size()) {
    for (uint16_t i = 0; i < program.instrs.size(); ++i) {
      const npu_instr& in = program.instrs[i];
      npu_scalar bits{};
      switch (in.op) {
        case NPU_OP_SEGMENT:
          break;
        case NPU_OP_CONST:
          bits.u = program.consts[in.imm];
          start[i] = scalar_value(bits, in.dtype);
          break;
        case NPU_OP_LOAD:
          arguments[in.imm] = i;
          break;
        case NPU_OP_STORE:
          result = in.a;
          break;
        default: {
          Step step{in, program.instrs[in.op == NPU_OP_WHERE ? in.b : in.a].dtype, i};
          // Value 0 is the segment: what is not used reads it.
          for (uint16_t* id : {&step.in.a, &step.in.b, &step.in.c})
            if (*id == NPU_NO_VALUE) *id = 0;
          steps.push_back(step);
        }
      }
    }
  }
};

using Table = std::array<const Function*, NPU_OP_COUNT>;

const Table& table() {
  static const Table made = [] {
    Table out{};
    constexpr std::string_view kHead = "program ";
    std::string_view left = kFunctionText;
    for (size_t at = left.find(kHead); at != left.npos;) {
      const size_t next = left.find("\nprogram ", at);
      const std::string_view text = left.substr(at, next == left.npos ? next : next + 1 - at);
      const std::string_view name = text.substr(kHead.size(), text.find('(') - kHead.size());
      int op = 0;
      while (op < NPU_OP_COUNT && name != op_name(op)) ++op;
      if (op == NPU_OP_COUNT) throw std::logic_error("codegen/functions.ops: no instruction " + std::string(name));
      out[static_cast<size_t>(op)] = new Function(text);  // for as long as the process lives
      at = next == left.npos ? next : next + 1;
    }
    return out;
  }();
  return made;
}

}  // namespace

const Program* sequence(int op) {
  const Function* function = table()[static_cast<size_t>(op)];
  return function ? &function->program : nullptr;
}

bool is_defined(int op, int dtype) {
  return approximation(op).ulp == 0 || (dtype == NPU_F32 && sequence(op));
}

float run_sequence(int op, float a, float b) {
  const Function& function = *table()[static_cast<size_t>(op)];
  std::array<Value, 256> values;
  std::copy(function.start.begin(), function.start.end(), values.begin());
  values[function.arguments[0]].f32 = a;
  if (function.program.operand_count > 2) values[function.arguments[1]].f32 = b;
  for (const Function::Step& step : function.steps)
    values[step.to] = evaluate(step.in, step.type, values[step.in.a], values[step.in.b], values[step.in.c]);
  return values[function.result].f32;
}

}  // namespace npu
