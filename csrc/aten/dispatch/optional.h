// Tensor arguments that a caller may leave out.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace torch_npu {

using OptTensor = std::optional<at::Tensor>;

// The tensor, or an undefined one.
inline at::Tensor given(const OptTensor& tensor) {
  return tensor.value_or(at::Tensor());
}

}  // namespace torch_npu
