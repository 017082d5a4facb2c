// What both forms of accumulators need: the instruction of each fold, types, and the fold's arguments.
#pragma once
#include <cstdint>

#include "drivers/cmodel/interpreter/interpreter.h"

namespace cmodel {

inline constexpr uint8_t kOps[] = {NPU_OP_ADD, NPU_OP_MUL, NPU_OP_MAX, NPU_OP_MIN, NPU_OP_AND, NPU_OP_OR, NPU_OP_XOR};

inline double as_double(uint64_t bits) {
  return __builtin_bit_cast(double, bits);
}
inline uint64_t as_bits(double x) {
  return __builtin_bit_cast(uint64_t, x);
}

// Is (value, index) a better extreme than the one held? A NaN beats every number; equals: the lower index.
template <class T>
bool beats(bool greatest, T a, int64_t ai, T b, int64_t bi) {
  const bool an = a != a, bn = b != b;
  if (an != bn) return an;
  if (!an && a != b) return greatest ? a > b : a < b;
  return ai < bi;
}

template <class F>
auto with_type(int dtype, F f) {
  switch (dtype) {
    case NPU_BOOL:
      return f(uint8_t());
    case NPU_I32:
      return f(int32_t());
    case NPU_I64:
      return f(int64_t());
    case NPU_U64:
      return f(uint64_t());
    case NPU_F32:
      return f(float());
    default:
      return f(double());
  }
}

// The n values of a fold's argument as an array; bytes of a BOOL in memory become 0 or 1.
inline const char* argument(Frame& f, int id, int64_t n, char* to) {
  const int dtype = f.plan->ops[id].dtype;
  const char* values = dense(f, f.val[id], dtype, n, to);
  if (dtype != NPU_BOOL) return values;
  f.k->convert[NPU_BOOL][NPU_BOOL](to, values, n);
  return to;
}

}  // namespace cmodel
