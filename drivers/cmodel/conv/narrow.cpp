#include <algorithm>
#include <optional>

#include "drivers/cmodel/conv/conv.h"
#include "drivers/cmodel/product/gemm.h"
#include "drivers/cmodel/product/kernels.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::conv {

using product::Scratch;

Pieces::Pieces(int64_t batch, int64_t depth, int64_t height, int64_t width, int64_t positions)
    : depth(depth),
      height(height),
      width(width),
      rows(1),
      cols(std::max<int64_t>(1, std::min(width, positions))),
      y_count(0),
      x_count(0),
      count(0) {
  rows = std::max<int64_t>(1, std::min(height, positions / cols));
  y_count = (height + rows - 1) / rows;
  x_count = (width + cols - 1) / cols;
  count = batch * depth * y_count * x_count;
}

Pieces::Piece Pieces::at(int64_t index) const {
  const int64_t x = index % x_count * cols, y = index / x_count % y_count * rows;
  const int64_t plane = index / (x_count * y_count);
  return {plane / depth, plane % depth, y, std::min(rows, height - y), x, std::min(cols, width - x)};
}

template <class T>
Weights converted(const Shape& s, const Weights& weights, std::optional<Scratch>& space) {
  const int64_t shape[5] = {s.out_channels * s.groups, s.in_channels, s.kernel[0], s.kernel[1], s.kernel[2]};
  if (product::holds<T>(weights.tensor.dtype)) return weights;
  const Tensor& from = weights.tensor;
  const int64_t size = npu::dtype_size(from.dtype);
  Weights out = weights;
  int64_t stride = 1;
  for (int d = 4; d >= 0; --d) {
    out.tensor.stride[d] = stride;
    stride *= shape[d];
  }
  T* data = space.emplace(sizeof(T) * stride).template as<T>();
  out.tensor.data = reinterpret_cast<char*>(data);
  // When the kernel lies dense in memory a line is a whole kernel, else one row of it.
  const bool dense = from.stride[4] == 1 && from.stride[3] == shape[4] && from.stride[2] == shape[3] * shape[4];
  const int64_t length = dense ? shape[2] * shape[3] * shape[4] : shape[4];
  T* to = data;
  for (int64_t o = 0; o < shape[0]; ++o) {
    for (int64_t c = 0; c < shape[1]; ++c) {
      for (int64_t z = 0; z < (dense ? 1 : shape[2]); ++z) {
        for (int64_t y = 0; y < (dense ? 1 : shape[3]); ++y, to += length) {
          const int64_t at = o * from.stride[0] + c * from.stride[1] + z * from.stride[2] + y * from.stride[3];
          product::load_line<T>(from.dtype, from.data + at * size, from.stride[4], length, to);
        }
      }
    }
  }
  return out;
}

namespace {

constexpr int64_t kColumnElements = 2 << 20;  // of the im2col matrix

// [group][result channel][source channel, tap], in the order of the window's offsets.
template <class T>
void pack_rows(const Shape& shape, const Weights& weights, const Phase& phase, int64_t results, int64_t sources,
               T* out) {
  const Tensor& w = weights.tensor;
  for (int64_t r = 0; r < shape.groups * results; ++r) {
    const T* row = reinterpret_cast<const T*>(w.data) + r / results * weights.group_stride(shape) +
                   r % results * weights.result_stride();
    for (int64_t c = 0; c < sources; ++c, row += weights.source_stride()) {
      for (const Tap& z : phase[0].taps) {
        for (const Tap& y : phase[1].taps) {
          const T* line = row + z.kernel * w.stride[2] + y.kernel * w.stride[3];
          for (const Tap& x : phase[2].taps) *out++ = line[x.kernel * w.stride[4]];
        }
      }
    }
  }
}

}  // namespace

template <class T>
bool try_narrow(const Context& context, const Phase& phase, const Tensor& source, const Weights& given) {
  const Shape& shape = context.shape;
  const int64_t sources = given.swapped ? shape.out_channels : shape.in_channels;
  const int64_t results = given.swapped ? shape.in_channels : shape.out_channels;
  const int64_t taps = shape.kernel[0] * shape.kernel[1] * shape.kernel[2], depth = sources * taps;
  const int64_t width = phase[2].count, reach = Window<T>::reach(phase[2]);
  if (width * 5 >= (width + reach) * 4 || depth < 512 || results < 64) return false;

  std::optional<Scratch> converted_space;
  const Weights weights = converted<T>(shape, given, converted_space);
  const int64_t* w = weights.tensor.stride;
  const bool dense = !weights.swapped && w[4] == 1 && w[3] == shape.kernel[2] &&
                     w[2] == shape.kernel[1] * shape.kernel[2] && w[1] == taps && w[0] >= depth;
  std::optional<Scratch> packed_space;
  const T* matrix = reinterpret_cast<const T*>(weights.tensor.data);
  if (!dense) {
    T* packed = packed_space.emplace(sizeof(T) * shape.groups * results * depth).template as<T>();
    pack_rows(shape, weights, phase, results, sources, packed);
    matrix = packed;
  }
  const int64_t matrix_ld = dense ? w[0] : depth;

  const int64_t positions = std::clamp<int64_t>(kColumnElements / depth, 192, 1024);
  const Pieces pieces(shape.batch, phase[0].count, phase[1].count, width, positions);
  const int64_t together = std::max<int64_t>(1, positions / (pieces.rows * pieces.cols));
  const int64_t runs = (pieces.count + together - 1) / together;
  const int threads = pool_threads();
  int64_t parts = 1;  // of the result channels
  while (threads > 1 && runs * shape.groups * parts < 2 * threads && results / parts >= 64) parts *= 2;
  const product::Kernels<T>& kernel = product::kernels<T>();

  const auto run = [&](int64_t first, int64_t last) {
    Window<T> window(phase.data(), sources, pieces.rows, pieces.cols);
    const int64_t ld = together * pieces.rows * pieces.cols + kernel.correlate_step;
    Scratch column_space(sizeof(T) * depth * ld), acc_space(sizeof(T) * results * ld);
    T *column = column_space.as<T>(), *acc = acc_space.as<T>();
    for (int64_t task = first; task < last; ++task) {
      const int64_t part = task % parts, group = task / parts % shape.groups,
                    start = task / (parts * shape.groups) * together;
      const int64_t end = std::min(pieces.count, start + together);
      const int64_t r0 = results * part / parts, count = results * (part + 1) / parts - r0;
      int64_t filled = 0;
      for (int64_t i = start; i < end; ++i) {
        const Pieces::Piece p = pieces.at(i);
        window.fill(source, p.n, group * sources, sources, p.z, p.y, p.rows, p.x, p.cols);
        for (int64_t t = 0; t < depth; ++t) {
          kernel.copy_rows(column + t * ld + filled, window.data() + window.offsets()[t], window.pitch(), p.rows,
                           p.cols);
        }
        filled += p.rows * p.cols;
      }
      product::gemm<T>(false, false, count, filled, depth, matrix + (group * results + r0) * matrix_ld, matrix_ld,
                       column, ld, false, acc, ld);
      filled = 0;
      for (int64_t i = start; i < end; ++i) {
        const Pieces::Piece p = pieces.at(i);
        emit(context, p.n, group * results + r0, count, p.z, p.y, p.rows, p.x, p.cols, acc + filled, ld, p.cols);
        filled += p.rows * p.cols;
      }
    }
  };
  const int64_t tasks = runs * shape.groups * parts;
  const int64_t each = std::max<int64_t>(1, together * pieces.rows * pieces.cols * depth * results / parts);
  parallel_for(tasks, std::max<int64_t>(1, (1 << 17) / each), run);
  return true;
}

template Weights converted<float>(const Shape&, const Weights&, std::optional<Scratch>&);
template bool try_narrow<float>(const Context&, const Phase&, const Tensor&, const Weights&);
template Weights converted<double>(const Shape&, const Weights&, std::optional<Scratch>&);
template bool try_narrow<double>(const Context&, const Phase&, const Tensor&, const Weights&);
template Weights converted<uint32_t>(const Shape&, const Weights&, std::optional<Scratch>&);
template bool try_narrow<uint32_t>(const Context&, const Phase&, const Tensor&, const Weights&);
template Weights converted<uint64_t>(const Shape&, const Weights&, std::optional<Scratch>&);
template bool try_narrow<uint64_t>(const Context&, const Phase&, const Tensor&, const Weights&);

}  // namespace cmodel::conv
