// Weight gradient: [result channels, positions] x [positions, input channels * taps], where positions run over the
// whole batch in order. The batch is cut into a number of parts that depends on the shape only, and the parts are added
// in order, so the result does not depend on the number of threads.
#include <algorithm>
#include <type_traits>

#include "drivers/cmodel/conv/conv.h"
#include "drivers/cmodel/product/gemm.h"
#include "drivers/cmodel/product/kernels.h"
#include "drivers/cmodel/product/packed.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::conv {
namespace {

using product::Scratch;

constexpr int64_t kPositions = 1024, kLeastPositions = 512;  // of one product: more, and sums are read less often
constexpr int64_t kColumnElements = 256 << 10;               // of the im2col matrix

// sum[outputs, depth] (+)= grad[outputs, positions] * column[depth, positions]. E: elements of the operands; bf16 stays
// bf16 where there are instructions for it.
template <class T, class E>
void product(int64_t outputs, int64_t depth, int64_t positions, const E* grad, const E* column, int64_t ld,
             bool accumulate, T* sum, int64_t sum_ld) {
  if constexpr (std::is_same_v<T, float>) {
    constexpr int kType = sizeof(E) == 2 ? NPU_BF16 : NPU_F32;
    if (positions > 0) {
      product::packed_gemm(
          product::micro_for(kType, kType), {reinterpret_cast<const char*>(grad), kType, outputs, positions, ld, 1},
          {reinterpret_cast<const char*>(column), kType, depth, positions, ld, 1}, accumulate, sum, sum_ld);
    } else if (!accumulate) {
      for (int64_t o = 0; o < outputs; ++o) std::fill_n(sum + o * sum_ld, depth, T(0));
    }
  } else {
    product::gemm<T>(false, true, outputs, depth, positions, grad, ld, column, ld, accumulate, sum, sum_ld);
  }
}

template <class T, class E>
void grad_weight_of(const Context& context, const Phase& forward, const Tensor& gradient, const Tensor& input) {
  const Shape& shape = context.shape;
  const int64_t taps = shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
  const int64_t height = shape.out_size[1], width = shape.out_size[2];
  const int64_t outputs = shape.out_channels, inputs = shape.in_channels;
  const int64_t weight_size = shape.groups * outputs * inputs * taps;

  // Few enough positions at a time that the im2col matrix stays in the cache. Where even that is too much, channels of
  // the input are taken in blocks; each is one task and reads the gradient once more.
  const int64_t positions =
      std::clamp(kColumnElements / std::max<int64_t>(1, inputs * taps), kLeastPositions, kPositions);
  int64_t block = inputs;
  while (block > 8 && block * taps * positions > kColumnElements * 5 / 4) block = (block + 1) / 2;
  const int64_t blocks = (inputs + block - 1) / block;

  const Pieces pieces(shape.batch, shape.out_size[0], height, width, positions);
  const int64_t rows = pieces.rows, cols = pieces.cols;
  const int64_t work = pieces.count * rows * cols * weight_size;
  int64_t parts = 1;
  while (parts < 16 && parts * 2 <= pieces.count && parts * blocks * shape.groups < 16 &&
         weight_size * parts < (4 << 20) && work / (parts * blocks * shape.groups) > (1 << 19)) {
    parts *= 2;
  }
  Scratch total_space(sizeof(T) * weight_size * parts);
  T* total = total_space.as<T>();

  constexpr int64_t kSlack = 64;  // copy_rows writes that much too many at most
  const auto copy_rows = [] {
    if constexpr (sizeof(E) == 2) {
      return product::kernel_set().copy_rows_16;
    } else {
      return product::kernels<E>().copy_rows;
    }
  }();
  const auto run = [&](int64_t first, int64_t last) {
    Window<E> window(forward.data(), block, rows, cols);
    // Small images share one product: positions are gathered until there are enough.
    const int64_t most = std::max(positions, rows * cols), capacity = most + kSlack;
    Scratch column_space(sizeof(E) * block * taps * capacity), gradient_space(sizeof(E) * outputs * capacity);
    E* column = column_space.template as<E>();
    E* grad = gradient_space.template as<E>();
    const int64_t grad_size = npu::dtype_size(gradient.dtype);
    for (int64_t task = first; task < last; ++task) {
      const int64_t part = task % parts, b = task / parts % blocks, group = task / (parts * blocks);
      const int64_t c0 = b * block, count = std::min(block, inputs - c0), depth = count * taps;
      T* sum = total + part * weight_size + group * outputs * inputs * taps + c0 * taps;
      const int64_t end = pieces.count * (part + 1) / parts;
      int64_t filled = 0;
      bool accumulate = false;
      for (int64_t i = pieces.count * part / parts; i < end; ++i) {
        const Pieces::Piece p = pieces.at(i);
        window.fill(input, p.n, group * inputs + c0, count, p.z, p.y, p.rows, p.x, p.cols);
        const int64_t* offsets = window.offsets().data();
        for (int64_t t = 0; t < depth; ++t) {
          copy_rows(column + t * capacity + filled, window.data() + offsets[t], window.pitch(), p.rows, p.cols);
        }
        for (int64_t o = 0; o < outputs; ++o) {
          const char* from =
              gradient.data + (p.n * gradient.stride[0] + (group * outputs + o) * gradient.stride[1] +
                               p.z * gradient.stride[2] + p.y * gradient.stride[3] + p.x * gradient.stride[4]) *
                                  grad_size;
          E* to = grad + o * capacity + filled;
          const bool dense = gradient.stride[3] == p.cols * gradient.stride[4];
          const int64_t lines = dense ? 1 : p.rows, length = dense ? p.rows * p.cols : p.cols;
          for (int64_t y = 0; y < lines; ++y, to += length) {
            product::load_line<E>(gradient.dtype, from + y * gradient.stride[3] * grad_size, gradient.stride[4], length,
                                  to);
          }
        }
        filled += p.rows * p.cols;
        if (filled + rows * cols > most || i + 1 == end) {
          product<T, E>(outputs, depth, filled, grad, column, capacity, accumulate, sum, inputs * taps);
          accumulate = true;
          filled = 0;
        }
      }
      if (!accumulate) product<T, E>(outputs, depth, 0, grad, column, capacity, false, sum, inputs * taps);
    }
  };
  const int64_t tasks = parts * blocks * shape.groups;
  if (work <= (1 << 17)) {
    run(0, tasks);
  } else {
    parallel_for(tasks, std::max<int64_t>(1, (1 << 18) / std::max<int64_t>(1, work / tasks)), run);
  }
  for (int64_t part = 1; part < parts; ++part) {
    const T* more = total + part * weight_size;
    for (int64_t i = 0; i < weight_size; ++i) total[i] += more[i];
  }
  const int64_t plane = shape.kernel[1] * shape.kernel[2];
  for (int64_t o = 0; o < shape.groups * outputs; ++o) {
    for (int64_t z = 0; z < shape.kernel[0]; ++z) {
      emit(context, o, 0, inputs, z, 0, shape.kernel[1], 0, shape.kernel[2], total + o * inputs * taps + z * plane,
           taps, shape.kernel[2]);
    }
  }
}

}  // namespace

template <class T>
void grad_weight(const Context& context, const Phase& forward, const Tensor& gradient, const Tensor& input) {
  if constexpr (std::is_same_v<T, float>) {
    if (try_depthwise_grad_weight(context, forward, gradient, input) ||
        try_pointwise_grad_weight(context, gradient, input) || try_few_grad_weight(context, forward, gradient, input) ||
        try_lines_grad_weight(context, forward, gradient, input) ||
        try_packed_grad_weight(context, forward, gradient, input)) {
      return;
    }
    if (gradient.dtype == NPU_BF16 && input.dtype == NPU_BF16 && product::micro_bf16()) {
      return grad_weight_of<float, uint16_t>(context, forward, gradient, input);
    }
  }
  grad_weight_of<T, T>(context, forward, gradient, input);
}

template void grad_weight<float>(const Context&, const Phase&, const Tensor&, const Tensor&);
template void grad_weight<double>(const Context&, const Phase&, const Tensor&, const Tensor&);
template void grad_weight<uint32_t>(const Context&, const Phase&, const Tensor&, const Tensor&);
template void grad_weight<uint64_t>(const Context&, const Phase&, const Tensor&, const Tensor&);

}  // namespace cmodel::conv
