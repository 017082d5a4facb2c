// CONV seen as correlation. Forward and input gradient are both
//   result[n, r, q * result_step + result_start] = sum over c, taps of weight[r, c, tap] * source[n, c, q * step +
//   offset[tap]]
// along each of three axes: forward steps through the input by its stride; the input gradient splits into one such
// correlation per residue of the result's position modulo the stride, each with the taps that reach it.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "drivers/cmodel/choose/way.h"
#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/product/pack.h"

namespace cmodel::conv {

// A rectangle of points at one z of one image.
struct Piece {
  int64_t n, z, y, rows, x, cols;
  int64_t points() const { return rows * cols; }
};

// Results of some channels at these points.
struct Results : Piece {
  int64_t channel, channels;
};

// Sums of results, that of channel c and point (y, x) at data[c * channel_ld + y * row_ld + x].
template <class T>
struct Sums {
  T* data;
  int64_t channel_ld, row_ld;
};

// An operand with its leading spatial dimensions filled up to three: n (or weight's out channel), channel, z, y, x.
struct Tensor {
  char* data;
  int dtype;
  int64_t stride[5];

  int64_t element_size() const { return npu::dtype_size(dtype); }
  char* at(int64_t n, int64_t channel, int64_t z, int64_t y, int64_t x) const {
    return data +
           (n * stride[0] + channel * stride[1] + z * stride[2] + y * stride[3] + x * stride[4]) * element_size();
  }
  // The first point of a piece.
  char* at(const Piece& p, int64_t channel) const { return at(p.n, channel, p.z, p.y, p.x); }
};

struct Tap {
  int64_t kernel, offset;
};

struct Axis {
  int64_t count;  // of q
  int64_t result_start, result_step;
  int64_t source_size, source_step;
  std::vector<Tap> taps;

  bool is_inside(int64_t q, const Tap& tap) const {
    const int64_t at = q * source_step + tap.offset;
    return at >= 0 && at < source_size;
  }
};

// A phase is one correlation of the sum at the top: its z, y and x axes.
using Phase = std::array<Axis, 3>;

// body(z, y, x) for each combination of taps, in the order of the kernel.
template <class F>
void each_tap(const Phase& phase, F&& body) {
  for (const Tap& z : phase[0].taps) {
    for (const Tap& y : phase[1].taps) {
      for (const Tap& x : phase[2].taps) body(z, y, x);
    }
  }
}

struct Shape {
  int spatial_rank;
  int64_t batch, groups, in_channels, out_channels;  // channels per group
  int64_t in_size[3], out_size[3], kernel[3], stride[3], padding[3], dilation[3];
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t positions() const { return batch * out_size[0] * out_size[1] * out_size[2]; }
};

class Epilogue;  // conv/epilogue.h

// What every part needs to know of the job.
struct Context {
  const Job& job;
  Shape shape;
  Tensor result;  // unused with an epilogue
  int acc_dtype;
  const Epilogue* epilogue;                   // null: none
  mutable std::atomic<int> finite_factor{0};  // see conv/padding.cpp
};

Tensor tensor_of(const Operand& operand, int spatial_rank);

// Stores sums of results, or runs the epilogue on them.
template <class T>
void emit(const Context& context, const Results& at, const Sums<T>& sums);

// Results that are NaN because a zero of the padding met an infinity or a NaN, once more without the padding.
template <class T>
void leave_out_padding(const Context& context, const Results& at, const Sums<T>& sums);

// Forward reads weight[result channel, source channel], the input gradient weight[source channel, result channel].
struct Weights {
  Tensor tensor;
  bool transposed;
  int64_t result_stride() const { return tensor.stride[transposed ? 1 : 0]; }
  int64_t source_stride() const { return tensor.stride[transposed ? 0 : 1]; }
  int64_t group_stride(const Shape& shape) const { return tensor.stride[0] * shape.out_channels; }
  // Where the point of the kernel lies that these taps multiply.
  int64_t offset(const Tap& z, const Tap& y, const Tap& x) const {
    return z.kernel * tensor.stride[2] + y.kernel * tensor.stride[3] + x.kernel * tensor.stride[4];
  }
};

// Weights in the accumulator's type; a dense copy in `space` where they are of another.
template <class T>
Weights converted(const Shape& shape, const Weights& weights, std::optional<product::Scratch>& space);

// Positions of a batch of images in pieces: whole rows of one z of one image, or a part of one row.
struct Pieces {
  int64_t depth, height, width, positions, rows, cols, y_count, x_count, count;
  // At most so many positions in one.
  Pieces(int64_t batch, int64_t depth, int64_t height, int64_t width, int64_t positions);
  Piece at(int64_t index) const;
};

// Forward or input gradient, as every way to compute it gets it.
struct Correlation {
  const Context& context;
  Tensor source;
  Weights weights;
  std::vector<Phase> phases;
  const Shape& shape = context.shape;
  int64_t taps = shape.taps();
  int64_t sources = weights.transposed ? shape.out_channels : shape.in_channels;  // channels of a group
  int64_t results = weights.transposed ? shape.in_channels : shape.out_channels;
  const int64_t* source_size = weights.transposed ? shape.out_size : shape.in_size;
  const int64_t* size = weights.transposed ? shape.in_size : shape.out_size;

  // One phase, which computes every result.
  bool is_whole() const {
    const Phase& first = phases[0];
    return phases.size() == 1 && first[0].result_step == 1 && first[1].result_step == 1 && first[2].result_step == 1;
  }
};

using CorrelationWay = Way<const Correlation>;
// A kernel of one point with stride 1: a plain product (pointwise.cpp).
extern const CorrelationWay pointwise;
// One channel on either side of each group, channels last (depthwise.cpp).
extern const CorrelationWay depthwise_channels_last;
// Few positions in F32: weights are read as they lie (lanes.cpp).
extern const CorrelationWay lanes;
// Sums in F32 with enough channels, on packed register tiles: im2col goes straight into the packed form (packed.cpp).
extern const CorrelationWay packed;
// Narrow images, where a window's lines would be half padding: im2col over several images and one product (narrow.cpp).
extern const CorrelationWay narrow;
// Everything: register tiles of results straight from a window of the source (window_tiles.cpp).
extern const CorrelationWay window_tiles;

// weight_gradient/: `forward` is the phase of the forward pass.
bool weight_gradient(const Context& context, const Phase& forward, const Tensor& gradient, const Tensor& input);

}  // namespace cmodel::conv
