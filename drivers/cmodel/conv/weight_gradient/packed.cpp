// Weight gradient in F32 as products on packed register tiles (product/packed.h). A is the gradient and B the im2col
// matrix; both go straight from where they lie into strips, k being positions of the batch in order.
#include <algorithm>

#include "drivers/cmodel/conv/weight_gradient/weight_gradient.h"
#include "drivers/cmodel/conv/window.h"
#include "drivers/cmodel/product/kernels/kernels.h"
#include "drivers/cmodel/product/packed.h"

namespace cmodel::conv {
namespace {

using product::Micro;
using product::Scratch;

constexpr int64_t kSlack = 64;  // copy_rows writes that much too many at most

// Positions gathered for one product.
class Product {
 public:
  Product(const WeightGradient& w, const Cut& cut)
      : w_(w),
        micro_(product::micro_f32()),
        strip_(product::even_rows(micro_, w.outputs)),
        piece_(cut.pieces.rows * cut.pieces.cols),
        most_(std::max(cut.pieces.positions, piece_)),
        window_(w.forward, cut.block, cut.pieces.rows, cut.pieces.cols),
        a_space_(sizeof(float) * size_t(w.outputs * most_ + kSlack)),
        b_space_(sizeof(float) * size_t(product::padded_cols(micro_, cut.block * w.taps) * most_ + kSlack)),
        column_space_(sizeof(float) * size_t(cut.block * w.taps * (piece_ + kSlack))) {}

  bool full() const { return filled_ + piece_ > most_; }

  void add(const Cut::Task& task, const Piece& p) {
    const int64_t* stride = w_.gradient.stride;
    const float* from = reinterpret_cast<const float*>(w_.gradient.at(p, task.group * w_.outputs));
    const bool dense = stride[3] == p.cols || p.rows == 1;
    const int64_t lines = dense ? 1 : p.rows, length = dense ? p.points() : p.cols;
    for (int64_t i = 0; i < w_.outputs; i += strip_) {
      const int64_t rows = std::min(strip_, w_.outputs - i);
      uint32_t* to = a_space_.as<uint32_t>() + i * most_ + filled_ * rows;
      for (int64_t y = 0; y < lines; ++y) {
        micro_.deep(from + i * stride[1] + y * stride[3], stride[1], rows, length, rows, to + y * length * rows);
      }
    }
    window_.fill(w_.input, p, task.group * w_.inputs + task.channel, task.channels);
    add_column(task.channels * w_.taps, p);
    filled_ += p.points();
  }

  // sums[outputs, depth] (+)= what was gathered.
  void multiply(int64_t depth, float* sums, bool accumulate) {
    const uint32_t *a = a_space_.as<uint32_t>(), *b = b_space_.as<uint32_t>();
    for (int64_t p = 0; p < filled_; p += product::kBlockWords) {
      const int64_t words = std::min(product::kBlockWords, filled_ - p);
      for (int64_t j = 0; j < depth; j += micro_.cols) {
        const int64_t cols = std::min<int64_t>(micro_.cols, depth - j), pitch = product::padded_cols(micro_, cols);
        for (int64_t i = 0; i < w_.outputs; i += strip_) {
          const int64_t rows = std::min(strip_, w_.outputs - i);
          micro_.tile(words, a + i * most_ + p * rows, b + j * most_ + p * pitch, sums + i * w_.depth + j, w_.depth,
                      rows, cols, accumulate || p > 0);
        }
      }
    }
    filled_ = 0;
  }

 private:
  void add_column(int64_t depth, const Piece& p) {
    const int64_t* offsets = window_.offsets().data();
    const float* data = window_.data();
    const bool whole = window_.pitch() == p.cols || p.rows == 1;
    const int64_t all = p.points(), ld = piece_ + kSlack;
    const bool narrow = !whole && p.cols < kNarrowLine;
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

  const WeightGradient& w_;
  const Micro& micro_;
  const int64_t strip_, piece_, most_;  // rows of A; positions of a piece and of a product
  Window<float> window_;
  Scratch a_space_, b_space_, column_space_;
  int64_t filled_ = 0;
};

const char* refuses(const WeightGradient& w) {
  if (w.context.acc_dtype != NPU_F32 || w.gradient.dtype != NPU_F32) return "sums or the gradient are not f32";
  if (w.positions == 0) return "there is nothing to add up";
  const bool apart = w.gradient.stride[4] != 1 && w.shape.out_size[2] > 1;
  return apart ? "x of the gradient does not lie along memory" : nullptr;
}

void run(const WeightGradient& w) {
  Cut cut(w);
  cut.parts = parts_of(w, cut);
  const bool direct = cut.parts == 1 && is_dense(w);
  Scratch space(sizeof(float) * size_t(direct ? 1 : w.size * cut.parts));
  float* total = direct ? reinterpret_cast<float*>(w.context.result.data) : space.as<float>();
  run_tasks(cut.tasks(w), w.positions * w.size / w.shape.groups, [&](int64_t first, int64_t last) {
    Product product(w, cut);
    for (int64_t i = first; i < last; ++i) {
      const Cut::Task task = cut.at(w, i);
      float* sums = total + task.part * w.size + task.group * w.outputs * w.depth + task.channel * w.taps;
      bool accumulate = false;
      for (int64_t piece = task.begin; piece < task.end; ++piece) {
        product.add(task, cut.pieces.at(piece));
        if (!product.full() && piece + 1 < task.end) continue;
        product.multiply(task.channels * w.taps, sums, accumulate);
        accumulate = true;
      }
    }
  });
  add_up(w, total, cut.parts, direct);
}

}  // namespace

constinit const WeightGradientWay packed_gradient = {"packed", refuses, always<run, const WeightGradient>};

}  // namespace cmodel::conv
