// How a convolution's work is cut into pieces, and weights in the accumulator's type.
#include <algorithm>

#include "drivers/cmodel/conv/conv.h"

namespace cmodel::conv {

Pieces::Pieces(int64_t batch, int64_t depth, int64_t height, int64_t width, int64_t positions)
    : depth(depth), height(height), width(width), positions(positions) {
  cols = std::max<int64_t>(1, std::min(width, positions));
  rows = std::max<int64_t>(1, std::min(height, positions / cols));
  y_count = (height + rows - 1) / rows;
  x_count = (width + cols - 1) / cols;
  count = batch * depth * y_count * x_count;
}

Piece Pieces::at(int64_t index) const {
  const int64_t x = index % x_count * cols, y = index / x_count % y_count * rows;
  const int64_t plane = index / (x_count * y_count);
  return {plane / depth, plane % depth, y, std::min(rows, height - y), x, std::min(cols, width - x)};
}

template <class T>
Weights converted(const Shape& s, const Weights& weights, std::optional<product::Scratch>& space) {
  if (product::holds<T>(weights.tensor.dtype)) return weights;
  const Tensor& from = weights.tensor;
  const int64_t size[5] = {s.out_channels * s.groups, s.in_channels, s.kernel[0], s.kernel[1], s.kernel[2]};
  Weights out = weights;
  int64_t stride = 1;
  for (int d = 4; d >= 0; --d) {
    out.tensor.stride[d] = stride;
    stride *= size[d];
  }
  T* to = space.emplace(sizeof(T) * stride).template as<T>();
  out.tensor.data = reinterpret_cast<char*>(to);
  // When the kernel lies dense in memory a line is a whole kernel, else one row of it.
  const bool dense = from.stride[4] == 1 && from.stride[3] == size[4] && from.stride[2] == size[3] * size[4];
  const int64_t lines = dense ? 1 : size[2] * size[3], length = s.taps() / lines;
  for (int64_t i = 0; i < size[0] * size[1]; ++i) {
    for (int64_t line = 0; line < lines; ++line, to += length) {
      const char* at = from.at(i / size[1], i % size[1], line / size[3], line % size[3], 0);
      product::load_line<T>(from.dtype, at, from.stride[4], length, to);
    }
  }
  return out;
}

template Weights converted<float>(const Shape&, const Weights&, std::optional<product::Scratch>&);
template Weights converted<double>(const Shape&, const Weights&, std::optional<product::Scratch>&);
template Weights converted<uint32_t>(const Shape&, const Weights&, std::optional<product::Scratch>&);
template Weights converted<uint64_t>(const Shape&, const Weights&, std::optional<product::Scratch>&);

}  // namespace cmodel::conv
