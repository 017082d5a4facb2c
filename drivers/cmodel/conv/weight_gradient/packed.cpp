// Weight gradient in F32 as products on packed register tiles (product/packed.h). A is the gradient and B the im2col
// matrix; both go straight from where they lie into strips, k being positions of the batch in order.
#include <algorithm>

#include "drivers/cmodel/conv/weight_gradient/weight_gradient.h"
#include "drivers/cmodel/product/kernels.h"
#include "drivers/cmodel/product/packed.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::conv {
namespace {

using product::Micro;
using product::Scratch;

constexpr int64_t kSlack = 64;   // copy_rows writes that much too many at most
constexpr int64_t kNarrow = 16;  // lines shorter than that are put together before they are packed

// Positions gathered for one product.
class Product {
 public:
  Product(const Phase& forward, const Cut& cut, const Pieces& pieces, int64_t outputs, int64_t taps)
      : micro_(product::micro_f32()),
        outputs_(outputs),
        strip_(product::even_rows(micro_, outputs)),
        most_(std::max(cut.positions, pieces.rows * pieces.cols)),
        piece_(pieces.rows * pieces.cols),
        window_(forward.data(), cut.block, pieces.rows, pieces.cols),
        a_space_(sizeof(float) * size_t(outputs * most_ + kSlack)),
        b_space_(sizeof(float) * size_t(product::padded_cols(micro_, cut.block * taps) * most_ + kSlack)),
        column_space_(sizeof(float) * size_t(cut.block * taps * (piece_ + kSlack))) {}

  bool full() const { return filled_ + piece_ > most_; }

  void add(const Tensor& gradient, int64_t output, const Tensor& input, int64_t channel, int64_t channels,
           int64_t depth, const Pieces::Piece& p) {
    const int64_t* stride = gradient.stride;
    const float* from = reinterpret_cast<const float*>(gradient.data) + p.n * stride[0] + output * stride[1] +
                        p.z * stride[2] + p.y * stride[3] + p.x;
    const bool dense = stride[3] == p.cols || p.rows == 1;
    const int64_t lines = dense ? 1 : p.rows, length = dense ? p.rows * p.cols : p.cols;
    for (int64_t i = 0; i < outputs_; i += strip_) {
      const int64_t rows = std::min(strip_, outputs_ - i);
      uint32_t* to = a_space_.as<uint32_t>() + i * most_ + filled_ * rows;
      for (int64_t y = 0; y < lines; ++y) {
        micro_.deep(from + i * stride[1] + y * stride[3], stride[1], rows, length, rows, to + y * length * rows);
      }
    }
    window_.fill(input, p.n, channel, channels, p.z, p.y, p.rows, p.x, p.cols);
    add_column(depth, p);
    filled_ += p.rows * p.cols;
  }

  // sum[outputs, depth] (+)= what was gathered.
  void multiply(int64_t depth, float* sum, int64_t ld, bool accumulate) {
    const uint32_t *a = a_space_.as<uint32_t>(), *b = b_space_.as<uint32_t>();
    for (int64_t p = 0; p < filled_; p += product::kBlockWords) {
      const int64_t words = std::min(product::kBlockWords, filled_ - p);
      for (int64_t j = 0; j < depth; j += micro_.cols) {
        const int64_t cols = std::min<int64_t>(micro_.cols, depth - j), pitch = product::padded_cols(micro_, cols);
        for (int64_t i = 0; i < outputs_; i += strip_) {
          const int64_t rows = std::min(strip_, outputs_ - i);
          micro_.tile(words, a + i * most_ + p * rows, b + j * most_ + p * pitch, sum + i * ld + j, ld, rows, cols,
                      accumulate || p > 0);
        }
      }
    }
    filled_ = 0;
  }

 private:
  void add_column(int64_t depth, const Pieces::Piece& p) {
    const int64_t* offsets = window_.offsets().data();
    const float* data = window_.data();
    const bool whole = window_.pitch() == p.cols || p.rows == 1;
    const int64_t all = p.rows * p.cols, ld = piece_ + kSlack;
    const bool narrow = !whole && p.cols < kNarrow;
    float* column = column_space_.as<float>();
    if (narrow) {
      const auto copy_rows = product::kernels<float>().copy_rows;
      for (int64_t t = 0; t < depth; ++t)
        copy_rows(column + t * ld, data + offsets[t], window_.pitch(), p.rows, p.cols);
    }
    for (int64_t j = 0; j < depth; j += micro_.cols) {
      const int64_t cols = std::min<int64_t>(micro_.cols, depth - j), pitch = product::padded_cols(micro_, cols);
      uint32_t* to = b_space_.as<uint32_t>() + j * most_ + filled_ * pitch;
      if (narrow) {
        micro_.deep(column + j * ld, ld, cols, all, pitch, to);
        continue;
      }
      const int64_t lines = whole ? 1 : p.rows, length = whole ? all : p.cols;
      for (int64_t y = 0; y < lines; ++y) {
        micro_.deep_at(data + y * window_.pitch(), offsets + j, cols, length, pitch, to + y * length * pitch);
      }
    }
  }

  const Micro& micro_;
  int64_t outputs_, strip_, most_, piece_;
  Window<float> window_;
  Scratch a_space_, b_space_, column_space_;
  int64_t filled_ = 0;
};

}  // namespace

bool try_packed_grad_weight(const Context& context, const Phase& forward, const Tensor& gradient, const Tensor& input) {
  const Shape& shape = context.shape;
  const int64_t taps = shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
  const int64_t outputs = shape.out_channels, inputs = shape.in_channels;
  const int64_t weight_size = shape.groups * outputs * inputs * taps;
  const int64_t all = shape.batch * shape.out_size[0] * shape.out_size[1] * shape.out_size[2];
  if (context.acc_dtype != NPU_F32 || gradient.dtype != NPU_F32 || all == 0) return false;
  if (gradient.stride[4] != 1 && shape.out_size[2] > 1) return false;

  const Cut cut = cut_of(shape, taps, weight_size);
  const Pieces pieces(shape.batch, shape.out_size[0], shape.out_size[1], shape.out_size[2], cut.positions);
  const int64_t parts = std::min(cut.parts, pieces.count);
  const bool direct = parts == 1 && is_dense(context, taps);
  Scratch total_space(sizeof(float) * size_t(direct ? 1 : weight_size * parts));
  float* total = direct ? reinterpret_cast<float*>(context.result.data) : total_space.as<float>();

  const auto run = [&](int64_t first, int64_t last) {
    Product product(forward, cut, pieces, outputs, taps);
    for (int64_t task = first; task < last; ++task) {
      const int64_t part = task % parts, b = task / parts % cut.blocks, group = task / (parts * cut.blocks);
      const int64_t c0 = b * cut.block, count = std::min(cut.block, inputs - c0), depth = count * taps;
      float* sum = total + part * weight_size + group * outputs * inputs * taps + c0 * taps;
      const int64_t begin = pieces.count * part / parts, end = pieces.count * (part + 1) / parts;
      bool accumulate = false;
      for (int64_t i = begin; i < end; ++i) {
        product.add(gradient, group * outputs, input, group * inputs + c0, count, depth, pieces.at(i));
        if (!product.full() && i + 1 < end) continue;
        product.multiply(depth, sum, inputs * taps, accumulate);
        accumulate = true;
      }
    }
  };
  const int64_t tasks = parts * cut.blocks * shape.groups, work = all * weight_size / shape.groups;
  if (work <= (1 << 17)) {
    run(0, tasks);
  } else {
    parallel_for(tasks, std::max<int64_t>(1, (1 << 18) / std::max<int64_t>(1, work / tasks)), run);
  }
  const int64_t plane = shape.kernel[1] * shape.kernel[2], each = inputs * taps;
  const auto add_up = [&](int64_t first, int64_t last) {  // output channels
    for (int64_t part = 1; part < parts; ++part) {
      const float* more = total + part * weight_size;
      for (int64_t i = first * each; i < last * each; ++i) total[i] += more[i];
    }
    const auto finish = direct ? leave_out_padding<float> : emit<float>;
    for (int64_t o = first; o < last; ++o) {
      for (int64_t z = 0; z < shape.kernel[0]; ++z) {
        float* sums = total + o * each + z * plane;
        finish(context, o, 0, inputs, z, 0, shape.kernel[1], 0, shape.kernel[2], sums, taps, shape.kernel[2]);
      }
    }
  };
  parallel_for(shape.groups * outputs, std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, each * parts)), add_up);
  return true;
}

}  // namespace cmodel::conv
