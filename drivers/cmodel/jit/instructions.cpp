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

// Instructions that are one of the processor's, by what it takes beside registers.
struct Arithmetic {
  uint8_t op;
  Encoder::Code code;
  bool unary;  // its argument is the second one
};
constexpr Arithmetic kArithmetic[] = {{NPU_OP_ADD, Encoder::kAdd, false},
                                      {NPU_OP_SUB, Encoder::kSub, false},
                                      {NPU_OP_MUL, Encoder::kMul, false},
                                      {NPU_OP_DIV, Encoder::kDiv, false},
                                      {NPU_OP_SQRT, Encoder::kSqrt, true}};
struct Extreme {
  uint8_t op;
  Encoder::Code code;
  bool keeps_nan;  // else a NaN gives way to a number
};
constexpr Extreme kExtremes[] = {{NPU_OP_MIN, Encoder::kMin, true},
                                 {NPU_OP_MAX, Encoder::kMax, true},
                                 {NPU_OP_FMIN, Encoder::kMin, false},
                                 {NPU_OP_FMAX, Encoder::kMax, false}};
struct WithNumber {
  uint8_t op, number;
};
constexpr WithNumber kComparisons[] = {{NPU_OP_EQ, kEq}, {NPU_OP_NE, kNe}, {NPU_OP_LT, kLt},
                                       {NPU_OP_LE, kLe}, {NPU_OP_GT, kGt}, {NPU_OP_GE, kGe}};
// How vroundps rounds, without a signal.
constexpr WithNumber kRoundings[] = {{NPU_OP_ROUND, 8}, {NPU_OP_FLOOR, 9}, {NPU_OP_CEIL, 10}, {NPU_OP_TRUNC, 11}};
constexpr WithNumber kLogic[] = {{NPU_OP_AND, Vectors::kMaskAnd},
                                 {NPU_OP_OR, Vectors::kMaskOr},
                                 {NPU_OP_XOR, Vectors::kMaskXor},
                                 {NPU_OP_NOT, Vectors::kMaskNot}};

// Null: the table has no such instruction.
template <class Entry, size_t count>
const Entry* find(const Entry (&table)[count], int op) {
  for (const Entry& entry : table)
    if (entry.op == op) return &entry;
  return nullptr;
}

// Of F32, in several instructions of the processor.
bool is_sequence(int op) {
  switch (op) {
    case NPU_OP_FMA:
    case NPU_OP_NEG:
    case NPU_OP_ABS:
    case NPU_OP_SIGN:
    case NPU_OP_COPYSIGN:
    case NPU_OP_RSQRT:
    case NPU_OP_RECIPROCAL:
    case NPU_OP_ISNAN:
    case NPU_OP_ISINF:
    case NPU_OP_SIGNBIT:
      return true;
    default:
      return false;
  }
}

// Those, WHERE and the functions.
void emit_sequence(Vectors& e, const npu_instr& in, int to, int a, int b, int c, const int* temporaries) {
  const int mask = e.spare_mask();
  switch (in.op) {
    case NPU_OP_FMA:
      e.op(Encoder::kMove, to, 0, c);
      return e.op(Encoder::kFma231, to, a, b);
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
    case NPU_OP_RSQRT:
      e.op(Encoder::kSqrt, temporaries[0], 0, a);
      e.number(to, 1.0f);
      return e.op(Encoder::kDiv, to, to, temporaries[0]);
    case NPU_OP_RECIPROCAL:
      e.number(to, 1.0f);
      return e.op(Encoder::kDiv, to, to, a);
    case NPU_OP_ISNAN:
      return e.compare(to, a, a, kUnordered);
    case NPU_OP_ISINF:
      e.op_bits(Encoder::kAnd, temporaries[0], a, ~kSign);
      e.op_bits(Encoder::kBroadcast, temporaries[1], 0, kInfinity);
      return e.compare(to, temporaries[0], temporaries[1], kEq);
    case NPU_OP_SIGNBIT:
      return e.signs(to, a);
    case NPU_OP_WHERE:
      return e.choose(to, a, b, c);
    default:
      return emit_function(e, in.op, to, a, temporaries, mask);
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
  if (find(kLogic, in.op)) return type == NPU_BOOL;
  if (in.op == NPU_OP_WHERE) return in.dtype == NPU_F32;
  if (in.op == NPU_OP_CAST) {
    const bool plain = in.imm == NPU_DTYPE_NONE || static_cast<int>(in.imm) == in.dtype;
    if (type == NPU_BOOL) return in.dtype == NPU_F32 && plain;
    if (type != NPU_F32) return false;
    if (in.dtype == NPU_BOOL) return plain;
    return in.dtype == NPU_F32 && (plain || in.imm == NPU_BF16 || in.imm == NPU_F16);
  }
  return type == NPU_F32 && (find(kArithmetic, in.op) || find(kExtremes, in.op) || find(kComparisons, in.op) ||
                             find(kRoundings, in.op) || is_sequence(in.op) || is_function(in.op));
}

void emit_instruction(Vectors& e, const npu_instr& in, int type, int to, int a, int b, int c, const int* temporaries) {
  if (const auto* found = find(kArithmetic, in.op)) {
    e.op(found->code, to, found->unary ? 0 : a, found->unary ? a : b);
  } else if (const auto* found = find(kExtremes, in.op)) {
    extreme(e, found->code, to, a, b, found->keeps_nan ? b : a, e.spare_mask());
  } else if (const auto* found = find(kComparisons, in.op)) {
    e.compare(to, a, b, found->number);
  } else if (const auto* found = find(kRoundings, in.op)) {
    e.op_imm(Encoder::kRound, to, 0, a, found->number);
  } else if (const auto* found = find(kLogic, in.op)) {
    e.logic(static_cast<Vectors::Logic>(found->number), to, a, in.op == NPU_OP_NOT ? a : b);
  } else if (in.op == NPU_OP_CAST) {
    cast(e, in, type, to, a, temporaries);
  } else {
    emit_sequence(e, in, to, a, b, c, temporaries);
  }
}

}  // namespace cmodel
