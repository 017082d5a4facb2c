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

#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/product/micro.h"
#include "drivers/cmodel/product/pack.h"

namespace cmodel::conv {

// An operand with its leading spatial dimensions filled up to three: n (or weight's out channel), channel, z, y, x.
struct Tensor {
  char* data;
  int dtype;
  int64_t stride[5];
};

struct Tap {
  int64_t kernel, offset;
};

struct Axis {
  int64_t count;  // of q
  int64_t result_start, result_step;
  int64_t source_size, source_step;
  std::vector<Tap> taps;
};

struct Shape {
  int spatial_rank;
  int64_t batch, groups, in_channels, out_channels;  // channels per group
  int64_t in_size[3], out_size[3], kernel[3], stride[3], padding[3], dilation[3];
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

// The part of a source that one tile needs, converted, zero padded, and split by residue modulo the step, so that every
// tap of every result is one dense shifted line: point (y, x) of the tile and tap t meet at
//   data[offset[channel, t] + y * pitch + x].
// Padding is a zero that is multiplied; leave_out_padding deals with the NaN of an infinite weight that meets it.
template <class T>
class Window {
 public:
  // `channels` of the source will be read for tiles of at most rows x cols points.
  Window(const Axis* axes, int64_t channels, int64_t rows, int64_t cols);
  // Points [y0, y0 + rows) x [x0, x0 + cols) at z of image n, for `count` channels from `channel` on.
  void fill(const Tensor& source, int64_t n, int64_t channel, int64_t count, int64_t z, int64_t y0, int64_t rows,
            int64_t x0, int64_t cols);

  // The same in words (product/micro.h), each of one channel in f32 or two in bf16, for `micro`; channels of the window
  // are then words, and those of this fill begin at `slot`.
  void fill_words(const product::Micro& micro, int64_t slot, const Tensor& source, int64_t n, int64_t channel,
                  int64_t count, int64_t z, int64_t y0, int64_t rows, int64_t x0, int64_t cols)
    requires(sizeof(T) == sizeof(uint32_t));

  int64_t pitch() const { return pitch_; }
  int64_t channel_size() const { return channel_size_; }
  const T* data() { return space_.template as<T>(); }
  // Of every (channel, z tap, y tap, x tap), in that order.
  const std::vector<int64_t>& offsets() const { return offsets_; }
  static int64_t elements(const Axis* axes, int64_t rows, int64_t cols);  // per channel
  static int64_t reach(const Axis& axis) { return lane_of(axis).reach; }  // by how much a line is longer than the tile

 private:
  struct Lane {                     // one axis, split by residue
    int64_t least = 0;              // smallest tap offset
    int64_t reach = 0;              // further points that taps need
    std::vector<int64_t> residues;  // those that some tap uses
  };
  static Lane lane_of(const Axis& axis);
  struct Line {
    int64_t at;  // in a channel of the window
    bool inside;
    int64_t length, begin, end;
    int64_t z, y, x;  // of the point at `begin`
  };
  struct Plane {
    int64_t at, rows, length;    // in a channel of the window
    int64_t row_begin, row_end;  // lines, and points of each, that lie inside
    int64_t begin, end;
    int64_t z, y, x;  // of its first point
  };
  template <class F>
  void planes(int64_t z, int64_t y0, int64_t rows, int64_t x0, int64_t cols, F&& body) const;
  template <class F>
  void lines(int64_t z, int64_t y0, int64_t rows, int64_t x0, int64_t cols, F&& body) const;
  // f32 along memory. False: it is not that, and nothing was done.
  bool fill_floats(const Tensor& source, int64_t n, int64_t channel, int64_t count, int64_t z, int64_t y0, int64_t rows,
                   int64_t x0, int64_t cols, float* out) const;

  const Axis* axes_;
  int64_t pitch_, plane_, channel_size_;
  Lane y_, x_;
  product::Scratch space_;
  std::vector<int64_t> offsets_;
};

// Stores a tile of results, or runs the epilogue on it. Results of channel i begin at acc + i * channel_ld.
template <class T>
void emit(const Context& context, int64_t n, int64_t channel, int64_t channels, int64_t z, int64_t y0, int64_t rows,
          int64_t x0, int64_t cols, T* acc, int64_t channel_ld, int64_t row_ld);

// Results that are NaN because a zero of the padding met an infinity or a NaN, once more without the padding.
template <class T>
void leave_out_padding(const Context& context, int64_t n, int64_t channel, int64_t channels, int64_t z, int64_t y0,
                       int64_t rows, int64_t x0, int64_t cols, T* acc, int64_t channel_ld, int64_t row_ld);

// Forward reads weight[result channel, source channel], the input gradient weight[source channel, result channel].
struct Weights {
  Tensor tensor;
  bool swapped;
  int64_t result_stride() const { return tensor.stride[swapped ? 1 : 0]; }
  int64_t source_stride() const { return tensor.stride[swapped ? 0 : 1]; }
  int64_t group_stride(const Shape& shape) const { return tensor.stride[0] * shape.out_channels; }
};

// A phase is one correlation of the sum at the top: its z, y and x axes.
using Phase = std::array<Axis, 3>;

// Positions of a batch of images in pieces: whole rows of one z of one image, or a part of one row.
struct Pieces {
  struct Piece {
    int64_t n, z, y, rows, x, cols;
  };
  int64_t depth, height, width, rows, cols, y_count, x_count, count;
  Pieces(int64_t batch, int64_t depth, int64_t height, int64_t width, int64_t positions);  // at most that many in one
  Piece at(int64_t index) const;
};

// Weights in the accumulator's type; a dense copy in `space` where they are of another.
template <class T>
Weights converted(const Shape& shape, const Weights& weights, std::optional<product::Scratch>& space);

template <class T>
void correlate(const Context& context, const std::vector<Phase>& phases, const Tensor& source, const Weights& weights);
template <class T>
void grad_weight(const Context& context, const Phase& forward, const Tensor& gradient, const Tensor& input);
// Products of f32 and bf16 on packed register tiles, for everything with enough channels: im2col goes straight into the
// packed form. False: not that case, and nothing was done.
bool try_packed(const Context& context, const std::vector<Phase>& phases, const Tensor& source, const Weights& weights);
// Few positions in F32: weights are read, and their gradient is written, as they lie. False: not that case, and nothing
// was done.
bool try_lanes(const Context& context, const std::vector<Phase>& phases, const Tensor& source, const Weights& weights);
bool try_few_grad_weight(const Context& context, const Phase& forward, const Tensor& gradient, const Tensor& input);
// The weight gradient of f32 gradients where x, or channels, lie along memory. False: not that case, and nothing was
// done.
bool try_lines_grad_weight(const Context& context, const Phase& forward, const Tensor& gradient, const Tensor& input);
bool try_packed_grad_weight(const Context& context, const Phase& forward, const Tensor& gradient, const Tensor& input);
// Depthwise: the weight gradient, and forward and input gradient where channels are last. False: not that case, and
// nothing was done.
bool try_depthwise_grad_weight(const Context& context, const Phase& forward, const Tensor& gradient,
                               const Tensor& input);
bool try_depthwise_channels_last(const Context& context, const std::vector<Phase>& phases, const Tensor& source,
                                 const Weights& weights);
// Narrow images, where a window's lines would be half padding: im2col over several images and one product. False: they
// are wide enough, and nothing was done.
template <class T>
bool try_narrow(const Context& context, const Phase& phase, const Tensor& source, const Weights& weights);
// Kernel 1, stride 1, no padding: a plain product. False: it is not that case.
bool try_pointwise(const Context& context, const Tensor& source, const Weights& weights);
bool try_pointwise_grad_weight(const Context& context, const Tensor& gradient, const Tensor& input);

}  // namespace cmodel::conv
