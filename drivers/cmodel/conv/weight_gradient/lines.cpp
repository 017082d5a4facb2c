// Weight gradient in F32 where output channels are whole vectors: those run along the gradient's channels, which is
// turned into strips [position][channel], and lines of the input are read where they lie in windows: there is no im2col
// matrix.
#include <algorithm>
#include <vector>

#include "drivers/cmodel/conv/weight_gradient/weight_gradient.h"
#include "drivers/cmodel/product/packed.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::conv {
namespace {

using product::Micro;
using product::Scratch;

// Positions gathered for one product, some pieces of the batch with a window each.
class Product {
 public:
  Product(const Phase& forward, const Cut& cut, const Pieces& pieces, int64_t outputs)
      : micro_(product::micro_f32()),
        outputs_(outputs),
        strip_(product::even_span(micro_, outputs)),
        block_(cut.block),
        piece_(pieces.rows * pieces.cols),
        most_(std::max<int64_t>(1, cut.positions / piece_)),
        window_(forward.data(), cut.block * most_, pieces.rows, pieces.cols),
        gradient_space_(sizeof(float) * size_t(outputs * most_ * piece_)) {}

  int64_t most() const { return most_; }
  // No further piece has room, or its lines are of another length.
  bool full(const Pieces::Piece& next) const { return pieces_ == most_ || (pieces_ > 0 && length_of(next) != length_); }

  void add(const Tensor& gradient, int64_t output, const Tensor& input, int64_t channel, int64_t channels,
           const Pieces::Piece& p) {
    const int64_t* stride = gradient.stride;
    const float* from = reinterpret_cast<const float*>(gradient.data) + p.n * stride[0] + output * stride[1] +
                        p.z * stride[2] + p.y * stride[3] + p.x * stride[4];
    const bool channels_last = stride[1] == 1;
    const auto pack = channels_last ? micro_.wide : micro_.deep;
    const bool dense = stride[3] == p.cols * stride[4] || p.rows == 1;
    const int64_t lines = dense ? 1 : p.rows, length = dense ? p.rows * p.cols : p.cols;
    for (int64_t i = 0; i < outputs_; i += strip_) {
      const int64_t count = std::min(strip_, outputs_ - i);
      uint32_t* to = gradient_space_.as<uint32_t>() + i * most_ * piece_ + filled_ * count;
      for (int64_t y = 0; y < lines; ++y) {
        pack(from + i * stride[1] + y * stride[3], channels_last ? stride[4] : stride[1], count, length, count,
             to + y * length * count);
      }
    }
    window_.fill_words(micro_, pieces_ * block_, input, p.n, channel, channels, p.z, p.y, p.rows, p.x, p.cols);
    length_ = length_of(p);
    for (int64_t y = 0; y < p.rows * p.cols / length_; ++y) {
      starts_.push_back(pieces_ * block_ * window_.channel_size() + y * window_.pitch());
    }
    filled_ += p.rows * p.cols;
    ++pieces_;
  }

  // Rows [row, row + depth) of sum[strip][all rows][output] (+)= those from `first` on of what was gathered.
  void multiply(int64_t first, int64_t depth, int64_t row, int64_t all, float* sum, bool accumulate) {
    const uint32_t* window = reinterpret_cast<const uint32_t*>(window_.data());
    const int64_t* offsets = window_.offsets().data() + first;
    const int64_t tiles = (depth + micro_.span_rows - 1) / micro_.span_rows;
    for (int64_t i = 0; i < outputs_; i += strip_) {
      const int64_t count = std::min(strip_, outputs_ - i);
      const uint32_t* b = gradient_space_.as<uint32_t>() + i * most_ * piece_;
      for (int64_t t = 0; t < tiles; ++t) {  // of the same height but for one
        const int64_t begin = depth * t / tiles, end = depth * (t + 1) / tiles;
        micro_.lines(int64_t(starts_.size()), length_, window, starts_.data(), offsets + begin, b,
                     sum + i * all + (row + begin) * count, count, end - begin, count, accumulate);
      }
    }
  }

  void clear() {
    starts_.clear();
    filled_ = pieces_ = 0;
  }

 private:
  int64_t length_of(const Pieces::Piece& p) const { return window_.pitch() == p.cols ? p.rows * p.cols : p.cols; }

  const Micro& micro_;
  int64_t outputs_, strip_, block_, piece_, most_;  // most_: pieces of one product
  Window<float> window_;
  Scratch gradient_space_;
  std::vector<int64_t> starts_;  // of lines in the windows
  int64_t length_ = 0, filled_ = 0, pieces_ = 0;
};

}  // namespace

bool try_lines_grad_weight(const Context& context, const Phase& forward, const Tensor& gradient, const Tensor& input) {
  const Shape& shape = context.shape;
  const Micro& micro = product::micro_f32();
  const int64_t taps = shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
  const int64_t outputs = shape.out_channels, inputs = shape.in_channels, strip = product::even_span(micro, outputs);
  const int64_t each = inputs * taps, weight_size = shape.groups * outputs * each;
  const int64_t all = shape.batch * shape.out_size[0] * shape.out_size[1] * shape.out_size[2];
  if (context.acc_dtype != NPU_F32 || gradient.dtype != NPU_F32 || all == 0 || strip == 0 || !micro.lines) return false;
  if (gradient.stride[4] != 1 && gradient.stride[1] != 1) return false;

  const Cut cut = cut_of(shape, taps, weight_size);
  const Pieces pieces(shape.batch, shape.out_size[0], shape.out_size[1], shape.out_size[2], cut.positions);
  const int64_t parts = std::min(cut.parts, pieces.count);
  // What is left to do with the sums of some channels and a strip of outputs: they are turned to
  // [output][channel][tap].
  constexpr int64_t kChannels = 16;
  const bool direct = is_dense(context, taps);
  const int64_t plane = shape.kernel[1] * shape.kernel[2];
  const auto finish = [&](const float* sum, int64_t output, int64_t count, int64_t channel, int64_t channels,
                          Scratch& turned) {
    const int64_t depth = channels * taps, ld = direct ? each : depth;
    float* to =
        direct ? reinterpret_cast<float*>(context.result.data) + output * each + channel * taps : turned.as<float>();
    micro.deep(sum, count, depth, count, ld, reinterpret_cast<uint32_t*>(to));
    const auto done = direct ? leave_out_padding<float> : emit<float>;
    for (int64_t o = 0; o < count; ++o) {
      for (int64_t z = 0; z < shape.kernel[0]; ++z) {
        done(context, output + o, channel, channels, z, 0, shape.kernel[1], 0, shape.kernel[2], to + o * ld + z * plane,
             taps, shape.kernel[2]);
      }
    }
  };
  const size_t turned_size = sizeof(float) * size_t(direct ? 1 : strip * kChannels * taps);

  // Parts have sums of their own. Where there is one part, its last product is made of some channels at a time, whose
  // sums are finished while they are in the cache.
  const bool once = parts == 1;
  Scratch total_space(sizeof(float) * size_t(once ? 1 : weight_size * parts));
  float* total = total_space.as<float>();
  const auto run = [&](int64_t first, int64_t last) {
    Product product(forward, cut, pieces, outputs);
    const bool alike = pieces.height % pieces.rows == 0 && pieces.width % pieces.cols == 0;
    const bool gathered = once && alike && pieces.count <= product.most();
    const int64_t rows = gathered ? std::min(kChannels, cut.block) * taps : cut.block * taps;
    Scratch sum_space(sizeof(float) * size_t(once ? outputs * rows : 1)), turned(turned_size);
    for (int64_t task = first; task < last; ++task) {
      const int64_t part = task % parts, b = task / parts % cut.blocks, group = task / (parts * cut.blocks);
      const int64_t c0 = b * cut.block, count = std::min(cut.block, inputs - c0);
      float* sum = once ? sum_space.as<float>() : total + part * weight_size + group * outputs * each;
      const int64_t row = once ? 0 : c0 * taps, all_rows = once ? rows : each;
      const int64_t begin = pieces.count * part / parts, end = pieces.count * (part + 1) / parts;
      bool accumulate = false;
      for (int64_t i = begin; i < end; ++i) {
        product.add(gradient, group * outputs, input, group * inputs + c0, count, pieces.at(i));
        if (i + 1 < end && !product.full(pieces.at(i + 1))) continue;
        if (once && i + 1 == end) break;
        product.multiply(0, count * taps, row, all_rows, sum, accumulate);
        product.clear();
        accumulate = true;
      }
      for (int64_t c = 0; c < count && once; c += kChannels) {
        const int64_t channels = std::min(kChannels, count - c), at = accumulate ? c * taps : 0;
        product.multiply(c * taps, channels * taps, at, rows, sum, accumulate);
        for (int64_t o = 0; o < outputs; o += strip) {
          const int64_t width = std::min(strip, outputs - o);
          finish(sum + o * rows + at * width, group * outputs + o, width, c0 + c, channels, turned);
        }
      }
      product.clear();
    }
  };
  const int64_t tasks = parts * cut.blocks * shape.groups, work = all * weight_size / shape.groups;
  if (work <= (1 << 17)) {
    run(0, tasks);
  } else {
    parallel_for(tasks, std::max<int64_t>(1, (1 << 18) / std::max<int64_t>(1, work / tasks)), run);
  }
  if (once) return true;

  // Parts added in order: a strip of outputs and some channels at a time.
  const int64_t strips = (outputs + strip - 1) / strip, blocks = (inputs + kChannels - 1) / kChannels;
  const auto add = [&](int64_t first, int64_t last) {
    Scratch turned(turned_size);
    for (int64_t task = first; task < last; ++task) {
      const int64_t c0 = task % blocks * kChannels, channels = std::min(kChannels, inputs - c0);
      const int64_t o0 = task / blocks % strips * strip, count = std::min(strip, outputs - o0);
      const int64_t output = task / (blocks * strips) * outputs + o0;
      float* sum = total + output * each + c0 * taps * count;
      for (int64_t part = 1; part < parts; ++part) {
        const float* more = sum + part * weight_size;
        for (int64_t i = 0; i < channels * taps * count; ++i) sum[i] += more[i];
      }
      finish(sum, output, count, c0, channels, turned);
    }
  };
  parallel_for(shape.groups * strips * blocks, std::max<int64_t>(1, (1 << 14) / (strip * kChannels * taps * parts)),
               add);
  return true;
}

}  // namespace cmodel::conv
