#include "drivers/cmodel/jit/instructions.h"

#include "drivers/cmodel/jit/functions.h"
#include "drivers/cmodel/jit/jit.h"

namespace cmodel {
namespace {

// Predicates of vcmpps that signal nothing.
enum Predicate : uint8_t { kEq = 0, kUnordered = 3, kNe = 4, kLt = 17, kLe = 18, kGe = 29, kGt = 30 };
constexpr uint32_t kSign = 0x80000000u, kInfinity = 0x7f800000u;

// min and max of the processor return their second argument if either is NaN or both are zeros. The result is b
// where `nan`, an argument, is NaN.
void extreme(Vectors& e, Encoder::Code code, int to, int a, int b, int nan, int mask) {
  e.op(code, to, b, a);
  e.compare(mask, nan, nan, kUnordered);
  e.move_where(mask, to, b);
}

// Between BOOL and F32, and F32 rounded to a shorter format.
void cast(Vectors& e, const npu_instr& in, int type, int to, int a, const int* temporaries) {
  const int via = static_cast<int>(in.imm);
  if (type == NPU_BOOL) {
    e.number_or_zero(a, to, 1.0f);
  } else if (in.dtype == NPU_BOOL) {
    e.zero(temporaries[0]);
    e.compare(to, a, temporaries[0], kNe);
  } else if (via == NPU_BF16) {
    e.round_to_bfloat(to, a);
  } else if (via == NPU_F16) {
    e.round_to_half(to, a);
  } else {
    e.op(Encoder::kMove, to, 0, a);
  }
}

}  // namespace

int temporaries_of(const npu_instr& in) {
  switch (in.op) {
    case NPU_OP_RSQRT:
    case NPU_OP_SIGN:
    case NPU_OP_COPYSIGN:
      return 1;
    case NPU_OP_ISINF:
      return 2;
    case NPU_OP_CAST:
      return in.dtype == NPU_BOOL ? 1 : 0;
    default:
      return temporaries_of_function(in.op);
  }
}

bool can_compile(const npu_instr& in, int type) {
  switch (in.op) {
    case NPU_OP_ADD:
    case NPU_OP_SUB:
    case NPU_OP_MUL:
    case NPU_OP_DIV:
    case NPU_OP_FMA:
    case NPU_OP_MIN:
    case NPU_OP_MAX:
    case NPU_OP_FMIN:
    case NPU_OP_FMAX:
    case NPU_OP_NEG:
    case NPU_OP_ABS:
    case NPU_OP_SIGN:
    case NPU_OP_COPYSIGN:
    case NPU_OP_SQRT:
    case NPU_OP_RSQRT:
    case NPU_OP_RECIPROCAL:
    case NPU_OP_FLOOR:
    case NPU_OP_CEIL:
    case NPU_OP_ROUND:
    case NPU_OP_TRUNC:
    case NPU_OP_EQ:
    case NPU_OP_NE:
    case NPU_OP_LT:
    case NPU_OP_LE:
    case NPU_OP_GT:
    case NPU_OP_GE:
    case NPU_OP_ISNAN:
    case NPU_OP_ISINF:
    case NPU_OP_SIGNBIT:
      return type == NPU_F32;
    case NPU_OP_AND:
    case NPU_OP_OR:
    case NPU_OP_XOR:
    case NPU_OP_NOT:
      return type == NPU_BOOL;
    case NPU_OP_WHERE:
      return in.dtype == NPU_F32;
    case NPU_OP_CAST:
      if (type == NPU_BOOL) return in.dtype == NPU_F32 && (in.imm == NPU_DTYPE_NONE || in.imm == NPU_F32);
      if (type != NPU_F32) return false;
      if (in.dtype == NPU_BOOL) return in.imm == NPU_DTYPE_NONE || in.imm == NPU_BOOL;
      return in.dtype == NPU_F32 &&
             (in.imm == NPU_DTYPE_NONE || in.imm == NPU_F32 || in.imm == NPU_BF16 || in.imm == NPU_F16);
    default:
      return type == NPU_F32 && is_function(in.op);
  }
}

void emit_instruction(Vectors& e, const npu_instr& in, int type, int to, int a, int b, int c, const int* temporaries) {
  const int mask = e.spare_mask();
  switch (in.op) {
    case NPU_OP_ADD:
      return e.op(Encoder::kAdd, to, a, b);
    case NPU_OP_SUB:
      return e.op(Encoder::kSub, to, a, b);
    case NPU_OP_MUL:
      return e.op(Encoder::kMul, to, a, b);
    case NPU_OP_DIV:
      return e.op(Encoder::kDiv, to, a, b);
    case NPU_OP_FMA:
      e.op(Encoder::kMove, to, 0, c);
      return e.op(Encoder::kFma231, to, a, b);
    case NPU_OP_MIN:
      return extreme(e, Encoder::kMin, to, a, b, b, mask);
    case NPU_OP_MAX:
      return extreme(e, Encoder::kMax, to, a, b, b, mask);
    case NPU_OP_FMIN:
      return extreme(e, Encoder::kMin, to, a, b, a, mask);
    case NPU_OP_FMAX:
      return extreme(e, Encoder::kMax, to, a, b, a, mask);
    case NPU_OP_NEG:
      return e.op_bits(Encoder::kXor, to, a, kSign);
    case NPU_OP_ABS:
      return e.op_bits(Encoder::kAnd, to, a, ~kSign);
    case NPU_OP_SIGN:
      e.zero(to);
      e.zero(temporaries[0]);
      e.compare(mask, a, temporaries[0], kGt);
      e.number_where(mask, to, 1.0f);
      e.compare(mask, a, temporaries[0], kLt);
      return e.number_where(mask, to, -1.0f);
    case NPU_OP_COPYSIGN:
      e.op_bits(Encoder::kAnd, temporaries[0], b, kSign);
      e.op_bits(Encoder::kAnd, to, a, ~kSign);
      return e.op(Encoder::kOr, to, to, temporaries[0]);
    case NPU_OP_SQRT:
      return e.op(Encoder::kSqrt, to, 0, a);
    case NPU_OP_RSQRT:
      e.op(Encoder::kSqrt, temporaries[0], 0, a);
      e.number(to, 1.0f);
      return e.op(Encoder::kDiv, to, to, temporaries[0]);
    case NPU_OP_RECIPROCAL:
      e.number(to, 1.0f);
      return e.op(Encoder::kDiv, to, to, a);
    case NPU_OP_FLOOR:
      return e.op_imm(Encoder::kRound, to, 0, a, 9);
    case NPU_OP_CEIL:
      return e.op_imm(Encoder::kRound, to, 0, a, 10);
    case NPU_OP_TRUNC:
      return e.op_imm(Encoder::kRound, to, 0, a, 11);
    case NPU_OP_ROUND:
      return e.op_imm(Encoder::kRound, to, 0, a, 8);
    case NPU_OP_EQ:
      return e.compare(to, a, b, kEq);
    case NPU_OP_NE:
      return e.compare(to, a, b, kNe);
    case NPU_OP_LT:
      return e.compare(to, a, b, kLt);
    case NPU_OP_LE:
      return e.compare(to, a, b, kLe);
    case NPU_OP_GT:
      return e.compare(to, a, b, kGt);
    case NPU_OP_GE:
      return e.compare(to, a, b, kGe);
    case NPU_OP_ISNAN:
      return e.compare(to, a, a, kUnordered);
    case NPU_OP_ISINF:
      e.op_bits(Encoder::kAnd, temporaries[0], a, ~kSign);
      e.op_bits(Encoder::kBroadcast, temporaries[1], 0, kInfinity);
      return e.compare(to, temporaries[0], temporaries[1], kEq);
    case NPU_OP_SIGNBIT:
      return e.signs(to, a);
    case NPU_OP_AND:
      return e.logic(Vectors::kMaskAnd, to, a, b);
    case NPU_OP_OR:
      return e.logic(Vectors::kMaskOr, to, a, b);
    case NPU_OP_XOR:
      return e.logic(Vectors::kMaskXor, to, a, b);
    case NPU_OP_NOT:
      return e.logic(Vectors::kMaskNot, to, a, a);
    case NPU_OP_WHERE:
      return e.choose(to, a, b, c);
    case NPU_OP_CAST:
      return cast(e, in, type, to, a, temporaries);
    default:
      return emit_function(e, in.op, to, a, temporaries, mask);
  }
}

}  // namespace cmodel
