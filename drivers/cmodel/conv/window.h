// The part of a source that one tile needs, converted, zero padded, and split by residue modulo the step, so that every
// tap of every result is one dense shifted line: point (y, x) of the tile and tap t meet at
//   data[offset[channel, t] + y * pitch + x].
// Padding is a zero that is multiplied; leave_out_padding deals with the NaN of an infinite weight that meets it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "drivers/cmodel/conv/conv.h"
#include "drivers/cmodel/product/kernels/micro.h"

namespace cmodel::conv {

template <class T>
class Window {
 public:
  // `channels` of the source will be read for tiles of at most rows x cols points.
  Window(const Phase& axes, int64_t channels, int64_t rows, int64_t cols);
  // What the points of a piece need of `count` channels from `channel` on.
  void fill(const Tensor& source, const Piece& piece, int64_t channel, int64_t count);
  // The same in words (product/kernels/micro.h), each of one channel in f32 or two in bf16, for `micro`; channels of
  // the window are then words, and those of this fill begin at `slot`.
  void fill_words(const product::Micro& micro, int64_t slot, const Tensor& source, const Piece& piece, int64_t channel,
                  int64_t count)
    requires(sizeof(T) == sizeof(uint32_t));

  int64_t pitch() const { return pitch_; }
  int64_t channel_size() const { return channel_size_; }
  const T* data() { return space_.template as<T>(); }
  // Of every (channel, z tap, y tap, x tap), in that order.
  const std::vector<int64_t>& offsets() const { return offsets_; }
  static int64_t elements(const Phase& axes, int64_t rows, int64_t cols);  // per channel
  static int64_t reach(const Axis& axis) { return split_of(axis).reach; }  // by how much a line is longer than the tile

 private:
  struct Split {                    // one axis, by residue
    int64_t least = 0;              // smallest tap offset
    int64_t reach = 0;              // further points that taps need
    std::vector<int64_t> residues;  // those that some tap uses
  };
  static Split split_of(const Axis& axis);
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
  void planes(const Piece& piece, F&& body) const;
  template <class F>
  void lines(const Piece& piece, F&& body) const;
  // f32 along memory. False: it is not that, and nothing was done.
  bool fill_floats(const Tensor& source, const Piece& piece, int64_t channel, int64_t count, float* out) const;

  const Phase& axes_;
  int64_t pitch_, plane_, channel_size_;
  Split y_, x_;
  product::Scratch space_;
  std::vector<int64_t> offsets_;
};

}  // namespace cmodel::conv
