// PyTorch's scalar types in the contract's terms.
#pragma once
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include "csrc/core/launch/launch.h"
#include "npu/program.h"

namespace torch_npu {

// NPU_DTYPE_NONE for types that no command carries (complex, quantised, 8-bit floats).
constexpr npu_dtype storage_dtype(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Bool:
      return NPU_BOOL;
    case c10::ScalarType::Byte:
      return NPU_U8;
    case c10::ScalarType::Char:
      return NPU_I8;
    case c10::ScalarType::UInt16:
      return NPU_U16;
    case c10::ScalarType::Short:
      return NPU_I16;
    case c10::ScalarType::UInt32:
      return NPU_U32;
    case c10::ScalarType::Int:
      return NPU_I32;
    case c10::ScalarType::UInt64:
      return NPU_U64;
    case c10::ScalarType::Long:
      return NPU_I64;
    case c10::ScalarType::Half:
      return NPU_F16;
    case c10::ScalarType::BFloat16:
      return NPU_BF16;
    case c10::ScalarType::Float:
      return NPU_F32;
    case c10::ScalarType::Double:
      return NPU_F64;
    default:
      return NPU_DTYPE_NONE;
  }
}

// The type a program computes in for values of this storage type.
constexpr npu_dtype compute_dtype(npu_dtype type) {
  switch (type) {
    case NPU_U8:
    case NPU_I8:
    case NPU_U16:
    case NPU_I16:
      return NPU_I32;
    case NPU_U32:
      return NPU_I64;
    case NPU_F16:
    case NPU_BF16:
      return NPU_F32;
    default:
      return type;
  }
}

// The storage type of the real and of the imaginary part; NPU_DTYPE_NONE for types that are not complex.
constexpr npu_dtype part_dtype(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::ComplexFloat:
      return NPU_F32;
    case c10::ScalarType::ComplexDouble:
      return NPU_F64;
    default:
      return NPU_DTYPE_NONE;
  }
}

inline bool is_float(npu_dtype type) {
  return type >= NPU_F16 && type <= NPU_F64;
}

// As a program of this compute type reads it.
inline npu_scalar scalar_param(const c10::Scalar& value, npu_dtype compute) {
  npu_scalar out;
  if (is_float(compute)) {
    out.f = value.toDouble();
  } else if (value.isUnsigned()) {
    out.u = value.toUInt64();
  } else {
    out.i = value.isFloatingPoint() ? static_cast<int64_t>(value.toDouble()) : value.toLong();
  }
  return out;
}

}  // namespace torch_npu
