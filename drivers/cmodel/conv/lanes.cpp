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

#include "drivers/cmodel/conv/flat_channel.h"
#include "drivers/cmodel/conv/tuning.h"
#include "drivers/cmodel/product/kernels/kernels.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::conv {
namespace {

using product::Scratch;

// Products of a pair of channels and an image.
int64_t terms_of(const std::vector<Phase>& phases) {
  int64_t sum = 0;
  for (const Phase& axes : phases) {
    int64_t terms = 1;
    for (const Axis& axis : axes) {
      int64_t along = 0;
      for (int64_t q = 0; q < axis.count; ++q) {
        for (const Tap& tap : axis.taps) along += axis.is_inside(q, tap);
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
std::vector<Lane> lanes_of(const Correlation& c, const Tensor& source) {
  const Shape& shape = c.shape;
  const int64_t* size = c.size;
  std::vector<Lane> first_image;
  first_image.reserve(size_t(size[0] * size[1] * size[2]));
  for (const Phase& axes : c.phases) {
    const auto result = [&](int d, int64_t q) { return axes[d].result_start + q * axes[d].result_step; };
    const auto step = [&](int d, int64_t q) { return q * axes[d].source_step * source.stride[2 + d]; };
    const auto taps_inside = [&](int d, int64_t q, auto&& body) {
      for (const Tap& tap : axes[d].taps) {
        if (axes[d].is_inside(q, tap)) body(tap.kernel);
      }
    };
    const int64_t points = axes[0].count * axes[1].count * axes[2].count;
    for (int64_t i = 0; i < points; ++i) {
      const int64_t z = i / (axes[1].count * axes[2].count), y = i / axes[2].count % axes[1].count,
                    x = i % axes[2].count;
      Lane lane{result(0, z), result(1, y) * size[2] + result(2, x), step(0, z) + step(1, y) + step(2, x), 0, 0};
      taps_inside(0, z, [&](int64_t a) {
        taps_inside(1, y, [&](int64_t b) {
          taps_inside(2, x, [&](int64_t k) { lane.taps |= 1u << ((a * shape.kernel[1] + b) * shape.kernel[2] + k); });
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
std::array<int64_t, kLaneTaps> tap_offsets(const Correlation& c, const Tensor& source) {
  std::array<int64_t, kLaneTaps> offsets{};
  for (const Phase& axes : c.phases) {
    each_tap(axes, [&](const Tap& z, const Tap& y, const Tap& x) {
      offsets[size_t((z.kernel * c.shape.kernel[1] + y.kernel) * c.shape.kernel[2] + x.kernel)] =
          z.offset * source.stride[2] + y.offset * source.stride[3] + x.offset * source.stride[4];
    });
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
    double least = kShuffleCycles * lanes[0].tap_count;
    int64_t steps = lanes[0].tap_count;
    for (int i = 0; i < kLaneTaps && use[by_use[i]] > 0; ++i) {
      same |= 1u << by_use[i];
      int own = 0;
      for (size_t l = 0; l < length; ++l) {
        if (l == 0 || lanes[l].taps != lanes[l - 1].taps) own = std::max(own, std::popcount(lanes[l].taps & ~same));
      }
      const double now = i + 1 + kShuffleCycles * own;
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

int64_t points_of(const Correlation& c) {
  return c.shape.batch * c.size[0] * c.size[1] * c.size[2];
}

// Is a pair of channels, which takes `cycles` here and reads `gathered` elements, dearer with packed weights?
bool is_worthwhile(const Correlation& c, double cycles, double gathered) {
  const double points = double(points_of(c)), phases = double(c.phases.size());
  const double here = cycles + kGatherCycles * gathered / double(c.results) + kStoreCycles * points / double(c.sources);
  const double packed = double(c.taps) * (1 + points / (kLanes * phases));
  return here < packed * (c.phases.size() > 1 ? kLaneGainOfPhases : kLaneGain);
}

const char* refuses(const Correlation& c) {
  if (!kernels().lane_taps) return "this processor's lanes have no taps of their own";
  if (c.taps > kLaneTaps) return "the kernel has many points";
  if (c.context.acc_dtype != NPU_F32 || c.source.dtype != NPU_F32 || c.weights.tensor.dtype != NPU_F32) {
    return "not all is f32";
  }
  const int64_t points = points_of(c);
  if (points > kLanePoints) return "there are many positions";
  if (c.sources * c.results < kLanePairs) return "there are few channels";
  if (!has_dense_taps(c.shape, c.weights.tensor)) return "taps of a channel lie apart";
  // At best, which is known at once.
  const int64_t width = (points + kLanes - 1) / kLanes * kLanes;
  const double terms = double(c.shape.batch * terms_of(c.phases) * width) / double(points);
  if (double(c.sources) * terms > kLaneGathered) return "what lanes read is too large for the cache";
  return is_worthwhile(c, kBestStepCycles * terms / kLanes, terms) ? nullptr : "packed tiles are faster";
}

class Product {
 public:
  Product(const Correlation& c, const FlatChannel& flat, const std::vector<Lane>& lanes, const Steps& steps)
      : c_(c),
        flat_(flat),
        lanes_(lanes),
        steps_(steps),
        pitch_(steps.count * kLanes),
        width_(int64_t(steps.vectors.size()) * kLanes),
        gathered_(sizeof(float) * size_t(groups() * c.sources * pitch_)),
        sums_(sizeof(float) * size_t(groups() * c.results * width_)) {
    const int threads = pool_threads();
    if (threads > 1) shares_ = parts_for(groups(), kSharesPerThread * threads, c.results, 4 * kLaneRows);
  }

  // False: a sum is not a number, perhaps that of a lane that rested, by an infinite weight. Nothing was stored.
  bool run() {
    gather();
    std::atomic<bool> has_nan{false};
    each_share(c_.sources * pitch_, [&](const Share& share) {
      if (!multiply(share)) has_nan = true;
    });
    if (has_nan) return false;
    each_share(16 * points_of(c_), [&](const Share& share) { write(share); });
    return true;
  }

 private:
  struct Share {
    int64_t group, begin, rows;  // results
  };

  int64_t groups() const { return c_.shape.groups; }
  float* sums(const Share& share) { return sums_.as<float>() + (share.group * c_.results + share.begin) * width_; }

  template <class F>
  void each_share(int64_t work, F body) {
    const int64_t results = c_.results;
    parallel_for(groups() * shares_, grain_for(work * results / shares_ + 1, kTaskWork),
                 [&](int64_t first, int64_t last) {
                   for (int64_t task = first; task < last; ++task) {
                     const int64_t part = task % shares_, begin = results * part / shares_;
                     body(Share{task / shares_, begin, results * (part + 1) / shares_ - begin});
                   }
                 });
  }

  void gather() {
    const Tensor& source = c_.source;
    parallel_for(groups() * c_.sources, grain_for(pitch_ + 1, kLineElements), [&](int64_t first, int64_t last) {
      Scratch space(sizeof(float) * flat_.space());
      for (int64_t c = first; c < last; ++c) {
        flat_.read(reinterpret_cast<const float*>(source.data) + c * source.stride[1], space.as<float>());
        kernels().select(space.as<float>(), flat_.size(), steps_.sources.data(), pitch_,
                         gathered_.as<float>() + c * pitch_);
      }
    });
  }

  // False: a sum is not a number.
  bool multiply(const Share& share) {
    const Weights& weights = c_.weights;
    const int64_t sources = c_.sources, rows = share.rows;
    const int64_t row_step = weights.result_stride(), k_step = weights.source_stride();
    const float* weight = reinterpret_cast<const float*>(weights.tensor.data) +
                          share.group * weights.group_stride(c_.shape) + share.begin * row_step;
    const float* from = gathered_.as<float>() + share.group * sources * pitch_;
    float* to = sums(share);
    // A few lines of memory at a time: those of some results from end to end, or of some sources for all results.
    const bool by_rows = row_step >= k_step;
    const int64_t block = by_rows ? std::clamp(kLaneBlock / (pitch_ + 1), kLeastLaneChannels, kLaneChannels)
                                  : (c_.taps < 4 ? kLaneChannels : kLeastLaneChannels);
    const auto tile = [&](int64_t r, int64_t k) {
      const int64_t height = std::min<int64_t>(kLaneRows, rows - r), count = std::min(block, sources - k);
      for (size_t v = 0; v < steps_.vectors.size(); ++v) {
        if (k > 0 && steps_.vectors[v].count == 0) break;  // nor has any behind it
        kernels().lane_taps(steps_.vectors[v], count, weight + r * row_step + k * k_step, row_step, k_step, c_.taps,
                            from + k * pitch_ + steps_.first[v] * kLanes, pitch_, to + r * width_ + int64_t(v) * kLanes,
                            width_, height, k > 0);
      }
    };
    const int64_t r_block = by_rows ? kLaneRows : rows;
    for (int64_t r = 0; r < rows; r += r_block) {
      for (int64_t k = 0; k < sources; k += block) {
        for (int64_t i = r; i < std::min(rows, r + r_block); i += kLaneRows) tile(i, k);
      }
    }
    return !product::kernel_set().has_nan(to, rows * width_);
  }

  void write(const Share& share) {
    const int64_t rows = share.rows, plane = c_.size[1] * c_.size[2];
    const int64_t* size = c_.size;
    const float* from = sums(share);
    Scratch space(sizeof(float) * size_t(rows * points_of(c_)));
    float* out = space.as<float>();  // [n][z][channel][y][x]
    std::vector<int64_t> place(lanes_.size());
    for (size_t l = 0; l < lanes_.size(); ++l) place[l] = lanes_[l].plane * rows * plane + lanes_[l].point;
    for (int64_t r = 0; r < rows; ++r, from += width_) {
      for (size_t l = 0; l < lanes_.size(); ++l) out[place[l] + r * plane] = from[l];
    }
    for (int64_t i = 0; i < c_.shape.batch * size[0]; ++i, out += rows * plane) {
      const Piece image{i / size[0], i % size[0], 0, size[1], 0, size[2]};
      emit(c_.context, {image, share.group * c_.results + share.begin, rows}, Sums<float>{out, plane, size[2]});
    }
  }

  const Correlation& c_;
  const FlatChannel& flat_;
  const std::vector<Lane>& lanes_;
  const Steps& steps_;
  int64_t pitch_, width_;  // of a source channel, of a result
  Scratch gathered_, sums_;
  int64_t shares_ = 1;  // of the results of a group
};

const char* run(const Correlation& c) {
  const FlatChannel flat(c.shape.batch, c.source_size, c.source);
  const std::vector<Lane> lanes = lanes_of(c, flat.dense());
  const Steps steps(lanes, tap_offsets(c, flat.dense()));
  if (!is_worthwhile(c, steps.cost, double(steps.count * kLanes))) return "lanes rest in too many steps";
  return Product(c, flat, lanes, steps).run() ? nullptr : "a sum is not a number";
}

}  // namespace

constinit const CorrelationWay lanes = {"lanes", refuses, run};

}  // namespace cmodel::conv
