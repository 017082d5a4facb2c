// Convolutions with one channel on either side of each group: the weight gradient, and images with channels last, where
// a vector is one point of many groups.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "drivers/cmodel/conv/conv.h"
#include "drivers/cmodel/conv/epilogue.h"
#include "drivers/cmodel/conv/kernels/kernels.h"
#include "drivers/cmodel/product/kernels.h"
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

bool try_depthwise_grad_weight(const Context& context, const Phase& forward, const Tensor& gradient,
                               const Tensor& input) {
  const Shape& shape = context.shape;
  if (context.acc_dtype != NPU_F32 || shape.in_channels != 1 || shape.out_channels != 1) return false;
  const int64_t taps = shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
  const Pieces pieces(shape.batch, shape.out_size[0], shape.out_size[1], shape.out_size[2], 4096);
  const int64_t gradient_size = npu::dtype_size(gradient.dtype);
  const auto run = [&](int64_t first, int64_t last) {
    Window<float> window(forward.data(), 1, pieces.rows, pieces.cols);
    product::Scratch gradient_space(sizeof(float) * pieces.rows * pieces.cols);
    std::vector<double> sums(taps);
    std::vector<float> result(taps);
    for (int64_t group = first; group < last; ++group) {
      std::fill(sums.begin(), sums.end(), 0.0);
      for (int64_t i = 0; i < pieces.count; ++i) {
        const Pieces::Piece p = pieces.at(i);
        window.fill(input, p.n, group, 1, p.z, p.y, p.rows, p.x, p.cols);
        const char* from =
            gradient.data + (p.n * gradient.stride[0] + group * gradient.stride[1] + p.z * gradient.stride[2] +
                             p.y * gradient.stride[3] + p.x * gradient.stride[4]) *
                                gradient_size;
        const bool in_place = gradient.dtype == NPU_F32 && gradient.stride[4] == 1;
        if (!in_place) {
          for (int64_t y = 0; y < p.rows; ++y) {
            product::load_line<float>(gradient.dtype, from + y * gradient.stride[3] * gradient_size, gradient.stride[4],
                                      p.cols, gradient_space.as<float>() + y * p.cols);
          }
        }
        kernels().tap_sums(sums.data(), in_place ? reinterpret_cast<const float*>(from) : gradient_space.as<float>(),
                           in_place ? gradient.stride[3] : p.cols, p.rows, p.cols, window.data(), window.pitch(),
                           window.offsets().data(), taps);
      }
      std::copy(sums.begin(), sums.end(), result.begin());
      const int64_t plane = shape.kernel[1] * shape.kernel[2];
      for (int64_t z = 0; z < shape.kernel[0]; ++z) {
        emit(context, group, 0, 1, z, 0, shape.kernel[1], 0, shape.kernel[2], result.data() + z * plane, taps,
             shape.kernel[2]);
      }
    }
  };
  const int64_t each =
      std::max<int64_t>(1, shape.batch * shape.out_size[0] * shape.out_size[1] * shape.out_size[2] * taps);
  parallel_for(shape.groups, std::max<int64_t>(1, (1 << 17) / each), run);
  return true;
}

bool try_depthwise_channels_last(const Context& context, const std::vector<Phase>& phases, const Tensor& source,
                                 const Weights& weights) {
  const Shape& shape = context.shape;
  const Tensor& out = context.result;
  const Phase& axes = phases[0];
  const bool together = context.epilogue ? context.epilogue->channels_last() : out.stride[1] == 1;
  if (context.acc_dtype != NPU_F32 || phases.size() != 1 || axes[2].result_step != 1 || axes[1].result_step != 1 ||
      axes[0].result_step != 1 || shape.in_channels != 1 || shape.out_channels != 1 || source.stride[1] != 1 ||
      !together || shape.groups < 8) {
    return false;
  }
  const int64_t groups = shape.groups, lanes = kernels().lanes,
                width = std::min<int64_t>(64, (groups + lanes - 1) / lanes * lanes);
  const int64_t blocks = (groups + width - 1) / width, taps = shape.kernel[0] * shape.kernel[1] * shape.kernel[2];

  // Weights as [block][tap][channel], in the order of the taps of the phase.
  std::optional<product::Scratch> converted_space;
  const Weights w = converted<float>(shape, weights, converted_space);
  product::Scratch weight_space(sizeof(float) * blocks * taps * width);
  float* by_tap = weight_space.as<float>();
  std::fill_n(by_tap, blocks * taps * width, 0.0f);
  int64_t t = 0;
  for (const Tap& z : axes[0].taps) {
    for (const Tap& y : axes[1].taps) {
      for (const Tap& x : axes[2].taps) {
        const int64_t at =
            z.kernel * w.tensor.stride[2] + y.kernel * w.tensor.stride[3] + x.kernel * w.tensor.stride[4];
        for (int64_t c = 0; c < groups; ++c) {
          const float value = reinterpret_cast<const float*>(w.tensor.data)[c * w.tensor.stride[0] + at];
          if (!std::isfinite(value)) return false;  // it must not meet padding
          by_tap[(c / width * taps + t) * width + c % width] = value;
        }
        ++t;
      }
    }
  }

  // A tile: some rows of one image in one block of channels. Its source, padded, as [z tap][row][column][channel].
  const int64_t* size = weights.swapped ? shape.in_size : shape.out_size;
  int64_t least[3], reach[3];
  for (int d = 0; d < 3; ++d) {
    least[d] = axes[d].taps[0].offset;
    int64_t greatest = least[d];
    for (const Tap& tap : axes[d].taps)
      least[d] = std::min(least[d], tap.offset), greatest = std::max(greatest, tap.offset);
    reach[d] = greatest - least[d];
  }
  const int64_t x_step = axes[2].source_step, y_step = axes[1].source_step;
  const int64_t source_cols = (size[2] - 1) * x_step + reach[2] + 1;
  int64_t rows = std::min<int64_t>(size[1], 8);
  const int64_t source_rows = (rows - 1) * y_step + reach[1] + 1, planes = int64_t(axes[0].taps.size());
  std::vector<int64_t> offsets;
  for (int64_t z = 0; z < planes; ++z) {
    for (const Tap& y : axes[1].taps) {
      for (const Tap& x : axes[2].taps) {
        offsets.push_back(((z * source_rows + y.offset - least[1]) * source_cols + x.offset - least[2]) * width);
      }
    }
  }
  const int64_t y_tiles = (size[1] + rows - 1) / rows, tasks = shape.batch * blocks * size[0] * y_tiles;
  const int64_t in_size = npu::dtype_size(source.dtype), out_size = context.epilogue ? 0 : npu::dtype_size(out.dtype);
  const auto run = [&](int64_t first, int64_t last) {
    product::Scratch window_space(sizeof(float) * planes * source_rows * source_cols * width);
    product::Scratch line_space(sizeof(float) * size[2] * width);
    float *window = window_space.as<float>(), *line = line_space.as<float>();
    for (int64_t task = first; task < last; ++task) {
      const int64_t y0 = task % y_tiles * rows, z = task / y_tiles % size[0],
                    block = task / (y_tiles * size[0]) % blocks;
      const int64_t n = task / (y_tiles * size[0] * blocks), c0 = block * width, count = std::min(width, groups - c0);
      const int64_t height = std::min(rows, size[1] - y0), needed = (height - 1) * y_step + reach[1] + 1;
      for (int64_t p = 0; p < planes; ++p) {
        const int64_t sz = z * axes[0].source_step + axes[0].taps[p].offset;
        for (int64_t r = 0; r < needed; ++r) {
          const int64_t sy = y0 * y_step + least[1] + r;
          float* to = window + (p * source_rows + r) * source_cols * width;
          const bool inside = sz >= 0 && sz < axes[0].source_size && sy >= 0 && sy < axes[1].source_size;
          for (int64_t x = 0; x < source_cols; ++x, to += width) {
            const int64_t sx = x + least[2];
            if (!inside || sx < 0 || sx >= axes[2].source_size) {
              std::fill_n(to, width, 0.0f);
              continue;
            }
            const int64_t at =
                n * source.stride[0] + c0 + sz * source.stride[2] + sy * source.stride[3] + sx * source.stride[4];
            product::load_line<float>(source.dtype, source.data + at * in_size, 1, count, to);
            std::fill_n(to + count, width - count, 0.0f);
          }
        }
      }
      for (int64_t y = 0; y < height; ++y) {
        kernels().channels_last(line, size[2], width, window + y * y_step * source_cols * width, x_step * width,
                                offsets.data(), by_tap + block * taps * width, taps);
        if (context.epilogue) {
          context.epilogue->run_points({n, c0, count, z, y0 + y, 1, 0, size[2]}, line, width);
          continue;
        }
        char* to = out.data + (n * out.stride[0] + c0 + z * out.stride[2] + (y0 + y) * out.stride[3]) * out_size;
        for (int64_t x = 0; x < size[2]; ++x) {
          product::store_line<float>(out.dtype, to + x * out.stride[4] * out_size, 1, count, line + x * width);
        }
      }
    }
  };
  const int64_t each = std::max<int64_t>(1, rows * size[2] * width * taps);
  parallel_for(tasks, std::max<int64_t>(1, (1 << 17) / each), run);
  return true;
}

}  // namespace cmodel::conv
