// Forward and input gradient of few positions in F32, where to pack the weights would take longer than the product.
// Weights are read once, as they lie. A lane of a vector is a result position, and has its own taps: those that do not
// fall into the padding or between the strides. What the lanes read of the source is gathered, a vector per step.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <tuple>
#include <utility>
#include <vector>

#include "drivers/cmodel/conv.h"
#include "drivers/cmodel/conv_line.h"
#include "drivers/cmodel/matmul_kernels.h"
#include "drivers/cmodel/pool.h"

namespace cmodel::conv {
namespace {

using blas::Scratch;

constexpr int64_t kMostGathered = 128 << 10;  // elements of the source: they stay in the second cache
constexpr int64_t kLeastPairs = 1 << 11, kMostPoints = 256;

bool is_inside(const Axis& axis, int64_t q, const Tap& tap) {
  const int64_t at = q * axis.source_step + tap.offset;
  return at >= 0 && at < axis.source_size;
}

// Products of a pair of channels and an image.
int64_t terms_of(const std::vector<Phase>& phases) {
  int64_t sum = 0;
  for (const Phase& axes : phases) {
    int64_t terms = 1;
    for (const Axis& axis : axes) {
      int64_t along = 0;
      for (int64_t q = 0; q < axis.count; ++q) {
        for (const Tap& tap : axis.taps) along += is_inside(axis, q, tap);
      }
      terms *= along;
    }
    sum += terms;
  }
  return sum;
}

struct Lane {
  int64_t plane, point;  // of the results: image and z, y and x
  int64_t source;        // where the tap of offset 0 reads a channel
  uint32_t taps;         // a bit for each
  int tap_count;
};

// Lanes of one vector take as many steps as the one with the most: those alike come together.
std::vector<Lane> lanes_of(const Shape& shape, const std::vector<Phase>& phases, const int64_t* size,
                           const Tensor& source) {
  std::vector<Lane> first_image;
  first_image.reserve(size_t(size[0] * size[1] * size[2]));
  for (const Phase& axes : phases) {
    const auto result = [&](int d, int64_t q) { return axes[d].result_start + q * axes[d].result_step; };
    const auto step = [&](int d, int64_t q) { return q * axes[d].source_step * source.stride[2 + d]; };
    const auto each_tap = [&](int d, int64_t q, auto&& body) {
      for (const Tap& tap : axes[d].taps) {
        if (is_inside(axes[d], q, tap)) body(tap.kernel);
      }
    };
    const int64_t points = axes[0].count * axes[1].count * axes[2].count;
    for (int64_t i = 0; i < points; ++i) {
      const int64_t z = i / (axes[1].count * axes[2].count), y = i / axes[2].count % axes[1].count,
                    x = i % axes[2].count;
      Lane lane{result(0, z), result(1, y) * size[2] + result(2, x), step(0, z) + step(1, y) + step(2, x), 0, 0};
      each_tap(0, z, [&](int64_t a) {
        each_tap(1, y, [&](int64_t b) {
          each_tap(2, x, [&](int64_t c) { lane.taps |= 1u << ((a * shape.kernel[1] + b) * shape.kernel[2] + c); });
        });
      });
      lane.tap_count = std::popcount(lane.taps);
      first_image.push_back(lane);
    }
  }
  std::sort(first_image.begin(), first_image.end(), [](const Lane& a, const Lane& b) {
    return std::tuple(-a.tap_count, a.taps, a.plane, a.point) < std::tuple(-b.tap_count, b.taps, b.plane, b.point);
  });
  std::vector<Lane> lanes;
  lanes.reserve(first_image.size() * size_t(shape.batch));
  for (Lane lane : first_image) {
    for (int64_t n = 0; n < shape.batch; ++n, lane.plane += size[0], lane.source += source.stride[0]) {
      lanes.push_back(lane);
    }
  }
  return lanes;
}

// Offsets of taps in the source. A tap is in one phase only, along each axis.
std::array<int64_t, kLaneTaps> tap_offsets(const Shape& shape, const std::vector<Phase>& phases, const Tensor& source) {
  std::array<int64_t, kLaneTaps> offsets{};
  for (const Phase& axes : phases) {
    for (const Tap& z : axes[0].taps) {
      for (const Tap& y : axes[1].taps) {
        for (const Tap& x : axes[2].taps) {
          offsets[size_t((z.kernel * shape.kernel[1] + y.kernel) * shape.kernel[2] + x.kernel)] =
              z.offset * source.stride[2] + y.offset * source.stride[3] + x.offset * source.stride[4];
        }
      }
    }
  }
  return offsets;
}

// The steps of all vectors of lanes, one after the other.
class Steps {
 public:
  std::vector<LaneSteps> vectors;
  std::vector<int64_t> first;    // step of each vector
  std::vector<int32_t> sources;  // [step][lane]; negative: the lane has nothing to do in the step
  int64_t count = 0;
  double cost = 0;  // of a pair of channels, in cycles

  Steps(const std::vector<Lane>& lanes, const std::array<int64_t, kLaneTaps>& taps) {
    for (size_t i = 0; i < lanes.size(); i += kLanes) {
      add(lanes.data() + i, std::min<size_t>(kLanes, lanes.size() - i), taps);
    }
    for (size_t v = 0; v < vectors.size(); ++v) vectors[v].taps = taps_.data() + first[v] * kLanes;
  }

 private:
  static constexpr double kShuffle = 1.4;  // a step with a tap of its own in each lane

  void add(const Lane* lanes, size_t length, const std::array<int64_t, kLaneTaps>& tap_offset) {
    // Taps of most lanes have a step each, in which the other lanes rest; lanes choose among the others.
    std::array<int, kLaneTaps> by_use{}, use{};
    for (int t = 0; t < kLaneTaps; ++t) {
      by_use[t] = t;
      for (size_t l = 0; l < length; ++l) use[t] += lanes[l].taps >> t & 1;
    }
    std::sort(by_use.begin(), by_use.end(),
              [&](int a, int b) { return std::pair(-use[a], a) < std::pair(-use[b], b); });
    uint32_t same = 0, best = 0;
    double least = kShuffle * lanes[0].tap_count;
    int64_t steps = lanes[0].tap_count;
    for (int i = 0; i < kLaneTaps && use[by_use[i]] > 0; ++i) {
      same |= 1u << by_use[i];
      int own = 0;
      for (size_t l = 0; l < length; ++l) {
        if (l == 0 || lanes[l].taps != lanes[l - 1].taps) own = std::max(own, std::popcount(lanes[l].taps & ~same));
      }
      const double now = i + 1 + kShuffle * own;
      if (now <= least) least = now, best = same, steps = i + 1 + own;
    }
    cost += least;
    first.push_back(count);
    vectors.push_back({steps, std::popcount(best), nullptr});
    taps_.resize(size_t((count + steps) * kLanes));
    sources.resize(taps_.size(), -1);
    const auto set = [&](int64_t step, size_t l, int tap) {
      taps_[size_t(count + step) * kLanes + l] = tap;
      sources[size_t(count + step) * kLanes + l] = int32_t(lanes[l].source + tap_offset[size_t(tap)]);
    };
    int64_t step = 0;
    for (uint32_t rest = best; rest != 0; rest &= rest - 1, ++step) {
      const int tap = std::countr_zero(rest);
      std::fill_n(taps_.begin() + (count + step) * kLanes, kLanes, tap);
      for (size_t l = 0; l < length; ++l) {
        if (lanes[l].taps >> tap & 1) set(step, l, tap);
      }
    }
    for (size_t l = 0; l < length; ++l) {
      int64_t own = step;
      for (uint32_t rest = lanes[l].taps & ~best; rest != 0; rest &= rest - 1) set(own++, l, std::countr_zero(rest));
    }
    count += steps;
  }

  std::vector<int32_t> taps_;
};

// Taps of a channel follow each other.
bool has_dense_taps(const Shape& shape, const Tensor& weight) {
  int64_t expected = 1;
  for (int d = 2; d >= 0; --d) {
    if (shape.kernel[d] > 1 && weight.stride[2 + d] != expected) return false;
    expected *= shape.kernel[d];
  }
  return true;
}

}  // namespace

bool try_lanes(const Context& context, const std::vector<Phase>& phases, const Tensor& source, const Weights& weights) {
  const Shape& shape = context.shape;
  const Kernels& kernel = kernels();
  const int64_t taps = shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
  const int64_t sources = weights.swapped ? shape.out_channels : shape.in_channels;
  const int64_t results = weights.swapped ? shape.in_channels : shape.out_channels;
  const int64_t* size = weights.swapped ? shape.in_size : shape.out_size;
  const int64_t plane = size[1] * size[2], points = shape.batch * size[0] * plane;
  if (!kernel.lane_taps || taps > kLaneTaps || context.acc_dtype != NPU_F32 || source.dtype != NPU_F32 ||
      weights.tensor.dtype != NPU_F32 || !has_dense_taps(shape, weights.tensor)) {
    return false;
  }
  if (sources * results < kLeastPairs || points > kMostPoints) return false;

  // Cycles of a pair of channels, here and where weights are packed: at best, which is known at once, and as it is.
  const auto worthwhile = [&](double cost, double gathered) {
    const double here = cost + 1.2 * gathered / double(results) + 2.0 * double(points) / double(sources);
    const double packed = double(taps) * (1 + double(points) / double(kLanes * int64_t(phases.size())));
    return here < packed * (phases.size() > 1 ? 1.4 : 0.85);
  };
  const double terms =
      double(shape.batch * terms_of(phases) * ((points + kLanes - 1) / kLanes * kLanes)) / double(points);
  if (double(sources) * terms > kMostGathered || !worthwhile(1.1 * terms / kLanes, terms)) return false;
  const int64_t* source_size = weights.swapped ? shape.out_size : shape.in_size;
  const Line line(shape.batch, source_size, source);
  const std::vector<Lane> lanes = lanes_of(shape, phases, size, line.dense());
  const Steps steps(lanes, tap_offsets(shape, phases, line.dense()));
  const int64_t width = int64_t(steps.vectors.size()) * kLanes, pitch = steps.count * kLanes;
  if (!worthwhile(steps.cost, double(pitch))) return false;

  Scratch gathered_space(sizeof(float) * size_t(shape.groups * sources * pitch));
  float* gathered = gathered_space.as<float>();
  parallel_for(shape.groups * sources, std::max<int64_t>(1, (1 << 14) / (pitch + 1)), [&](int64_t first, int64_t last) {
    Scratch space(sizeof(float) * line.space());
    for (int64_t c = first; c < last; ++c) {
      line.read(reinterpret_cast<const float*>(source.data) + c * source.stride[1], space.as<float>());
      kernel.select(space.as<float>(), line.size(), steps.sources.data(), pitch, gathered + c * pitch);
    }
  });

  // A few lines of memory at a time: those of some results from end to end, or of some sources for all results.
  const int64_t row_step = weights.result_stride(), k_step = weights.source_stride();
  const bool by_rows = row_step >= k_step;
  const int64_t block = by_rows ? std::clamp<int64_t>((4 << 10) / (pitch + 1), 8, 64) : taps < 4 ? 64 : 8;
  const int threads = pool_threads();
  int64_t shares = 1;  // of the results
  while (threads > 1 && shape.groups * shares < 2 * threads && results / shares >= 4 * kLaneRows) shares *= 2;
  Scratch sum_space(sizeof(float) * size_t(shape.groups * results * width));
  float* all_sums = sum_space.as<float>();
  std::atomic<bool> has_nan{false};
  const auto share_of = [&](int64_t task) {
    const int64_t begin = results * (task % shares) / shares;
    return std::array<int64_t, 3>{task / shares, begin, results * (task % shares + 1) / shares - begin};
  };
  const auto compute = [&](int64_t task) {
    const auto [group, r0, rows] = share_of(task);
    const float* weight =
        reinterpret_cast<const float*>(weights.tensor.data) + group * weights.group_stride(shape) + r0 * row_step;
    const float* from = gathered + group * sources * pitch;
    float* sums = all_sums + (group * results + r0) * width;
    const auto multiply = [&, rows = rows](int64_t r, int64_t k) {
      const int64_t height = std::min<int64_t>(kLaneRows, rows - r), count = std::min(block, sources - k);
      for (size_t v = 0; v < steps.vectors.size(); ++v) {
        if (k > 0 && steps.vectors[v].count == 0) break;  // nor has any behind it
        kernel.lane_taps(steps.vectors[v], count, weight + r * row_step + k * k_step, row_step, k_step, taps,
                         from + k * pitch + steps.first[v] * kLanes, pitch, sums + r * width + int64_t(v) * kLanes,
                         width, height, k > 0);
      }
    };
    const int64_t r_block = by_rows ? kLaneRows : rows;
    for (int64_t r = 0; r < rows; r += r_block) {
      for (int64_t k = 0; k < sources; k += block) {
        for (int64_t i = r; i < std::min(rows, r + r_block); i += kLaneRows) multiply(i, k);
      }
    }
    if (blas::kernel_set().has_nan(sums, rows * width)) has_nan = true;
  };
  const auto write = [&](int64_t task) {
    const auto [group, r0, rows] = share_of(task);
    const float* sums = all_sums + (group * results + r0) * width;
    Scratch space(sizeof(float) * size_t(rows * points));
    float* out = space.as<float>();  // [n][z][channel][y][x]
    std::vector<int64_t> place(lanes.size());
    for (size_t l = 0; l < lanes.size(); ++l) place[l] = lanes[l].plane * rows * plane + lanes[l].point;
    for (int64_t r = 0; r < rows; ++r, sums += width) {
      for (size_t l = 0; l < lanes.size(); ++l) out[place[l] + r * plane] = sums[l];
    }
    for (int64_t i = 0; i < shape.batch * size[0]; ++i, out += rows * plane) {
      emit(context, i / size[0], group * results + r0, rows, i % size[0], 0, size[1], 0, size[2], out, plane, size[2]);
    }
  };
  const auto each = [&](int64_t work, auto&& body) {
    parallel_for(shape.groups * shares, std::max<int64_t>(1, (1 << 17) / (work * results / shares + 1)),
                 [&](int64_t first, int64_t last) {
                   for (int64_t task = first; task < last; ++task) body(task);
                 });
  };
  each(sources * pitch, compute);
  if (has_nan) return false;  // perhaps of a lane that rested, by an infinite weight
  each(16 * points, write);
  return true;
}

}  // namespace cmodel::conv
