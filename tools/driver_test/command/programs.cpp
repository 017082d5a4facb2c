#include "tools/driver_test/command/programs.h"

#include <algorithm>

#include "support/program/approximation.h"
#include "support/program/op_info.h"

namespace driver_test {

const std::vector<int>& compute_dtypes() {
  static const std::vector<int> all = {NPU_BOOL, NPU_I32, NPU_I64, NPU_U64, NPU_F32, NPU_F64};
  return all;
}

const std::vector<Inexact>& inexact_ops() {
  static const std::vector<Inexact> all = [] {
    std::vector<Inexact> made;
    for (int op = 0; op < NPU_OP_COUNT; op++)
      if (const npu::Approximation allowed = npu::approximation(op); allowed.ulp > 0)
        made.push_back({op, allowed.ulp + 3, allowed.absolute});
    return made;
  }();
  return all;
}

Id Grower::find(int dtype) {
  std::vector<Id> fit;
  for (Id id : values_)
    if (b.type(id) == dtype) fit.push_back(id);
  return fit.empty() ? none : random_.pick(fit);
}

Id Grower::pick(int dtype) {
  Id found = find(dtype);
  if (found == none) give(found = b.cast(pick_any(), dtype));
  return found;
}

// Left out: what shows the sign of a NaN (signbit, copysign, bitcast), which no rule defines.
const std::vector<int>& exact_ops() {
  static const std::vector<int> all = {
      NPU_OP_ADD,        NPU_OP_SUB,       NPU_OP_MUL,   NPU_OP_DIV,     NPU_OP_FLOORDIV, NPU_OP_MOD,    NPU_OP_FMOD,
      NPU_OP_FMA,        NPU_OP_NEG,       NPU_OP_ABS,   NPU_OP_SIGN,    NPU_OP_MIN,      NPU_OP_MAX,    NPU_OP_FMIN,
      NPU_OP_FMAX,       NPU_OP_EQ,        NPU_OP_NE,    NPU_OP_LT,      NPU_OP_LE,       NPU_OP_GT,     NPU_OP_GE,
      NPU_OP_ISNAN,      NPU_OP_ISINF,     NPU_OP_AND,   NPU_OP_OR,      NPU_OP_XOR,      NPU_OP_NOT,    NPU_OP_SHL,
      NPU_OP_SHR,        NPU_OP_WHERE,     NPU_OP_FLOOR, NPU_OP_CEIL,    NPU_OP_ROUND,    NPU_OP_TRUNC,  NPU_OP_SQRT,
      NPU_OP_RECIPROCAL, NPU_OP_NEXTAFTER, NPU_OP_LDEXP, NPU_OP_FREXP_M, NPU_OP_FREXP_E,  NPU_OP_PHILOX, NPU_OP_POW,
      NPU_OP_CAST};
  return all;
}

bool is_exact(int op) {
  return op != NPU_OP_CAST && op != NPU_OP_WHERE && op != NPU_OP_PHILOX &&
         std::find(exact_ops().begin(), exact_ops().end(), op) != exact_ops().end();
}

bool Grower::step() {
  const int op = random_.chance(5) ? int{NPU_OP_CAST} : random_.pick(exact_ops());
  const npu::OpInfo& info = npu::op_info(op);
  if (op == NPU_OP_CAST) {
    const int through = random_.chance(50) ? int{NPU_DTYPE_NONE} : static_cast<int>(random_.below(NPU_DTYPE_COUNT));
    give(b.cast(pick_any(), random_.pick(compute_dtypes()), through));
    return true;
  }
  if (op == NPU_OP_WHERE) {
    const int type = b.type(pick_any());
    const Id condition = pick(NPU_BOOL), yes = pick(type), no = pick(type);
    give(b.where(condition, yes, no));
    return true;
  }
  if (op == NPU_OP_PHILOX) {
    const Id seed = pick(NPU_I64), offset = pick(NPU_I64), part = pick(NPU_I64);
    give(b.emit(op, NPU_I64, seed, offset, part, static_cast<uint32_t>(random_.below(4))));
    return true;
  }
  const Id a = pick_any();
  const int type = b.type(a);
  const bool real = type == NPU_F32 || type == NPU_F64;
  if (op == NPU_OP_LDEXP) {
    if (!real) return false;
    const Id exponent = pick(NPU_I32);
    give(b.emit(op, type, a, exponent));
    return true;
  }
  if (!(npu::dtype_class(type) & info.types) || (op == NPU_OP_POW && real)) return false;
  const Id second = info.args > 1 ? pick(type) : none, third = info.args > 2 ? pick(type) : none;
  const int result = info.result == npu::Result::kBool  ? int{NPU_BOOL}
                     : info.result == npu::Result::kI32 ? int{NPU_I32}
                     : info.result == npu::Result::kI64 ? int{NPU_I64}
                                                        : type;
  give(b.emit(op, result, a, second, third));
  return true;
}

void Grower::grow(int steps) {
  for (int made = 0, tries = 0; made < steps && tries < steps * 20; tries++) made += step();
}

}  // namespace driver_test
