#include "drivers/cmodel/jit/functions.h"

#include "drivers/cmodel/simd/function_tables.h"
#include "npu/program.h"

namespace cmodel {
namespace {

constexpr uint32_t kSign = 0x80000000u, kNaN = 0x7fc00000u, kInfinity = 0x7f800000u, kTwoTo23 = 0x4b000000u;
constexpr uint8_t kEqual = 0, kLess = 17, kNotLess = 29, kNotLessOrNaN = 21;  // of vcmpps, without signalling

// to = p(x), the highest power first.
void series(Vectors& e, int to, int x, const float* terms, int count) {
  e.number(to, terms[0]);
  for (int i = 1; i < count; ++i) e.op_number(Encoder::kFma213, to, x, terms[i]);
}

// to = e^y for y in [-105, 89]; kDown: in [-105, 0]; kNormal: in [-87, 88]. Changes y and n.
void exp_between(Vectors& e, int to, int y, int n, Vectors::Range range = Vectors::kAny) {
  e.op_number(Encoder::kMul, n, y, kLog2E);
  e.op_imm(Encoder::kRound, n, 0, n, 0);  // to the nearest
  e.op_number(Encoder::kFnma231, y, n, kLn2High);
  e.op_number(Encoder::kFnma231, y, n, kLn2Low);
  series(e, to, y, kExpSeries, kExpTerms);
  e.scale(to, n, range);
}

void exp(Vectors& e, int to, int x, int y, int n) {
  e.number(y, kExpHighest);
  e.op(Encoder::kMin, y, y, x);
  e.number(n, kExpLowest);
  e.op(Encoder::kMax, y, n, y);
  exp_between(e, to, y, n);
}

void sigmoid(Vectors& e, int to, int x, int y, int n) {
  e.op_bits(Encoder::kOr, y, x, kSign);
  e.number(n, kExpLowest);
  e.op(Encoder::kMax, y, n, y);
  exp_between(e, to, y, n, Vectors::kDown);
  e.op_number(Encoder::kAdd, n, to, 1.0f);
  e.number(y, 1.0f);
  e.move_where_negative(x, y, to);
  e.op(Encoder::kDiv, to, y, n);
}

// The magnitude `far` with the sign of x, where t = |x| is at least `near`. Changes z and n.
void take_far(Vectors& e, int to, int x, int far, int t, float near, int z, int n, int mask) {
  e.op_bits(Encoder::kAnd, z, x, kSign);
  e.op(Encoder::kOr, far, far, z);
  e.number(n, near);
  e.compare(mask, t, n, kNotLess);  // not where x is NaN, which stays as it is
  e.move_where(mask, to, far);
}

void erf_by_series(Vectors& e, int to, int x, const int* temporaries, int mask) {
  const int z = temporaries[0], n = temporaries[1], far = temporaries[2], t = temporaries[3], q = temporaries[4];
  e.op(Encoder::kMul, z, x, x);
  series(e, to, z, kErfNearSeries, kErfNearTerms);
  e.op(Encoder::kFma213, to, x, x);
  // elsewhere: 1 - e^(-s * q(s)), s = |x|
  e.op_bits(Encoder::kAnd, t, x, ~kSign);
  e.number(z, kErfHighest);
  e.op(Encoder::kMin, z, z, t);
  series(e, q, z, kErfFarSeries, kErfFarTerms);
  e.op(Encoder::kMul, q, q, z);
  e.op_bits(Encoder::kXor, q, q, kSign);
  exp_between(e, far, q, n, Vectors::kNormal);
  e.number(n, 1.0f);
  e.op(Encoder::kSub, far, n, far);
  take_far(e, to, x, far, t, kErfNear, z, n, mask);
}

// With registers that hold a table of sixteen numbers (AVX-512), k says which one: u = s - center, to = q(u).
template <size_t Terms>
void series_by_table(Vectors& e, int to, int u, int s, int k, int look, const float* center,
                     const float (&q)[Terms][16]) {
  e.op_table(Encoder::kPermute, u, k, center);
  e.op(Encoder::kSub, u, s, u);
  e.op_table(Encoder::kPermute, to, k, q[Terms - 1]);
  for (size_t i = Terms - 1; i-- > 0;) {
    e.op_table(Encoder::kPermute, look, k, q[i]);
    e.op(Encoder::kFma213, to, u, look);
  }
}

void erf_by_table(Vectors& e, int to, int x, const int* temporaries, int mask) {
  const int t = temporaries[0], k = temporaries[1], s = temporaries[2], u = temporaries[3], look = temporaries[4];
  e.op_bits(Encoder::kAnd, t, x, ~kSign);
  e.number(s, kErfLast);
  e.op(Encoder::kMin, s, s, t);
  e.op_number(Encoder::kMul, k, s, 4.0f);
  e.op(Encoder::kToInt, k, 0, k);
  series_by_table(e, to, u, s, k, look, kErfCenter, kErfQ);
  e.op_table(Encoder::kPermute, look, k, kErfValue);
  e.op({Encoder::k0F38, Encoder::kF3, 0x27}, mask, k, k);  // where k is 0
  e.move_where(mask, look, s);
  e.op(Encoder::kFma213, to, u, look);
  e.number(look, 4.0f);
  e.compare(mask, t, look, kNotLess);
  e.number(look, 1.0f);
  e.move_where(mask, to, look);
  e.op_bits(Encoder::kAnd, look, x, kSign);
  e.op(Encoder::kOr, to, to, look);
}

void tanh_by_series(Vectors& e, int to, int x, const int* temporaries, int mask) {
  const int z = temporaries[0], n = temporaries[1], far = temporaries[2], t = temporaries[3];
  // near 0: x + x * z * p(z)
  e.op(Encoder::kMul, z, x, x);
  series(e, to, z, kTanhSeries, kTanhTerms);
  e.op(Encoder::kMul, to, to, z);
  e.op(Encoder::kFma213, to, x, x);
  // elsewhere: (1 - e) / (1 + e), e = e^(-2 |x|)
  e.op_bits(Encoder::kAnd, t, x, ~kSign);
  e.op_number(Encoder::kMul, z, t, -2.0f);
  e.number(n, kTanhLowest);
  e.op(Encoder::kMax, z, z, n);
  exp_between(e, far, z, n, Vectors::kNormal);
  e.number(n, 1.0f);
  e.op(Encoder::kAdd, z, n, far);
  e.op(Encoder::kSub, far, n, far);
  e.op(Encoder::kDiv, far, far, z);
  take_far(e, to, x, far, t, kTanhNear, z, n, mask);
}

void tanh_by_table(Vectors& e, int to, int x, const int* temporaries, int) {
  const int s = temporaries[0], k = temporaries[1], u = temporaries[2], look = temporaries[3];
  e.op_bits(Encoder::kAnd, u, x, ~kSign);
  e.number(s, kTanhLast);
  e.op(Encoder::kMin, s, s, u);  // NaN: the second argument
  e.number(k, kTanhFirst);
  e.op(Encoder::kMax, k, k, s);
  e.shift(Encoder::kRight, k, k, 22);
  series_by_table(e, to, u, s, k, look, kTanhCenter, kTanhQ);
  e.op_table(Encoder::kPermute, look, k, kTanhValue);
  e.op(Encoder::kFma213, to, u, look);
  e.op_bits(Encoder::kAnd, look, x, kSign);
  e.op(Encoder::kOr, to, to, look);
}

void exp2(Vectors& e, int to, int x, int y, int n) {
  e.number(y, kExp2Highest);
  e.op(Encoder::kMin, y, y, x);
  e.number(n, kExp2Lowest);
  e.op(Encoder::kMax, y, n, y);
  e.op_imm(Encoder::kRound, n, 0, y, 0);
  e.op(Encoder::kSub, y, y, n);
  e.op_number(Encoder::kMul, y, y, kLn2);
  series(e, to, y, kExpSeries, kExpTerms);
  e.scale(to, n);
}

void expm1(Vectors& e, int to, int x, const int* temporaries, int mask) {
  const int y = temporaries[0], n = temporaries[1], one = temporaries[2];
  e.number(y, kExpHighest);
  e.op(Encoder::kMin, y, y, x);
  e.number(n, kExpm1Lowest);
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
  e.number(one, 1.0f);
  e.scale(one, y);
  e.number(y, 1.0f);
  e.op(Encoder::kSub, one, y, one);
  e.op(Encoder::kAdd, to, to, one);
  e.scale(to, n);
  e.zero(one);
  e.compare(mask, x, one, kEqual);
  e.move_where(mask, to, x);
}

// x where it is an infinity or NaN; -infinity where it is `pole`.
void log_ends(Vectors& e, int to, int x, float pole, int t, int mask) {
  e.number(t, pole);
  e.compare(mask, x, t, kEqual);
  e.bits_where(mask, to, kSign | kInfinity);
  e.op_bits(Encoder::kBroadcast, t, 0, kInfinity);
  e.compare(mask, x, t, kNotLessOrNaN);
  e.op_where(mask, Encoder::kAdd, to, x, x);
}

void log(Vectors& e, int to, int x, const int* temporaries, int mask) {
  const int y = temporaries[0], n = temporaries[1], z = temporaries[2];
  // The significand ends up in [sqrt(1/2), sqrt(2)).
  e.op(Encoder::kMove, y, 0, x);
  e.number(z, kLeastNormal);
  e.compare(mask, x, z, kLess);
  e.op_bits_where(mask, Encoder::kMul, y, x, kTwoTo23);
  e.op_bits(Encoder::kIntSub, n, y, kRootHalf);
  e.shift(Encoder::kRightSigned, n, n, 23);
  e.shift(Encoder::kLeft, z, n, 23);
  e.op(Encoder::kIntSub, y, y, z);
  e.op_number(Encoder::kSub, y, y, 1.0f);
  e.op_bits_where(mask, Encoder::kIntSub, n, n, 23);
  e.op(Encoder::kFromInt, n, 0, n);
  series(e, to, y, kLogSeries, kLogTerms);
  e.op(Encoder::kMul, z, y, y);
  e.op(Encoder::kMul, to, to, y);
  e.op(Encoder::kMul, to, to, z);
  e.op_number(Encoder::kFma231, to, n, kLn2Low);
  e.op_number(Encoder::kFma231, to, z, -0.5f);
  e.op(Encoder::kAdd, to, to, y);
  e.op_number(Encoder::kFma231, to, n, kLn2High);
  e.zero(z);
  e.compare(mask, x, z, kLess);
  e.bits_where(mask, to, kNaN);
  log_ends(e, to, x, 0.0f, z, mask);
}

void log1p(Vectors& e, int to, int x, const int* temporaries, int mask) {
  const int u = temporaries[3], correction = temporaries[4];
  e.op_number(Encoder::kAdd, u, x, 1.0f);
  log(e, to, u, temporaries, mask);
  e.op_number(Encoder::kSub, correction, u, 1.0f);
  e.op(Encoder::kSub, correction, x, correction);
  e.op(Encoder::kDiv, correction, correction, u);
  e.op(Encoder::kAdd, to, to, correction);
  e.zero(u);
  e.compare(mask, x, u, kEqual);
  e.move_where(mask, to, x);
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

void emit_function(Vectors& e, int op, int to, int x, const int* temporaries, int mask) {
  switch (op) {
    case NPU_OP_EXP:
      return exp(e, to, x, temporaries[0], temporaries[1]);
    case NPU_OP_EXP2:
      return exp2(e, to, x, temporaries[0], temporaries[1]);
    case NPU_OP_EXPM1:
      return expm1(e, to, x, temporaries, mask);
    case NPU_OP_SIGMOID:
      return sigmoid(e, to, x, temporaries[0], temporaries[1]);
    case NPU_OP_LOG:
      return log(e, to, x, temporaries, mask);
    case NPU_OP_LOG1P:
      return log1p(e, to, x, temporaries, mask);
    case NPU_OP_TANH:
      return (e.wide() ? tanh_by_table : tanh_by_series)(e, to, x, temporaries, mask);
    default:
      return (e.wide() ? erf_by_table : erf_by_series)(e, to, x, temporaries, mask);
  }
}

}  // namespace cmodel
