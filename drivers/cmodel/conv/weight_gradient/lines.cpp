// Weight gradient in F32 where output channels are whole vectors: those run along the gradient's channels, which is
// transposed into strips [position][channel], and lines of the input are read where they lie in windows: there is no
// im2col matrix.
#include <algorithm>
#include <vector>

#include "drivers/cmodel/conv/weight_gradient/weight_gradient.h"
#include "drivers/cmodel/conv/window.h"
#include "drivers/cmodel/product/packed.h"

namespace cmodel::conv {
namespace {

using product::Micro;
using product::Scratch;

const char* refuses(const WeightGradient& w) {
  const Micro& micro = product::micro_f32();
  if (w.context.acc_dtype != NPU_F32 || w.gradient.dtype != NPU_F32) return "sums or the gradient are not f32";
  if (w.positions == 0) return "there is nothing to add up";
  if (!micro.lines || product::even_span(micro, w.outputs) == 0) return "output channels are not whole vectors";
  const bool apart = w.gradient.stride[4] != 1 && w.gradient.stride[1] != 1;
  return apart ? "neither x nor channels of the gradient lie along memory" : nullptr;
}

// Positions gathered for one product, some pieces of the batch with a window each.
class Product {
 public:
  Product(const WeightGradient& w, const Cut& cut)
      : w_(w),
        micro_(product::micro_f32()),
        strip_(product::even_span(micro_, w.outputs)),
        block_(cut.block),
        piece_(cut.pieces.rows * cut.pieces.cols),
        most_(std::max<int64_t>(1, cut.pieces.positions / piece_)),
        window_(w.forward, cut.block * most_, cut.pieces.rows, cut.pieces.cols),
        gradient_space_(sizeof(float) * size_t(w.outputs * most_ * piece_)) {}

  int64_t most() const { return most_; }
  // No further piece has room, or its lines are of another length.
  bool full(const Piece& next) const { return pieces_ == most_ || (pieces_ > 0 && length_of(next) != length_); }

  void add(const Cut::Task& task, const Piece& p) {
    const int64_t* stride = w_.gradient.stride;
    const float* from = reinterpret_cast<const float*>(w_.gradient.at(p, task.group * w_.outputs));
    const bool channels_last = stride[1] == 1;
    const auto pack = channels_last ? micro_.wide : micro_.deep;
    const bool dense = stride[3] == p.cols * stride[4] || p.rows == 1;
    const int64_t lines = dense ? 1 : p.rows, length = dense ? p.points() : p.cols;
    for (int64_t i = 0; i < w_.outputs; i += strip_) {
      const int64_t count = std::min(strip_, w_.outputs - i);
      uint32_t* to = gradient_space_.as<uint32_t>() + i * most_ * piece_ + filled_ * count;
      for (int64_t y = 0; y < lines; ++y) {
        pack(from + i * stride[1] + y * stride[3], channels_last ? stride[4] : stride[1], count, length, count,
             to + y * length * count);
      }
    }
    window_.fill_words(micro_, pieces_ * block_, w_.input, p, task.group * w_.inputs + task.channel, task.channels);
    length_ = length_of(p);
    for (int64_t y = 0; y < p.points() / length_; ++y) {
      starts_.push_back(pieces_ * block_ * window_.channel_size() + y * window_.pitch());
    }
    filled_ += p.points();
    ++pieces_;
  }

  // Rows [row, row + depth) of sums[strip][all rows][output] (+)= those from `first` on of what was gathered.
  void multiply(int64_t first, int64_t depth, int64_t row, int64_t all, float* sums, bool accumulate) {
    const uint32_t* window = reinterpret_cast<const uint32_t*>(window_.data());
    const int64_t* offsets = window_.offsets().data() + first;
    const int64_t tiles = (depth + micro_.span_rows - 1) / micro_.span_rows;
    for (int64_t i = 0; i < w_.outputs; i += strip_) {
      const int64_t count = std::min(strip_, w_.outputs - i);
      const uint32_t* b = gradient_space_.as<uint32_t>() + i * most_ * piece_;
      for (int64_t t = 0; t < tiles; ++t) {  // of the same height but for one
        const int64_t begin = depth * t / tiles, end = depth * (t + 1) / tiles;
        micro_.lines(int64_t(starts_.size()), length_, window, starts_.data(), offsets + begin, b,
                     sums + i * all + (row + begin) * count, count, end - begin, count, accumulate);
      }
    }
  }

  void clear() {
    starts_.clear();
    filled_ = pieces_ = 0;
  }

 private:
  int64_t length_of(const Piece& p) const { return window_.pitch() == p.cols ? p.points() : p.cols; }

  const WeightGradient& w_;
  const Micro& micro_;
  const int64_t strip_, block_, piece_, most_;  // most_: pieces of one product
  Window<float> window_;
  Scratch gradient_space_;
  std::vector<int64_t> starts_;  // of lines in the windows
  int64_t length_ = 0, filled_ = 0, pieces_ = 0;
};

// Parts have sums of their own, [strip][channel and tap][output]. Where there is one part, its last product is made of
// some channels at a time, whose sums are finished while they are in the cache.
class Lines {
 public:
  explicit Lines(const WeightGradient& w)
      : w_(w), cut_(w), strip_(product::even_span(product::micro_f32(), w.outputs)), direct_(is_dense(w)) {
    cut_.parts = parts_of(w, cut_);
    once_ = cut_.parts == 1;
  }

  void run() {
    Scratch total(sizeof(float) * size_t(once_ ? 1 : w_.size * cut_.parts));
    const auto tasks = [&](int64_t first, int64_t last) {
      Product product(w_, cut_);
      Scratch some(sizeof(float) * size_t(once_ ? w_.outputs * rows_of(product) : 1)), transposed(transposed_size());
      for (int64_t i = first; i < last; ++i) {
        const Cut::Task task = cut_.at(w_, i);
        if (once_) {
          run_once(task, product, some.as<float>(), transposed.as<float>());
        } else {
          float* sums = total.as<float>() + task.part * w_.size + task.group * w_.outputs * w_.depth;
          gather(task, product, task.channel * w_.taps, w_.depth, sums);
        }
      }
    };
    run_tasks(cut_.tasks(w_), w_.positions * w_.size / w_.shape.groups, tasks);
    if (!once_) add_parts(total.as<float>());
  }

 private:
  size_t transposed_size() const { return sizeof(float) * size_t(direct_ ? 1 : strip_ * kChannelsTogether * w_.taps); }
  // Of the sums of one task: those of some channels if all positions are one product, else of a whole block.
  int64_t rows_of(const Product& product) const {
    const Pieces& pieces = cut_.pieces;
    const bool alike = pieces.height % pieces.rows == 0 && pieces.width % pieces.cols == 0;
    const bool gathered = alike && pieces.count <= product.most();
    return (gathered ? std::min(kChannelsTogether, cut_.block) : cut_.block) * w_.taps;
  }

  // All products of a task, or all but the last, into rows of `all` from `row` on. True: something was added.
  bool gather(const Cut::Task& task, Product& product, int64_t row, int64_t all, float* sums) {
    bool accumulate = false;
    for (int64_t i = task.begin; i < task.end; ++i) {
      product.add(task, cut_.pieces.at(i));
      if (i + 1 < task.end && !product.full(cut_.pieces.at(i + 1))) continue;
      if (once_ && i + 1 == task.end) break;
      product.multiply(0, task.channels * w_.taps, row, all, sums, accumulate);
      product.clear();
      accumulate = true;
    }
    return accumulate;
  }

  void run_once(const Cut::Task& task, Product& product, float* sums, float* transposed) {
    const int64_t rows = rows_of(product), first_output = task.group * w_.outputs;
    const bool accumulate = gather(task, product, 0, rows, sums);
    for (int64_t c = 0; c < task.channels; c += kChannelsTogether) {
      const int64_t channels = std::min(kChannelsTogether, task.channels - c), at = accumulate ? c * w_.taps : 0;
      product.multiply(c * w_.taps, channels * w_.taps, at, rows, sums, accumulate);
      for (int64_t o = 0; o < w_.outputs; o += strip_) {
        const int64_t count = std::min(strip_, w_.outputs - o);
        finish_strip(sums + o * rows + at * count, first_output + o, count, task.channel + c, channels, transposed);
      }
    }
    product.clear();
  }

  // What is left to do with the sums of some channels and a strip of outputs: they are transposed to
  // [output][channel][tap].
  void finish_strip(const float* sums, int64_t output, int64_t count, int64_t channel, int64_t channels,
                    float* transposed) {
    const int64_t depth = channels * w_.taps, ld = direct_ ? w_.depth : depth;
    float* to =
        direct_ ? reinterpret_cast<float*>(w_.context.result.data) + output * w_.depth + channel * w_.taps : transposed;
    product::micro_f32().deep(sums, count, depth, count, ld, reinterpret_cast<uint32_t*>(to));
    for (int64_t o = 0; o < count; ++o) finish(w_, output + o, channel, channels, to + o * ld, direct_);
  }

  // In order, a strip of outputs and some channels at a time.
  void add_parts(float* total) {
    const int64_t strips = (w_.outputs + strip_ - 1) / strip_;
    const int64_t blocks = (w_.inputs + kChannelsTogether - 1) / kChannelsTogether;
    const auto add = [&](int64_t first, int64_t last) {
      Scratch transposed(transposed_size());
      for (int64_t task = first; task < last; ++task) {
        const int64_t channel = task % blocks * kChannelsTogether;
        const int64_t channels = std::min(kChannelsTogether, w_.inputs - channel);
        const int64_t row = task / blocks % strips * strip_, count = std::min(strip_, w_.outputs - row);
        const int64_t output = task / (blocks * strips) * w_.outputs + row;
        float* sums = total + output * w_.depth + channel * w_.taps * count;
        for (int64_t part = 1; part < cut_.parts; ++part) {
          const float* more = sums + part * w_.size;
          for (int64_t i = 0; i < channels * w_.taps * count; ++i) sums[i] += more[i];
        }
        finish_strip(sums, output, count, channel, channels, transposed.as<float>());
      }
    };
    const int64_t each = strip_ * kChannelsTogether * w_.taps * cut_.parts;
    parallel_for(w_.shape.groups * strips * blocks, grain_for(each, kLineElements), add);
  }

  const WeightGradient& w_;
  Cut cut_;
  const int64_t strip_;
  const bool direct_;  // results are one array in the order of the sums
  bool once_;          // there is one part
};

void run(const WeightGradient& w) {
  Lines(w).run();
}

}  // namespace

constinit const WeightGradientWay lines_gradient = {"lines", refuses, always<run, const WeightGradient>};

}  // namespace cmodel::conv
