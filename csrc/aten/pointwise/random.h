// Random numbers by Philox. Element i (in memory order of a dense tensor) is a function of the generator's seed and
// offset and of i alone, whatever the shape and however a driver splits the work.
#pragma once
#include <ATen/ops/empty_like.h>

#include "csrc/aten/dispatch/nest.h"

namespace torch_npu {

// One dimension over all elements of a dense tensor, with seed and offset drawn and set as the first parameters.
class RandomNest : public Nest {
 public:
  RandomNest(const char* label, int64_t count, const at::Tensor& first, const std::optional<at::Generator>& generator);
};

// Calls `fill` with a dense tensor, and copies it to `self` if that is not one.
template <class Fill>
void fill_dense(const at::Tensor& self, Fill fill) {
  if (self.numel() == 0) {
    return;
  }
  if (self.is_non_overlapping_and_dense()) {
    return fill(self);
  }
  const at::Tensor dense = at::empty_like(self, at::MemoryFormat::Contiguous);
  fill(dense);
  self.copy_(dense);
}

// Bits of the significand: every integer below 2^digits is exact in the type.
constexpr int digits_of(npu_dtype type) {
  switch (type) {
    case NPU_F16:
      return 11;
    case NPU_BF16:
      return 8;
    case NPU_F64:
      return 53;
    default:
      return 24;
  }
}

}  // namespace torch_npu
