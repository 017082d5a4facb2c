#include "drivers/cmodel/jit_functions.h"

#include "drivers/cmodel/function_tables.h"
#include "npu/program.h"

namespace cmodel {
namespace {

constexpr uint32_t kSign = 0x80000000u;
constexpr uint8_t kNotLess = 29;  // of vcmpps, without signalling

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

}  // namespace

int temporaries_of(int op) {
  switch (op) {
    case NPU_OP_EXP:
    case NPU_OP_SIGMOID:
      return 2;
    case NPU_OP_ERF:
      return 5;
    default:
      return 0;
  }
}

void emit_function(Encoder& e, int op, int to, int x, const int* temporaries, int mask) {
  if (op == NPU_OP_EXP) return exp(e, to, x, temporaries[0], temporaries[1]);
  if (op == NPU_OP_SIGMOID) return sigmoid(e, to, x, temporaries[0], temporaries[1], mask);
  erf(e, to, x, temporaries, mask);
}

}  // namespace cmodel
