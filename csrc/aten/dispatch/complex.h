// Complex tensors as real ones: a command knows no complex type. Pointwise programs take the two parts as two operands
// (map.h); ops that move elements or add them up treat the real parts and then the imaginary ones, or both as one more
// dimension of size 2.
#pragma once
#include <ATen/core/Tensor.h>

#include <utility>

namespace torch_npu {

// Both parts as a last dimension of size 2. Conj and neg bits are ignored: the memory as it is.
at::Tensor parts(const at::Tensor& tensor);
inline at::Tensor real_part(const at::Tensor& tensor) {
  return parts(tensor).select(-1, 0);
}
inline at::Tensor imag_part(const at::Tensor& tensor) {
  return parts(tensor).select(-1, 1);
}

// No command moves elements of 16 bytes in one piece.
inline bool too_wide(const at::Tensor& tensor) {
  return tensor.element_size() > 8;
}

// An index or a mask beside parts(): the same for both.
inline at::Tensor for_parts(const at::Tensor& tensor) {
  at::DimVector sizes(tensor.sizes());
  sizes.push_back(2);
  return tensor.unsqueeze(-1).expand(sizes);
}

// A bool tensor: true where either part is not zero.
at::Tensor truth(const at::Tensor& tensor);

}  // namespace torch_npu
