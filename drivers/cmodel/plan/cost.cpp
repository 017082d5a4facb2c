#include "drivers/cmodel/plan/planner.h"

namespace cmodel {

int cost_of(const npu_instr& in) {
  const bool wide = in.dtype == NPU_F64;
  switch (in.op) {
    case NPU_OP_SEGMENT:
    case NPU_OP_CONST:
    case NPU_OP_PARAM:
    case NPU_OP_SIZE:
    case NPU_OP_GET:
      return 0;
    case NPU_OP_LOAD:
    case NPU_OP_STORE:
      return 150;
    case NPU_OP_LOAD_AT:
    case NPU_OP_STORE_AT:
    case NPU_OP_CHECK_INDEX:
      return 1000;
    case NPU_OP_PHILOX:
      return 8000;
    case NPU_OP_EXP:
    case NPU_OP_EXP2:
    case NPU_OP_EXPM1:
    case NPU_OP_LOG:
    case NPU_OP_LOG1P:
    case NPU_OP_SIN:
    case NPU_OP_COS:
    case NPU_OP_TANH:
    case NPU_OP_SIGMOID:
    case NPU_OP_ERF:
      return wide ? 10000 : 1000;
    case NPU_OP_DIV:
    case NPU_OP_SQRT:
    case NPU_OP_RSQRT:
    case NPU_OP_RECIPROCAL:
      return in.dtype == NPU_F32 ? 400 : 1500;
    case NPU_OP_FLOORDIV:
    case NPU_OP_MOD:
    case NPU_OP_FMOD:
    case NPU_OP_POW:
    case NPU_OP_FREXP_M:
    case NPU_OP_FREXP_E:
    case NPU_OP_LDEXP:
      return 8000;
    default:
      return in.op >= NPU_OP_LOG2 ? (in.op >= NPU_OP_ERFINV ? 40000 : 12000) : 200;
  }
}

}  // namespace cmodel
