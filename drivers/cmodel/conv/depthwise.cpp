// Forward and input gradient with one channel on either side of each group and channels last, where a vector is one
// point of many groups.
#include <algorithm>
#include <cmath>
#include <optional>

#include "drivers/cmodel/conv/epilogue.h"
#include "drivers/cmodel/conv/kernels/kernels.h"
#include "drivers/cmodel/conv/tuning.h"
#include "drivers/cmodel/product/kernels/kernels.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::conv {

const Kernels& kernels() {
#if defined(__x86_64__)
  static const Kernels& set = &product::kernel_set() == &product::avx512::kernel_set ? avx512::kernels
                              : &product::kernel_set() == &product::avx2::kernel_set ? avx2::kernels
                                                                                     : base::kernels;
  return set;
#else
  return base::kernels;
#endif
}

namespace {

using product::Scratch;

const char* refuses(const Correlation& c) {
  const Context& context = c.context;
  if (context.acc_dtype != NPU_F32) return "sums are not f32";
  if (c.sources != 1 || c.results != 1) return "a group has several channels";
  if (!c.is_whole()) return "results lie a stride apart";
  const bool last = context.epilogue ? context.epilogue->channels_last() : context.result.stride[1] == 1;
  if (c.source.stride[1] != 1 || !last) return "channels are not last";
  return c.shape.groups < kDepthwiseGroups ? "there are few groups" : nullptr;
}

// Tiles: some rows of one image in one block of channels. Their source, padded, is [z tap][row][column][channel].
class Tiles {
 public:
  explicit Tiles(const Correlation& c) : c_(c), axes_(c.phases[0]) {
    const int64_t vector = kernels().lanes;
    width_ = std::min<int64_t>(kDepthwiseChannels, (c.shape.groups + vector - 1) / vector * vector);
    blocks_ = (c.shape.groups + width_ - 1) / width_;
    for (int d = 0; d < 3; ++d) {
      const auto [least, most] = std::minmax_element(axes_[d].taps.begin(), axes_[d].taps.end(),
                                                     [](const Tap& a, const Tap& b) { return a.offset < b.offset; });
      least_[d] = least->offset;
      reach_[d] = most->offset - least->offset;
    }
    rows_ = std::min(c.size[1], kDepthwiseRows);
    source_rows_ = (rows_ - 1) * axes_[1].source_step + reach_[1] + 1;
    source_cols_ = (c.size[2] - 1) * axes_[2].source_step + reach_[2] + 1;
    planes_ = int64_t(axes_[0].taps.size());
    for (int64_t z = 0; z < planes_; ++z) {
      for (const Tap& y : axes_[1].taps) {
        for (const Tap& x : axes_[2].taps) {
          offsets_.push_back(((z * source_rows_ + y.offset - least_[1]) * source_cols_ + x.offset - least_[2]) *
                             width_);
        }
      }
    }
  }

  // False: a weight is not finite, and must not meet padding.
  bool pack_weights() {
    std::optional<Scratch> space;
    const Weights weights = converted<float>(c_.shape, c_.weights, space);
    by_tap_.emplace(sizeof(float) * blocks_ * c_.taps * width_);
    float* by_tap = by_tap_->as<float>();
    std::fill_n(by_tap, blocks_ * c_.taps * width_, 0.0f);
    bool finite = true;
    int64_t t = 0;
    each_tap(axes_, [&](const Tap& z, const Tap& y, const Tap& x) {
      const float* from = reinterpret_cast<const float*>(weights.tensor.data) + weights.offset(z, y, x);
      for (int64_t i = 0; i < c_.shape.groups && finite; ++i) {
        const float value = from[i * weights.tensor.stride[0]];
        finite = std::isfinite(value);
        by_tap[(i / width_ * c_.taps + t) * width_ + i % width_] = value;
      }
      ++t;
    });
    return finite;
  }

  void run() {
    const int64_t y_tiles = (c_.size[1] + rows_ - 1) / rows_;
    const auto tiles = [&](int64_t first, int64_t last) {
      Scratch window(sizeof(float) * planes_ * source_rows_ * source_cols_ * width_);
      Scratch line(sizeof(float) * c_.size[2] * width_);
      for (int64_t task = first; task < last; ++task) {
        const int64_t y = task % y_tiles * rows_, z = task / y_tiles % c_.size[0],
                      block = task / (y_tiles * c_.size[0]) % blocks_, n = task / (y_tiles * c_.size[0] * blocks_);
        const Piece piece{n, z, y, std::min(rows_, c_.size[1] - y), 0, c_.size[2]};
        const Results at{piece, block * width_, std::min(width_, c_.shape.groups - block * width_)};
        fill(at, window.as<float>());
        multiply(at, window.as<float>(), line.as<float>());
      }
    };
    const int64_t each = rows_ * c_.size[2] * width_ * c_.taps;
    parallel_for(c_.shape.batch * blocks_ * c_.size[0] * y_tiles, grain_for(each, kTaskWork), tiles);
  }

 private:
  void fill(const Results& at, float* window) {
    const int64_t needed = (at.rows - 1) * axes_[1].source_step + reach_[1] + 1;
    for (int64_t p = 0; p < planes_; ++p) {
      const int64_t z = at.z * axes_[0].source_step + axes_[0].taps[p].offset;
      for (int64_t r = 0; r < needed; ++r) {
        const int64_t y = at.y * axes_[1].source_step + least_[1] + r;
        float* to = window + (p * source_rows_ + r) * source_cols_ * width_;
        const bool inside = z >= 0 && z < axes_[0].source_size && y >= 0 && y < axes_[1].source_size;
        for (int64_t i = 0; i < source_cols_; ++i, to += width_) {
          const int64_t x = i + least_[2];
          if (!inside || x < 0 || x >= axes_[2].source_size) {
            std::fill_n(to, width_, 0.0f);
            continue;
          }
          product::load_line<float>(c_.source.dtype, c_.source.at(at.n, at.channel, z, y, x), 1, at.channels, to);
          std::fill_n(to + at.channels, width_ - at.channels, 0.0f);
        }
      }
    }
  }

  void multiply(const Results& at, const float* window, float* line) {
    const Tensor& out = c_.context.result;
    const float* weights = by_tap_->as<float>() + at.channel * c_.taps;
    const int64_t x_step = axes_[2].source_step * width_, y_step = axes_[1].source_step * source_cols_ * width_;
    for (int64_t y = 0; y < at.rows; ++y) {
      kernels().channels_last(line, at.cols, width_, window + y * y_step, x_step, offsets_.data(), weights, c_.taps);
      const Results row{{at.n, at.z, at.y + y, 1, 0, at.cols}, at.channel, at.channels};
      if (c_.context.epilogue) {
        c_.context.epilogue->run_points(row, line, width_);
        continue;
      }
      for (int64_t x = 0; x < at.cols; ++x) {
        product::store_line<float>(out.dtype, out.at(at.n, at.channel, at.z, at.y + y, x), 1, at.channels,
                                   line + x * width_);
      }
    }
  }

  const Correlation& c_;
  const Phase& axes_;
  int64_t width_, blocks_;  // channels of a block
  int64_t least_[3], reach_[3];
  int64_t rows_, source_rows_, source_cols_, planes_;  // of a tile
  std::vector<int64_t> offsets_;                       // of taps
  std::optional<Scratch> by_tap_;                      // weights as [block][tap][channel], in the order of the taps
};

const char* run(const Correlation& c) {
  Tiles tiles(c);
  if (!tiles.pack_weights()) return "a weight is not finite";
  tiles.run();
  return nullptr;
}

}  // namespace

constinit const CorrelationWay depthwise_channels_last = {"depthwise channels last", refuses, run};

}  // namespace cmodel::conv
