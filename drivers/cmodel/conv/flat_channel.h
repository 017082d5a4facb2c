// All positions of a channel as one line of memory, from which vectors are put together (Kernels::select).
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "drivers/cmodel/conv/conv.h"
#include "drivers/cmodel/conv/kernels/kernels.h"

namespace cmodel::conv {

class FlatChannel {
 public:
  FlatChannel(int64_t batch, const int64_t* size, const Tensor& tensor) {
    const int64_t image = size[0] * size[1] * size[2];
    std::copy_n(std::initializer_list<int64_t>{image, 0, size[1] * size[2], size[2], 1}.begin(), 5, dense_.stride);
    offsets_.reserve(size_t(batch * image));
    for (int64_t i = 0; i < batch * size[0] * size[1]; ++i) {
      const int64_t n = i / (size[0] * size[1]), z = i / size[1] % size[0], y = i % size[1];
      for (int64_t x = 0; x < size[2]; ++x) {
        offsets_.push_back(n * tensor.stride[0] + z * tensor.stride[2] + y * tensor.stride[3] + x * tensor.stride[4]);
      }
    }
  }

  // Its strides, and how much room it needs.
  const Tensor& dense() const { return dense_; }
  int64_t size() const { return int64_t(offsets_.size()); }
  size_t space() const { return (offsets_.size() + kSelected - 1) / kSelected * kSelected; }
  void read(const float* channel, float* to) const {
    for (size_t i = 0; i < offsets_.size(); ++i) to[i] = channel[offsets_[i]];
  }

 private:
  Tensor dense_{};
  std::vector<int64_t> offsets_;
};

}  // namespace cmodel::conv
