#include <algorithm>
#include <utility>

#include "drivers/cmodel/conv/window.h"
#include "drivers/cmodel/product/kernels/kernels.h"

namespace cmodel::conv {
namespace {

constexpr int64_t kSlack = 128;  // kernels read whole vectors, up to two steps past the last point

// Smallest q with q * step + start >= 0, and the first with q * step + start >= size.
int64_t first_at_least(int64_t bound, int64_t start, int64_t step) {
  const int64_t distance = bound - start;
  return distance <= 0 ? 0 : (distance + step - 1) / step;
}

// Points `step` apart of one line, as words of one or two channels.
void load_words(const product::Micro& micro, const Tensor& source, const char* from, int64_t step, int64_t length,
                int64_t channels, int64_t ld, uint32_t* to) {
  const bool native = source.dtype == (micro.depth == 2 ? NPU_BF16 : NPU_F32);
  const int64_t apart = source.stride[1];
  if (native && apart == 1) return micro.deep(from, step, length, channels, ld, to);  // channels run along memory
  if (native && step == 1) return micro.wide(from, apart, length, channels, ld, to);
  if (native && step == 2) return micro.every_second(from, apart, length, channels, ld, to);
  for (int64_t c = 0; c < channels; c += micro.depth, to += ld) {
    if (micro.depth == 1) {
      product::load_line<float>(source.dtype, from + c * apart * source.element_size(), step, length,
                                reinterpret_cast<float*>(to));
      continue;
    }
    const auto* even = reinterpret_cast<const uint16_t*>(from) + c * apart;
    const uint16_t* odd = c + 1 < channels ? even + apart : nullptr;
    for (int64_t i = 0; i < length; ++i) to[i] = even[i * step] | uint32_t(odd ? odd[i * step] : 0) << 16;
  }
}

}  // namespace

template <class T>
typename Window<T>::Split Window<T>::split_of(const Axis& axis) {
  Split split;
  if (axis.taps.empty()) return split;
  split.least = axis.taps[0].offset;
  for (const Tap& tap : axis.taps) split.least = std::min(split.least, tap.offset);
  for (const Tap& tap : axis.taps) {
    const int64_t distance = tap.offset - split.least;
    split.reach = std::max(split.reach, distance / axis.source_step);
    const int64_t residue = distance % axis.source_step;
    if (std::find(split.residues.begin(), split.residues.end(), residue) == split.residues.end()) {
      split.residues.push_back(residue);
    }
  }
  return split;
}

template <class T>
int64_t Window<T>::elements(const Phase& axes, int64_t rows, int64_t cols) {
  const Split y = split_of(axes[1]), x = split_of(axes[2]);
  return int64_t(axes[0].taps.size() * y.residues.size() * x.residues.size()) * (rows + y.reach) * (cols + x.reach);
}

template <class T>
Window<T>::Window(const Phase& axes, int64_t channels, int64_t rows, int64_t cols)
    : axes_(axes),
      y_(split_of(axes[1])),
      x_(split_of(axes[2])),
      space_(sizeof(T) * (channels * elements(axes, rows, cols) + kSlack)) {
  pitch_ = cols + x_.reach;
  plane_ = pitch_ * (rows + y_.reach);
  channel_size_ = elements(axes, rows, cols);
  std::fill_n(space_.template as<T>() + channels * channel_size_, kSlack, T(0));
  const auto place = [](const Split& split, const Axis& axis, const Tap& tap) {
    const int64_t distance = tap.offset - split.least;
    const auto residue = std::find(split.residues.begin(), split.residues.end(), distance % axis.source_step);
    return std::pair<int64_t, int64_t>(residue - split.residues.begin(), distance / axis.source_step);
  };
  const int64_t x_count = x_.residues.size(), y_count = y_.residues.size();
  for (int64_t z = 0; z < int64_t(axes[0].taps.size()); ++z) {
    for (const Tap& y : axes[1].taps) {
      const auto [y_residue, y_shift] = place(y_, axes[1], y);
      for (const Tap& x : axes[2].taps) {
        const auto [x_residue, x_shift] = place(x_, axes[2], x);
        offsets_.push_back(((z * y_count + y_residue) * x_count + x_residue) * plane_ + y_shift * pitch_ + x_shift);
      }
    }
  }
  const int64_t taps = offsets_.size();
  offsets_.resize(taps * channels);
  for (int64_t i = taps; i < taps * channels; ++i) offsets_[i] = offsets_[i - taps] + channel_size_;
}

// Every plane that a fill writes, one for each z tap, y residue and x residue, and which of its lines and points lie
// inside the source.
template <class T>
template <class F>
void Window<T>::planes(const Piece& piece, F&& body) const {
  const int64_t needed_rows = piece.rows + y_.reach, needed_cols = piece.cols + x_.reach;
  const Axis &az = axes_[0], &ay = axes_[1], &ax = axes_[2];
  const auto inside = [](const Axis& axis, int64_t start, int64_t needed, int64_t* begin, int64_t* end) {
    *begin = std::min(needed, first_at_least(0, start, axis.source_step));
    *end = std::max(*begin, std::min(needed, first_at_least(axis.source_size, start, axis.source_step)));
  };
  int64_t at = 0;
  for (const Tap& tap : az.taps) {
    const int64_t sz = piece.z * az.source_step + tap.offset;
    for (const int64_t y_residue : y_.residues) {
      const int64_t y_start = piece.y * ay.source_step + y_.least + y_residue;
      for (const int64_t x_residue : x_.residues) {
        const int64_t x_start = piece.x * ax.source_step + x_.least + x_residue;
        // Lines of a narrower tile end at needed_cols; what follows up to the pitch is read, and its products dropped.
        Plane plane{at, needed_rows, needed_cols, 0, 0, 0, 0, sz, y_start, x_start};
        inside(ay, y_start, needed_rows, &plane.row_begin, &plane.row_end);
        inside(ax, x_start, needed_cols, &plane.begin, &plane.end);
        if (sz < 0 || sz >= az.source_size || plane.begin == plane.end) plane.row_end = plane.row_begin;
        body(plane);
        at += plane_;
      }
    }
  }
}

// The same line by line, without a source where a line lies outside.
template <class T>
template <class F>
void Window<T>::lines(const Piece& piece, F&& body) const {
  planes(piece, [&](const Plane& p) {
    for (int64_t r = 0; r < p.rows; ++r) {
      body(Line{p.at + r * pitch_, r >= p.row_begin && r < p.row_end, p.length, p.begin, p.end, p.z,
                p.y + r * axes_[1].source_step, p.x + p.begin * axes_[2].source_step});
    }
  });
}

// Channel by channel, so that memory is read in its order.
template <class T>
bool Window<T>::fill_floats(const Tensor& source, const Piece& piece, int64_t channel, int64_t count,
                            float* out) const {
  const int64_t step = source.stride[4] * axes_[2].source_step, line_step = source.stride[3] * axes_[1].source_step;
  if (source.dtype != NPU_F32 || (step != 1 && step != 2) || (source.stride[1] == 1 && count > 1)) return false;
  const product::Micro& micro = product::micro_f32();
  const auto copy = step == 1 ? micro.wide : micro.every_second;
  planes(piece, [&](const Plane& p) {
    const int64_t y = p.y + p.row_begin * axes_[1].source_step, x = p.x + p.begin * axes_[2].source_step;
    const float* from = reinterpret_cast<const float*>(source.at(piece.n, channel, p.z, y, x));
    float* to = out + p.at;
    for (int64_t c = 0; c < count; ++c, from += source.stride[1], to += channel_size_) {
      for (int64_t r = 0; r < p.row_begin; ++r) std::fill_n(to + r * pitch_, p.length, 0.0f);
      for (int64_t r = p.row_end; r < p.rows; ++r) std::fill_n(to + r * pitch_, p.length, 0.0f);
      if (p.row_begin == p.row_end) continue;
      copy(from, line_step, p.end - p.begin, p.row_end - p.row_begin, pitch_,
           reinterpret_cast<uint32_t*>(to + p.row_begin * pitch_ + p.begin));
      if (p.begin == 0 && p.end == p.length) continue;
      for (int64_t r = p.row_begin; r < p.row_end; ++r) {
        float* line = to + r * pitch_;
        for (int64_t i = 0; i < p.begin; ++i) line[i] = 0;
        for (int64_t i = p.end; i < p.length; ++i) line[i] = 0;
      }
    }
  });
  return true;
}

template <class T>
void Window<T>::fill(const Tensor& source, const Piece& piece, int64_t channel, int64_t count) {
  const int64_t step = source.stride[4] * axes_[2].source_step;
  T* out = space_.template as<T>();
  if constexpr (std::is_same_v<T, float>) {
    if (fill_floats(source, piece, channel, count, out)) return;
  }
  lines(piece, [&](const Line& line) {
    const char* from = source.at(piece.n, channel, line.z, line.y, line.x);
    T* to = out + line.at;
    for (int64_t c = 0; c < count; ++c, to += channel_size_, from += source.stride[1] * source.element_size()) {
      if (!line.inside) {
        std::fill_n(to, line.length, T(0));
        continue;
      }
      std::fill_n(to, line.begin, T(0));
      product::load_line<T>(source.dtype, from, step, line.end - line.begin, to + line.begin);
      std::fill_n(to + line.end, line.length - line.end, T(0));
    }
  });
}

template <class T>
void Window<T>::fill_words(const product::Micro& micro, int64_t slot, const Tensor& source, const Piece& piece,
                           int64_t channel, int64_t count)
  requires(sizeof(T) == sizeof(uint32_t))
{
  const int64_t words = micro.words(count), step = source.stride[4] * axes_[2].source_step;
  uint32_t* out = reinterpret_cast<uint32_t*>(space_.template as<T>()) + slot * channel_size_;
  if (micro.depth == 1 && fill_floats(source, piece, channel, count, reinterpret_cast<float*>(out))) return;
  lines(piece, [&](const Line& line) {
    uint32_t* to = out + line.at;
    const int64_t begin = line.inside ? line.begin : line.length, end = line.inside ? line.end : line.length;
    for (int64_t w = 0; w < words && end - begin < line.length; ++w) {
      uint32_t* edge = to + w * channel_size_;
      for (int64_t i = 0; i < begin; ++i) edge[i] = 0;
      for (int64_t i = end; i < line.length; ++i) edge[i] = 0;
    }
    if (!line.inside) return;
    load_words(micro, source, source.at(piece.n, channel, line.z, line.y, line.x), step, end - begin, count,
               channel_size_, to + begin);
  });
}

template class Window<float>;
template class Window<uint16_t>;
template class Window<double>;
template class Window<uint32_t>;
template class Window<uint64_t>;

}  // namespace cmodel::conv
