// Functions: what the vector unit has (div, sqrt, floor) as it is, exp and its like by the sequences of docs/isa.md.
#include <bit>
#include <limits>

#include "drivers/rtl/lower/lower.h"
#include "support/reference/functions.h"

using namespace npu_hw;

namespace rtl {
namespace {

constexpr uint32_t kSign = 0x80000000;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

View number(float value) {
  return immediate(std::bit_cast<uint32_t>(value));
}

// What the vector unit has no operation for: the functions of codegen/functions.ops.
Lowering::Value Lowering::expand(const npu::Program& sequence, const Value* arguments) {
  std::vector<Value> values(sequence.instrs.size());
  for (size_t k = 0; k < sequence.instrs.size(); k++) {
    const npu_instr& in = sequence.instrs[k];
    switch (in.op) {
      case NPU_OP_SEGMENT:
        break;
      case NPU_OP_CONST: {
        npu_scalar bits;
        bits.u = sequence.consts[in.imm];
        values[k] = scalar(bits, in.dtype);
        break;
      }
      case NPU_OP_LOAD:
        values[k] = arguments[in.imm];
        break;
      case NPU_OP_STORE:
        return values[in.a];
      default: {
        const uint16_t ids[3] = {in.a, in.b, in.c};
        Value v[3];
        for (int i = 0; i < 3; i++)
          if (ids[i] != NPU_NO_VALUE) v[i] = values[ids[i]];
        values[k] = compute(in, v);
      }
    }
  }
  throw Unsupported{"a function without a result"};
}

Lowering::Value Lowering::compute_function(const npu_instr& in, const Value* v) {
  const View &a = v[0].view, &b = v[1].view;
  const auto f = [&](uint32_t op, const View& x, const View& y) { return apply(NPU_F32, op, x, y); };
  switch (in.op) {
    case NPU_OP_DIV:
      return f(VEC_DIV, a, b);
    case NPU_OP_RECIPROCAL:
      return f(VEC_DIV, number(1), a);
    case NPU_OP_SQRT:
      return f(VEC_SQRT, a, immediate(0));
    case NPU_OP_FMIN:
    case NPU_OP_FMAX: {
      // A NaN loses: equal to itself is what is none.
      const View best = f(in.op == NPU_OP_FMIN ? VEC_MIN : VEC_MAX, a, b).view;
      const View one = apply(NPU_F32, VEC_SELECT, apply(NPU_BOOL, VEC_EQ, b, b).view, best, a).view;
      return apply(NPU_F32, VEC_SELECT, apply(NPU_BOOL, VEC_EQ, a, a).view, one, b);
    }
    case NPU_OP_FLOOR:
      return f(VEC_FLOOR, a, immediate(0));
    case NPU_OP_ROUND:
      return f(VEC_ROUND, a, immediate(0));
    case NPU_OP_CEIL:  // -floor(-a); -0 - x is -x, but for a NaN, which has no sign
      return f(VEC_SUB, immediate(kSign), f(VEC_FLOOR, f(VEC_XOR, a, immediate(kSign)).view, immediate(0)).view);
    case NPU_OP_TRUNC: {  // 1 * x is x, but for a NaN
      const View size = f(VEC_FLOOR, f(VEC_AND, a, immediate(~kSign)).view, immediate(0)).view;
      return f(VEC_MUL, f(VEC_OR, size, f(VEC_AND, a, immediate(kSign)).view).view, number(1));
    }
    case NPU_OP_COPYSIGN:
      return f(VEC_OR, f(VEC_AND, a, immediate(~kSign)).view, f(VEC_AND, b, immediate(kSign)).view);
    case NPU_OP_SIGN: {
      const View more = apply(NPU_I32, VEC_LT, immediate(0), a).view,
                 less = apply(NPU_I32, VEC_LT, a, immediate(0)).view;
      return f(VEC_I2F, apply(NPU_I32, VEC_ISUB, more, less).view, immediate(0));
    }
    case NPU_OP_ISINF:
      return apply(NPU_BOOL, VEC_IEQ, apply(NPU_I32, VEC_AND, a, immediate(~kSign)).view, number(kInfinity));
    default:
      if (const npu::Program* sequence = npu::sequence(in.op)) return expand(*sequence, v);
      throw Unsupported{std::string("the instruction ") + npu::op_name(in.op)};
  }
}

}  // namespace rtl
