// Narrow images, where a window's lines would be half padding: im2col over several images, and one product.
#include <algorithm>
#include <optional>

#include "drivers/cmodel/conv/tuning.h"
#include "drivers/cmodel/conv/window.h"
#include "drivers/cmodel/product/gemm.h"
#include "drivers/cmodel/product/kernels/kernels.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::conv {
namespace {

using product::Scratch;

const char* refuses(const Correlation& c) {
  if (!c.is_whole()) return "results lie a stride apart";
  const int64_t width = c.phases[0][2].count, reach = Window<float>::reach(c.phases[0][2]);
  if (width * 100 >= (width + reach) * kNarrowPercent) return "lines are long beside their padding";
  if (c.sources * c.taps < kNarrowDepth) return "a result is a sum of few products";
  return c.results < kNarrowResults ? "there are few result channels" : nullptr;
}

// Weights as a matrix of [group][result channel][source channel, tap], in the order of the window's offsets.
template <class T>
struct WeightMatrix {
  std::optional<Scratch> converted_space, packed_space;
  const T* data;
  int64_t ld;

  explicit WeightMatrix(const Correlation& c) {
    const Weights weights = converted<T>(c.shape, c.weights, converted_space);
    const int64_t* w = weights.tensor.stride;
    const int64_t depth = c.sources * c.taps;
    data = reinterpret_cast<const T*>(weights.tensor.data);
    ld = w[0];
    const bool dense = !weights.transposed && w[4] == 1 && w[3] == c.shape.kernel[2] &&
                       w[2] == c.shape.kernel[1] * c.shape.kernel[2] && w[1] == c.taps && w[0] >= depth;
    if (dense) return;
    T* out = packed_space.emplace(sizeof(T) * c.shape.groups * c.results * depth).template as<T>();
    for (int64_t r = 0; r < c.shape.groups * c.results; ++r) {
      const T* row = data + r / c.results * weights.group_stride(c.shape) + r % c.results * weights.result_stride();
      T* to = out + r * depth;
      for (int64_t i = 0; i < c.sources; ++i, row += weights.source_stride()) {
        each_tap(c.phases[0], [&](const Tap& z, const Tap& y, const Tap& x) { *to++ = row[weights.offset(z, y, x)]; });
      }
    }
    data = out;
    ld = depth;
  }
};

template <class T>
void run_as(const Correlation& c) {
  const WeightMatrix<T> matrix(c);
  const Phase& phase = c.phases[0];
  const int64_t groups = c.shape.groups, depth = c.sources * c.taps;
  const int64_t positions = std::clamp(kNarrowElements / depth, kNarrowLeast, kNarrowMost);
  const Pieces pieces(c.shape.batch, phase[0].count, phase[1].count, phase[2].count, positions);
  const int64_t together = std::max<int64_t>(1, positions / (pieces.rows * pieces.cols));
  const int64_t products = (pieces.count + together - 1) / together;
  const int threads = pool_threads();
  const int64_t parts =  // of the result channels
      threads > 1 ? parts_for(products * groups, kSharesPerThread * threads, c.results, kNarrowResults) : 1;
  const product::Kernels<T>& kernel = product::kernels<T>();

  const auto run = [&](int64_t first, int64_t last) {
    Window<T> window(phase, c.sources, pieces.rows, pieces.cols);
    const int64_t ld = together * pieces.rows * pieces.cols + kernel.correlate_step;
    Scratch column_space(sizeof(T) * depth * ld), sums_space(sizeof(T) * c.results * ld);
    T *column = column_space.as<T>(), *sums = sums_space.as<T>();
    for (int64_t task = first; task < last; ++task) {
      const int64_t part = task % parts, group = task / parts % groups, start = task / (parts * groups) * together;
      const int64_t end = std::min(pieces.count, start + together);
      const int64_t r0 = c.results * part / parts, count = c.results * (part + 1) / parts - r0;
      int64_t filled = 0;
      for (int64_t i = start; i < end; ++i) {
        const Piece p = pieces.at(i);
        window.fill(c.source, p, group * c.sources, c.sources);
        for (int64_t t = 0; t < depth; ++t) {
          kernel.copy_rows(column + t * ld + filled, window.data() + window.offsets()[t], window.pitch(), p.rows,
                           p.cols);
        }
        filled += p.points();
      }
      product::gemm<T>(false, false, count, filled, depth, matrix.data + (group * c.results + r0) * matrix.ld,
                       matrix.ld, column, ld, false, sums, ld);
      T* from = sums;
      for (int64_t i = start; i < end; ++i) {
        const Piece p = pieces.at(i);
        emit(c.context, {p, group * c.results + r0, count}, Sums<T>{from, ld, p.cols});
        from += p.points();
      }
    }
  };
  const int64_t each = std::max<int64_t>(1, together * pieces.rows * pieces.cols * depth * c.results / parts);
  parallel_for(products * groups * parts, grain_for(each, kTaskWork), run);
}

void run(const Correlation& c) {
  product::with_accumulator(c.context.acc_dtype, [&]<class T>(T) { run_as<T>(c); });
}

}  // namespace

constinit const CorrelationWay narrow = {"narrow images", refuses, always<run, const Correlation>};

}  // namespace cmodel::conv
