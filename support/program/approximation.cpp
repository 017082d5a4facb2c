#include "support/program/approximation.h"

#include "npu/program.h"

namespace npu {

Approximation approximation(int op) {
  switch (op) {
    case NPU_OP_RSQRT:
    case NPU_OP_EXP:
    case NPU_OP_EXP2:
    case NPU_OP_EXPM1:
    case NPU_OP_LOG:
    case NPU_OP_LOG2:
    case NPU_OP_LOG10:
    case NPU_OP_LOG1P:
    case NPU_OP_ASIN:
    case NPU_OP_ACOS:
    case NPU_OP_ATAN:
    case NPU_OP_ATAN2:
    case NPU_OP_SINH:
    case NPU_OP_COSH:
    case NPU_OP_TANH:
    case NPU_OP_ASINH:
    case NPU_OP_ACOSH:
    case NPU_OP_ATANH:
    case NPU_OP_SIGMOID:
    case NPU_OP_ERF:
    case NPU_OP_ERFC:
    case NPU_OP_HYPOT:
      return {4, 0};
    case NPU_OP_SIN:
    case NPU_OP_COS:
      return {4, 1e-6};
    case NPU_OP_TAN:
    case NPU_OP_LGAMMA:
    case NPU_OP_DIGAMMA:
      return {16, 1e-6};
    case NPU_OP_POW:
    case NPU_OP_ERFINV:
      return {16, 0};
    default:
      return {};
  }
}

}  // namespace npu
