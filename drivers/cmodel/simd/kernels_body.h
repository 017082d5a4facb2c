// One level's table. A file that includes this defines CMODEL_ISA, the namespace that keeps its code apart from the
// other levels', and is compiled with that level's flags.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "drivers/cmodel/simd/function_tables.h"
#include "drivers/cmodel/simd/kernels.h"

// Vectors wider than the level's registers never cross a call that is not inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace cmodel::CMODEL_ISA {
namespace {

// clang-format off: each of these uses what stands above it
#include "drivers/cmodel/simd/math.h"
#include "drivers/cmodel/simd/ops.h"
#include "drivers/cmodel/simd/functions.h"
#include "drivers/cmodel/simd/convert.h"
#include "drivers/cmodel/simd/fold.h"
#include "drivers/cmodel/simd/half.h"
#include "drivers/cmodel/simd/wide.h"
#include "drivers/cmodel/simd/address.h"
// clang-format on

template <class Op, class... T>
void set1(Kernels& t, int op) {
  ((t.op[op][class_of<T>()] = unary<Op, T>), ...);
}
template <class Op, class... T>
void set2(Kernels& t, int op) {
  ((t.op[op][class_of<T>()] = binary<Op, T>), ...);
}
template <class Op>
void reals1(Kernels& t, int op) {
  set1<Op, float, double>(t, op);
}
template <class Op>
void reals2(Kernels& t, int op) {
  set2<Op, float, double>(t, op);
}
template <class Op>
void integers2(Kernels& t, int op) {
  set2<Op, int32_t, int64_t, uint64_t>(t, op);
}
template <class Op>
void numbers1(Kernels& t, int op) {
  set1<Op, int32_t, int64_t, uint64_t, float, double>(t, op);
}
template <class Op>
void numbers2(Kernels& t, int op) {
  set2<Op, int32_t, int64_t, uint64_t, float, double>(t, op);
}

void set_arithmetic(Kernels& t) {
  numbers2<Add>(t, NPU_OP_ADD);
  numbers2<Sub>(t, NPU_OP_SUB);
  numbers2<Mul>(t, NPU_OP_MUL);
  numbers2<Div>(t, NPU_OP_DIV);
  numbers2<FloorDiv>(t, NPU_OP_FLOORDIV);
  numbers2<Mod>(t, NPU_OP_MOD);
  numbers2<Fmod>(t, NPU_OP_FMOD);
  numbers2<Min>(t, NPU_OP_MIN);
  numbers2<Max>(t, NPU_OP_MAX);
  numbers2<Fmin>(t, NPU_OP_FMIN);
  numbers2<Fmax>(t, NPU_OP_FMAX);
  numbers2<Pow>(t, NPU_OP_POW);
  numbers2<Eq>(t, NPU_OP_EQ);
  numbers2<Ne>(t, NPU_OP_NE);
  numbers2<Lt>(t, NPU_OP_LT);
  numbers2<Le>(t, NPU_OP_LE);
  numbers2<Gt>(t, NPU_OP_GT);
  numbers2<Ge>(t, NPU_OP_GE);
  integers2<And>(t, NPU_OP_AND);
  integers2<Or>(t, NPU_OP_OR);
  integers2<Xor>(t, NPU_OP_XOR);
  integers2<Shl>(t, NPU_OP_SHL);
  integers2<Shr>(t, NPU_OP_SHR);
  numbers1<Neg>(t, NPU_OP_NEG);
  numbers1<Abs>(t, NPU_OP_ABS);
  numbers1<Sign>(t, NPU_OP_SIGN);
  numbers1<IsNan>(t, NPU_OP_ISNAN);
  numbers1<IsInf>(t, NPU_OP_ISINF);
  numbers1<SignBit>(t, NPU_OP_SIGNBIT);
  set1<Not, int32_t, int64_t, uint64_t>(t, NPU_OP_NOT);
  t.op[NPU_OP_FMA][kI32] = ternary<Fma, int32_t>;
  t.op[NPU_OP_FMA][kI64] = ternary<Fma, int64_t>;
  t.op[NPU_OP_FMA][kU64] = ternary<Fma, uint64_t>;
  t.op[NPU_OP_FMA][kF32] = ternary<Fma, float>;
  t.op[NPU_OP_FMA][kF64] = ternary<Fma, double>;
  t.op[NPU_OP_WHERE][kBool] = where<uint8_t>;
  t.op[NPU_OP_WHERE][kI32] = t.op[NPU_OP_WHERE][kF32] = where<uint32_t>;
  t.op[NPU_OP_WHERE][kI64] = t.op[NPU_OP_WHERE][kU64] = t.op[NPU_OP_WHERE][kF64] = where<uint64_t>;
  t.op[NPU_OP_PHILOX][kI64] = philox;
  t.op[NPU_OP_EQ][kBool] = binary<BoolEq, uint8_t>;
  t.op[NPU_OP_NE][kBool] = t.op[NPU_OP_XOR][kBool] = binary<BoolXor, uint8_t>;
  t.op[NPU_OP_LT][kBool] = binary<BoolLt, uint8_t>;
  t.op[NPU_OP_LE][kBool] = binary<BoolLe, uint8_t>;
  t.op[NPU_OP_GT][kBool] = binary<BoolGt, uint8_t>;
  t.op[NPU_OP_GE][kBool] = binary<BoolGe, uint8_t>;
  t.op[NPU_OP_AND][kBool] = t.op[NPU_OP_MIN][kBool] = binary<BoolAnd, uint8_t>;
  t.op[NPU_OP_OR][kBool] = t.op[NPU_OP_MAX][kBool] = binary<BoolOr, uint8_t>;
  t.op[NPU_OP_NOT][kBool] = unary<BoolNot, uint8_t>;
}

void set_functions(Kernels& t) {
  reals1<Floor>(t, NPU_OP_FLOOR);
  reals1<Ceil>(t, NPU_OP_CEIL);
  reals1<Round>(t, NPU_OP_ROUND);
  reals1<Trunc>(t, NPU_OP_TRUNC);
  reals1<Sqrt>(t, NPU_OP_SQRT);
  reals1<Rsqrt>(t, NPU_OP_RSQRT);
  reals1<Reciprocal>(t, NPU_OP_RECIPROCAL);
  reals1<Exp>(t, NPU_OP_EXP);
  reals1<Exp2>(t, NPU_OP_EXP2);
  reals1<Expm1>(t, NPU_OP_EXPM1);
  reals1<Log>(t, NPU_OP_LOG);
  reals1<Log2>(t, NPU_OP_LOG2);
  reals1<Log10>(t, NPU_OP_LOG10);
  reals1<Log1p>(t, NPU_OP_LOG1P);
  t.op[NPU_OP_SIN][kF32] = sincos_f32<0>;
  t.op[NPU_OP_COS][kF32] = sincos_f32<1>;
  t.op[NPU_OP_SIN][kF64] = unary<Sin, double>;
  t.op[NPU_OP_COS][kF64] = unary<Cos, double>;
  reals1<Tan>(t, NPU_OP_TAN);
  reals1<Asin>(t, NPU_OP_ASIN);
  reals1<Acos>(t, NPU_OP_ACOS);
  reals1<Atan>(t, NPU_OP_ATAN);
  reals1<Sinh>(t, NPU_OP_SINH);
  reals1<Cosh>(t, NPU_OP_COSH);
  reals1<Tanh>(t, NPU_OP_TANH);
  reals1<Asinh>(t, NPU_OP_ASINH);
  reals1<Acosh>(t, NPU_OP_ACOSH);
  reals1<Atanh>(t, NPU_OP_ATANH);
  reals1<Sigmoid>(t, NPU_OP_SIGMOID);
  reals1<Erf>(t, NPU_OP_ERF);
  reals1<Erfc>(t, NPU_OP_ERFC);
  reals1<Erfinv>(t, NPU_OP_ERFINV);
  reals1<Lgamma>(t, NPU_OP_LGAMMA);
  reals1<Digamma>(t, NPU_OP_DIGAMMA);
  reals2<Atan2>(t, NPU_OP_ATAN2);
  reals2<Hypot>(t, NPU_OP_HYPOT);
  reals2<Copysign>(t, NPU_OP_COPYSIGN);
  reals2<Nextafter>(t, NPU_OP_NEXTAFTER);
  t.op[NPU_OP_LDEXP][kF32] = ldexp_loop<float>;
  t.op[NPU_OP_LDEXP][kF64] = ldexp_loop<double>;
  t.op[NPU_OP_FREXP_M][kF32] = frexp_m<float>;
  t.op[NPU_OP_FREXP_M][kF64] = frexp_m<double>;
  t.op[NPU_OP_FREXP_E][kF32] = frexp_e<float>;
  t.op[NPU_OP_FREXP_E][kF64] = frexp_e<double>;
}

template <class T>
void set_folds(Kernels& t, TypeClass c) {
  using U = typename UnsignedOf<T>::type;
  t.fold[NPU_FOLD_SUM][c] = fold_wide<FoldSum, U>;
  t.fold[NPU_FOLD_PROD][c] = fold_wide<FoldProd, U>;
  t.fold[NPU_FOLD_MAX][c] = fold_extreme<FoldMax, T>;
  t.fold[NPU_FOLD_MIN][c] = fold_extreme<FoldMin, T>;
  t.fold_rows[NPU_FOLD_SUM][c] = fold_rows<FoldSum, U>;
  t.fold_rows[NPU_FOLD_MAX][c] = fold_rows<FoldMax, T>;
  t.fold_rows[NPU_FOLD_MIN][c] = fold_rows<FoldMin, T>;
  t.argmax[c] = arg_fold<T, true>;
  t.argmin[c] = arg_fold<T, false>;
  t.argmax_lanes[c] = arg_lanes<T, true>;
  t.argmin_lanes[c] = arg_lanes<T, false>;
  using Carry = decltype(carry_type<T>());
  t.scan[NPU_FOLD_SUM][c] = scan_row<Add, T, Carry>;
  t.scan[NPU_FOLD_PROD][c] = scan_row<Mul, T, Carry>;
  t.scan[NPU_FOLD_MAX][c] = scan_row<Max, T, T>;
  t.scan[NPU_FOLD_MIN][c] = scan_row<Min, T, T>;
  if constexpr (!is_real<T>) {
    t.fold[NPU_FOLD_AND][c] = fold_wide<FoldAnd, T>;
    t.fold[NPU_FOLD_OR][c] = fold_wide<FoldOr, T>;
    t.fold[NPU_FOLD_XOR][c] = fold_wide<FoldXor, T>;
    t.scan[NPU_FOLD_AND][c] = scan_row<And, T, T>;
    t.scan[NPU_FOLD_OR][c] = scan_row<Or, T, T>;
    t.scan[NPU_FOLD_XOR][c] = scan_row<Xor, T, T>;
  } else {
    t.scan_rows[NPU_FOLD_SUM][c] = scan_rows<Add, T, Carry>;
    t.scan_rows[NPU_FOLD_PROD][c] = scan_rows<Mul, T, Carry>;
    t.moments[c] = moments<T>;
    t.welford_lanes[c] = welford_lanes<T>;
  }
}

template <class First>
void set_pairs(Kernels& t, int row) {
  t.pair[row][0] = ternary<Pair<First, Add, false>, float>;
  t.pair[row][1] = ternary<Pair<First, Sub, false>, float>;
  t.pair[row][2] = ternary<Pair<First, Mul, false>, float>;
  t.pair[row][3] = ternary<Pair<First, Sub, true>, float>;
  t.pair[row][4] = ternary<Pair<First, Max, false>, float>;
}

Kernels make() {
  Kernels t{};
  t.name = CMODEL_ISA_NAME;
  set_arithmetic(t);
  set_functions(t);
  set_converts_to<Flag>(t, NPU_BOOL);
  set_converts_to<uint8_t>(t, NPU_U8);
  set_converts_to<int8_t>(t, NPU_I8);
  set_converts_to<uint16_t>(t, NPU_U16);
  set_converts_to<int16_t>(t, NPU_I16);
  set_converts_to<uint32_t>(t, NPU_U32);
  set_converts_to<int32_t>(t, NPU_I32);
  set_converts_to<uint64_t>(t, NPU_U64);
  set_converts_to<int64_t>(t, NPU_I64);
  set_converts_to<Half>(t, NPU_F16);
  set_converts_to<BFloat>(t, NPU_BF16);
  set_converts_to<float>(t, NPU_F32);
  set_converts_to<double>(t, NPU_F64);
  set_folds<int32_t>(t, kI32);
  set_folds<int64_t>(t, kI64);
  set_folds<uint64_t>(t, kU64);
  set_folds<float>(t, kF32);
  set_folds<double>(t, kF64);
  t.fold[NPU_FOLD_AND][kBool] = t.fold[NPU_FOLD_MIN][kBool] = fold_all;
  t.fold[NPU_FOLD_OR][kBool] = t.fold[NPU_FOLD_MAX][kBool] = fold_any;
  t.fold[NPU_FOLD_XOR][kBool] = fold_parity;
  t.scan[NPU_FOLD_AND][kBool] = t.scan[NPU_FOLD_MIN][kBool] = scan_row<BoolAnd, uint8_t, uint8_t>;
  t.scan[NPU_FOLD_OR][kBool] = t.scan[NPU_FOLD_MAX][kBool] = scan_row<BoolOr, uint8_t, uint8_t>;
  t.scan[NPU_FOLD_XOR][kBool] = scan_row<BoolXor, uint8_t, uint8_t>;
  t.argmax[kBool] = arg_fold<uint8_t, true>;
  t.argmin[kBool] = arg_fold<uint8_t, false>;
  t.argmax_lanes[kBool] = arg_lanes<uint8_t, true>;
  t.argmin_lanes[kBool] = arg_lanes<uint8_t, false>;
  set_moves<uint8_t>(t, 0);
  set_moves<uint16_t>(t, 1);
  set_moves<uint32_t>(t, 2);
  set_moves<uint64_t>(t, 3);
  set_addresses(t);
  t.copy_rows = copy_rows;
  t.stream = stream;
  set_halves(t);
  set_wide(t);
  set_pairs<Add>(t, 0);
  set_pairs<Sub>(t, 1);
  set_pairs<Mul>(t, 2);
  t.normalize = normalize;
  t.philox_pair = philox_words<true>;
  return t;
}

}  // namespace

const Kernels& table() {
  static const Kernels t = make();
  return t;
}

}  // namespace cmodel::CMODEL_ISA
