#include "drivers/cmodel/jit_functions.h"

#include "drivers/cmodel/function_tables.h"
#include "npu/program.h"

namespace cmodel {
namespace {

constexpr uint32_t kSign = 0x80000000u, kNaN = 0x7fc00000u, kInfinity = 0x7f800000u;
constexpr uint8_t kEqual = 0, kLess = 17, kNotLess = 29, kNotLessOrNaN = 21;  // of vcmpps, without signalling

void number(Encoder& e, int to, float value) {
  e.op_number(Encoder::kBroadcast, to, 0, value);
}

// to = e^y for y in [-105, 89]. Changes y and n.
void exp_between(Encoder& e, int to, int y, int n) {
  e.op_number(Encoder::kMul, n, y, kLog2E);
  e.op_imm(Encoder::kRound, n, 0, n, 0);  // to the nearest
  e.op_number(Encoder::kFnma231, y, n, kLn2High);
  e.op_number(Encoder::kFnma231, y, n, kLn2Low);
  number(e, to, kExpSeries[0]);
  for (int i = 1; i < kExpTerms; ++i) e.op_number(Encoder::kFma213, to, y, kExpSeries[i]);
  e.op(Encoder::kScale, to, to, n);
}

void exp(Encoder& e, int to, int x, int y, int n) {
  number(e, y, kExpHighest);
  e.op(Encoder::kMin, y, y, x);
  number(e, n, kExpLowest);
  e.op(Encoder::kMax, y, n, y);
  exp_between(e, to, y, n);
}

void sigmoid(Encoder& e, int to, int x, int y, int n, int mask) {
  e.op_bits(Encoder::kOr, y, x, kSign);
  number(e, n, kExpLowest);
  e.op(Encoder::kMax, y, n, y);
  exp_between(e, to, y, n);
  e.op_number(Encoder::kAdd, n, to, 1.0f);
  number(e, y, 1.0f);
  e.op(Encoder::kSigns, mask, 0, x);
  e.op(Encoder::kMove, y, 0, to, mask);
  e.op(Encoder::kDiv, to, y, n);
}

void erf(Encoder& e, int to, int x, const int* temporaries, int mask) {
  const int t = temporaries[0], k = temporaries[1], s = temporaries[2], u = temporaries[3], look = temporaries[4];
  e.op_bits(Encoder::kAnd, t, x, ~kSign);
  number(e, s, kErfLast);
  e.op(Encoder::kMin, s, s, t);
  e.op_number(Encoder::kMul, k, s, 4.0f);
  e.op(Encoder::kToInt, k, 0, k);
  e.op_table(Encoder::kPermute, u, k, kErfCenter);
  e.op(Encoder::kSub, u, s, u);
  e.op_table(Encoder::kPermute, to, k, kErfQ[4]);
  for (int i = 3; i >= 0; --i) {
    e.op_table(Encoder::kPermute, look, k, kErfQ[i]);
    e.op(Encoder::kFma213, to, u, look);
  }
  e.op_table(Encoder::kPermute, look, k, kErfValue);
  e.op(Encoder::kTestNone, mask, k, k);
  e.op(Encoder::kMove, look, 0, s, mask);
  e.op(Encoder::kFma213, to, u, look);
  number(e, look, 4.0f);
  e.op_imm(Encoder::kCompare, mask, t, look, kNotLess);
  number(e, look, 1.0f);
  e.op(Encoder::kMove, to, 0, look, mask);
  e.op_bits(Encoder::kAnd, look, x, kSign);
  e.op(Encoder::kOr, to, to, look);
}

// to = p(x), the highest power first.
void series(Encoder& e, int to, int x, const float* terms, int count) {
  number(e, to, terms[0]);
  for (int i = 1; i < count; ++i) e.op_number(Encoder::kFma213, to, x, terms[i]);
}

void tanh(Encoder& e, int to, int x, const int* temporaries, int mask) {
  const int z = temporaries[0], n = temporaries[1], far = temporaries[2], t = temporaries[3];
  // near 0: x + x * z * p(z)
  e.op(Encoder::kMul, z, x, x);
  series(e, to, z, kTanhSeries, kTanhTerms);
  e.op(Encoder::kMul, to, to, z);
  e.op(Encoder::kFma213, to, x, x);
  // elsewhere: (1 - e) / (1 + e), e = e^(-2 |x|)
  e.op_bits(Encoder::kAnd, t, x, ~kSign);
  e.op_number(Encoder::kMul, z, t, -2.0f);
  number(e, n, kTanhLowest);
  e.op(Encoder::kMax, z, z, n);
  exp_between(e, far, z, n);
  number(e, n, 1.0f);
  e.op(Encoder::kAdd, z, n, far);
  e.op(Encoder::kSub, far, n, far);
  e.op(Encoder::kDiv, far, far, z);
  e.op_bits(Encoder::kAnd, z, x, kSign);
  e.op(Encoder::kOr, far, far, z);
  number(e, n, kTanhNear);
  e.op_imm(Encoder::kCompare, mask, t, n, kNotLess);  // not where x is NaN, which the first way keeps
  e.op(Encoder::kMove, to, 0, far, mask);
}

void exp2(Encoder& e, int to, int x, int y, int n) {
  number(e, y, kExp2Highest);
  e.op(Encoder::kMin, y, y, x);
  number(e, n, kExp2Lowest);
  e.op(Encoder::kMax, y, n, y);
  e.op_imm(Encoder::kRound, n, 0, y, 0);
  e.op(Encoder::kSub, y, y, n);
  e.op_number(Encoder::kMul, y, y, kLn2);
  series(e, to, y, kExpSeries, kExpTerms);
  e.op(Encoder::kScale, to, to, n);
}

void expm1(Encoder& e, int to, int x, const int* temporaries, int mask) {
  const int y = temporaries[0], n = temporaries[1], one = temporaries[2];
  number(e, y, kExpHighest);
  e.op(Encoder::kMin, y, y, x);
  number(e, n, kExpm1Lowest);
  e.op(Encoder::kMax, y, n, y);
  e.op_number(Encoder::kMul, n, y, kLog2E);
  e.op_imm(Encoder::kRound, n, 0, n, 0);
  e.op_number(Encoder::kFnma231, y, n, kLn2High);
  e.op_number(Encoder::kFnma231, y, n, kLn2Low);
  series(e, to, y, kExpSeries, kExpTerms - 2);
  e.op(Encoder::kMul, to, to, y);
  e.op(Encoder::kFma213, to, y, y);
  // 1 - 2^-n, of which no more than 2^-126 is taken
  e.op_number(Encoder::kMin, one, n, 126.0f);
  e.op_bits(Encoder::kXor, y, one, kSign);
  number(e, one, 1.0f);
  e.op(Encoder::kScale, y, one, y);
  e.op(Encoder::kSub, one, one, y);
  e.op(Encoder::kAdd, to, to, one);
  e.op(Encoder::kScale, to, to, n);
  e.op(Encoder::kXor, one, one, one);
  e.op_imm(Encoder::kCompare, mask, x, one, kEqual);
  e.op(Encoder::kMove, to, 0, x, mask);
}

// x where it is an infinity or NaN; -infinity where it is `pole`.
void log_ends(Encoder& e, int to, int x, float pole, int t, int mask) {
  number(e, t, pole);
  e.op_imm(Encoder::kCompare, mask, x, t, kEqual);
  e.op_bits(Encoder::kBroadcast, to, 0, kSign | kInfinity, mask);
  e.op_bits(Encoder::kBroadcast, t, 0, kInfinity);
  e.op_imm(Encoder::kCompare, mask, x, t, kNotLessOrNaN);
  e.op(Encoder::kAdd, to, x, x, mask);
}

void log(Encoder& e, int to, int x, const int* temporaries, int mask) {
  const int y = temporaries[0], n = temporaries[1], z = temporaries[2];
  // The significand ends up in [sqrt(1/2), sqrt(2)).
  e.op(Encoder::kMove, y, 0, x);
  number(e, z, kLeastNormal);
  e.op_imm(Encoder::kCompare, mask, x, z, kLess);
  e.op_number(Encoder::kMul, y, x, 8388608.0f, mask);
  e.op_bits(Encoder::kIntSub, n, y, kRootHalf);
  e.shift(Encoder::kRightSigned, n, n, 23);
  e.shift(Encoder::kLeft, z, n, 23);
  e.op(Encoder::kIntSub, y, y, z);
  e.op_number(Encoder::kSub, y, y, 1.0f);
  e.op_bits(Encoder::kIntSub, n, n, 23, mask);
  e.op(Encoder::kFromInt, n, 0, n);
  series(e, to, y, kLogSeries, kLogTerms);
  e.op(Encoder::kMul, z, y, y);
  e.op(Encoder::kMul, to, to, y);
  e.op(Encoder::kMul, to, to, z);
  e.op_number(Encoder::kFma231, to, n, kLn2Low);
  e.op_number(Encoder::kFma231, to, z, -0.5f);
  e.op(Encoder::kAdd, to, to, y);
  e.op_number(Encoder::kFma231, to, n, kLn2High);
  e.op(Encoder::kXor, z, z, z);
  e.op_imm(Encoder::kCompare, mask, x, z, kLess);
  e.op_bits(Encoder::kBroadcast, to, 0, kNaN, mask);
  log_ends(e, to, x, 0.0f, z, mask);
}

void log1p(Encoder& e, int to, int x, const int* temporaries, int mask) {
  const int u = temporaries[3], correction = temporaries[4];
  e.op_number(Encoder::kAdd, u, x, 1.0f);
  log(e, to, u, temporaries, mask);
  e.op_number(Encoder::kSub, correction, u, 1.0f);
  e.op(Encoder::kSub, correction, x, correction);
  e.op(Encoder::kDiv, correction, correction, u);
  e.op(Encoder::kAdd, to, to, correction);
  e.op(Encoder::kXor, u, u, u);
  e.op_imm(Encoder::kCompare, mask, x, u, kEqual);
  e.op(Encoder::kMove, to, 0, x, mask);
  log_ends(e, to, x, -1.0f, u, mask);
}

}  // namespace

bool is_function(int op) {
  return temporaries_of_function(op) != 0;
}

int temporaries_of_function(int op) {
  switch (op) {
    case NPU_OP_EXP:
    case NPU_OP_EXP2:
    case NPU_OP_SIGMOID:
      return 2;
    case NPU_OP_EXPM1:
    case NPU_OP_LOG:
      return 3;
    case NPU_OP_TANH:
      return 4;
    case NPU_OP_ERF:
    case NPU_OP_LOG1P:
      return 5;
    default:
      return 0;
  }
}

void emit_function(Encoder& e, int op, int to, int x, const int* temporaries, int mask) {
  switch (op) {
    case NPU_OP_EXP:
      return exp(e, to, x, temporaries[0], temporaries[1]);
    case NPU_OP_EXP2:
      return exp2(e, to, x, temporaries[0], temporaries[1]);
    case NPU_OP_EXPM1:
      return expm1(e, to, x, temporaries, mask);
    case NPU_OP_SIGMOID:
      return sigmoid(e, to, x, temporaries[0], temporaries[1], mask);
    case NPU_OP_LOG:
      return log(e, to, x, temporaries, mask);
    case NPU_OP_LOG1P:
      return log1p(e, to, x, temporaries, mask);
    case NPU_OP_TANH:
      return tanh(e, to, x, temporaries, mask);
    default:
      return erf(e, to, x, temporaries, mask);
  }
}

}  // namespace cmodel
