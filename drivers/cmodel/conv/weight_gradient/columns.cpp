// Weight gradient of any types, through an im2col matrix of one block of input channels.
#include <algorithm>
#include <optional>
#include <type_traits>

#include "drivers/cmodel/conv/weight_gradient/weight_gradient.h"
#include "drivers/cmodel/conv/window.h"
#include "drivers/cmodel/product/gemm.h"
#include "drivers/cmodel/product/kernels/kernels.h"
#include "drivers/cmodel/product/packed.h"

namespace cmodel::conv {
namespace {

using product::Scratch;

constexpr int64_t kSlack = 64;  // copy_rows writes that much too many at most

// One thread's products. Sums are of T; E: elements of the operands, which stay bf16 where there are instructions for
// it. Small images share one product: positions are gathered until there are enough.
template <class T, class E>
class Worker {
 public:
  Worker(const WeightGradient& w, const Cut& cut)
      : w_(w),
        piece_(cut.pieces.rows * cut.pieces.cols),
        most_(std::max(cut.pieces.positions, piece_)),
        ld_(most_ + kSlack),
        window_(w.forward, cut.block, cut.pieces.rows, cut.pieces.cols),
        column_space_(sizeof(E) * cut.block * w.taps * ld_),
        gradient_space_(sizeof(E) * w.outputs * ld_) {}

  void run(const Cut& cut, const Cut::Task& task, T* sums) {
    const int64_t depth = task.channels * w_.taps;
    bool accumulate = false;
    for (int64_t i = task.begin; i < task.end; ++i) {
      add(cut.pieces.at(i), task.group, task.channel, task.channels);
      if (filled_ + piece_ <= most_ && i + 1 < task.end) continue;
      multiply(depth, sums, accumulate);
      accumulate = true;
      filled_ = 0;
    }
    for (int64_t o = 0; o < w_.outputs && !accumulate; ++o) std::fill_n(sums + o * w_.depth, depth, T(0));
  }

 private:
  void add(const Piece& p, int64_t group, int64_t channel, int64_t channels) {
    window_.fill(w_.input, p, group * w_.inputs + channel, channels);
    for (int64_t t = 0; t < channels * w_.taps; ++t) {
      copy_rows(column_space_.as<E>() + t * ld_ + filled_, window_.data() + window_.offsets()[t], window_.pitch(),
                p.rows, p.cols);
    }
    const Tensor& from = w_.gradient;
    const bool dense = from.stride[3] == p.cols * from.stride[4];
    const int64_t lines = dense ? 1 : p.rows, length = dense ? p.points() : p.cols;
    for (int64_t o = 0; o < w_.outputs; ++o) {
      E* to = gradient_space_.as<E>() + o * ld_ + filled_;
      for (int64_t y = 0; y < lines; ++y, to += length) {
        product::load_line<E>(from.dtype, from.at(p.n, group * w_.outputs + o, p.z, p.y + y, p.x), from.stride[4],
                              length, to);
      }
    }
    filled_ += p.points();
  }

  static void copy_rows(E* to, const E* from, int64_t ld, int64_t rows, int64_t cols) {
    if constexpr (sizeof(E) == 2) {
      product::kernel_set().copy_rows_16(to, from, ld, rows, cols);
    } else {
      product::kernels<E>().copy_rows(to, from, ld, rows, cols);
    }
  }

  // sums[outputs, depth] (+)= gradient[outputs, positions] * column[depth, positions].
  void multiply(int64_t depth, T* sums, bool accumulate) {
    const E *gradient = gradient_space_.as<E>(), *column = column_space_.as<E>();
    if constexpr (std::is_same_v<T, float>) {
      constexpr int kType = sizeof(E) == 2 ? NPU_BF16 : NPU_F32;
      product::packed_gemm(product::micro_for(kType, kType),
                           {reinterpret_cast<const char*>(gradient), kType, w_.outputs, filled_, ld_, 1},
                           {reinterpret_cast<const char*>(column), kType, depth, filled_, ld_, 1}, accumulate, sums,
                           w_.depth);
    } else {
      product::gemm<T>(false, true, w_.outputs, depth, filled_, gradient, ld_, column, ld_, accumulate, sums, w_.depth);
    }
  }

  const WeightGradient& w_;
  const int64_t piece_, most_, ld_;  // positions: of a piece, of a product, from line to line
  Window<E> window_;
  Scratch column_space_, gradient_space_;
  int64_t filled_ = 0;
};

template <class T, class E>
void run_as(const WeightGradient& w) {
  Cut cut(w);
  const Pieces& pieces = cut.pieces;
  const int64_t work = pieces.count * pieces.rows * pieces.cols * w.size, tasks = cut.blocks * w.shape.groups;
  while (cut.parts < kGradientTasks && cut.parts * 2 <= pieces.count && cut.parts * tasks < kGradientTasks &&
         w.size * cut.parts < kGradientElements && work / (cut.parts * tasks) > kPartWork) {
    cut.parts *= 2;
  }
  Scratch space(sizeof(T) * w.size * cut.parts);
  T* sums = space.as<T>();
  run_tasks(cut.tasks(w), work, [&](int64_t first, int64_t last) {
    Worker<T, E> worker(w, cut);
    for (int64_t i = first; i < last; ++i) {
      const Cut::Task task = cut.at(w, i);
      worker.run(cut, task, sums + task.part * w.size + task.group * w.outputs * w.depth + task.channel * w.taps);
    }
  });
  add_up(w, sums, cut.parts);
}

void run(const WeightGradient& w) {
  const bool halves = w.gradient.dtype == NPU_BF16 && w.input.dtype == NPU_BF16 && product::micro_bf16();
  if (halves && w.context.acc_dtype == NPU_F32) return run_as<float, uint16_t>(w);
  product::with_accumulator(w.context.acc_dtype, [&]<class T>(T) { run_as<T, T>(w); });
}

}  // namespace

constinit const WeightGradientWay column_gradient = {"im2col", nullptr, always<run, const WeightGradient>};

}  // namespace cmodel::conv
