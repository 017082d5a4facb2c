#include <algorithm>
#include <optional>

#include "drivers/cmodel/blas.h"
#include "drivers/cmodel/conv.h"
#include "drivers/cmodel/pool.h"

namespace cmodel::conv {
namespace {

// The distance between neighbouring points when z, y and x together walk memory evenly, else 0.
int64_t point_stride(const Tensor& tensor, const int64_t* size) {
  int64_t stride = 1, expected = 1;
  bool any = false;
  for (int d = 2; d >= 0; --d) {
    if (size[d] == 1) continue;
    if (!any) stride = expected = tensor.stride[d + 2];
    any = true;
    if (tensor.stride[d + 2] != expected) return 0;
    expected *= size[d];
  }
  return stride;
}

}  // namespace

template <class T>
bool try_pointwise(const Context& context, const Tensor& source, const Weights& weights) {
  const Shape& shape = context.shape;
  for (int d = 0; d < 3; ++d) {
    if (shape.kernel[d] != 1 || shape.stride[d] != 1 || shape.padding[d] != 0) return false;
  }
  const bool plain = !context.job.program;
  const int64_t points = shape.in_size[0] * shape.in_size[1] * shape.in_size[2];
  const int64_t sources = weights.swapped ? shape.out_channels : shape.in_channels;
  const int64_t results = weights.swapped ? shape.in_channels : shape.out_channels;
  if (sources * results < 64) return false;  // depthwise and nearly so: the window kernel wins
  const int64_t from = point_stride(source, shape.in_size);
  const int64_t to = plain ? point_stride(context.result, shape.in_size) : 0;
  if (from == 0 || (plain && (to == 0 || !blas::holds<T>(context.result.dtype)))) return false;
  const Tensor& out = context.result;
  const bool by_rows = plain && to == 1 && (out.stride[1] >= points || results == 1);
  const bool by_columns = plain && out.stride[1] == 1 && to >= results;
  if (plain && !by_rows && !by_columns) return false;

  blas::Dense<T> s{}, w{};
  if (!blas::as_dense<T>({source.data, source.dtype, sources, points, source.stride[1], from}, s)) return false;
  if (!blas::as_dense<T>({weights.tensor.data, weights.tensor.dtype, results, sources, weights.result_stride(),
                          weights.source_stride()},
                         w)) {
    return false;
  }
  // Tiles of whole rows, because the epilogue takes rectangles.
  const int64_t width = shape.in_size[2], height = shape.in_size[1];
  const int64_t row_points = plain ? 1 : width;
  const int64_t rows_in_all = points / row_points;
  const int64_t least = std::max<int64_t>(1, 64 / row_points);
  int64_t rows = std::max(least, 2048 / row_points);
  const int threads = pool_threads();
  while (threads > 1 && rows > least && shape.batch * shape.groups * rows_in_all < rows * 4 * threads)
    rows = (rows + 1) / 2;
  if (!plain) rows = std::min(rows, height);
  const int64_t tiles_per_plane = plain ? (rows_in_all + rows - 1) / rows : (height + rows - 1) / rows;
  const int64_t planes = plain ? 1 : shape.in_size[0];
  const auto run = [&](int64_t first, int64_t last) {
    std::optional<blas::Scratch> space;
    for (int64_t task = first; task < last; ++task) {
      const int64_t y = task % tiles_per_plane * rows, z = task / tiles_per_plane % planes;
      const int64_t group = task / (tiles_per_plane * planes) % shape.groups;
      const int64_t n = task / (tiles_per_plane * planes * shape.groups);
      const int64_t count = std::min(rows, (plain ? rows_in_all : height) - y), length = count * row_points;
      const int64_t point = plain ? y : (z * height + y) * width;
      const T* b = s.data + n * source.stride[0] + group * sources * source.stride[1] + point * from;
      const T* a = w.data + group * weights.group_stride(shape);
      T* c = reinterpret_cast<T*>(out.data) + n * out.stride[0] + group * results * out.stride[1] + point * to;
      if (by_rows) {
        blas::gemm<T>(w.transposed, s.transposed, results, length, sources, a, w.ld, b, s.ld, false, c,
                      results == 1 ? length : out.stride[1]);
      } else if (by_columns) {
        blas::gemm<T>(!s.transposed, !w.transposed, length, results, sources, b, s.ld, a, w.ld, false, c, to);
      } else {
        if (!space) space.emplace(sizeof(T) * results * rows * row_points);
        T* acc = space->template as<T>();
        blas::gemm<T>(w.transposed, s.transposed, results, length, sources, a, w.ld, b, s.ld, false, acc, length);
        emit(context, n, group * results, results, z, y, count, 0, width, acc, length, width);
      }
    }
  };
  const int64_t tasks = tiles_per_plane * planes * shape.groups * shape.batch;
  const int64_t each = std::max<int64_t>(1, rows * row_points * results * sources);
  parallel_for(tasks, std::max<int64_t>(1, (1 << 18) / each), run);
  return true;
}

template bool try_pointwise<float>(const Context&, const Tensor&, const Weights&);
template bool try_pointwise<double>(const Context&, const Tensor&, const Weights&);
template bool try_pointwise<uint32_t>(const Context&, const Tensor&, const Weights&);
template bool try_pointwise<uint64_t>(const Context&, const Tensor&, const Weights&);

}  // namespace cmodel::conv
