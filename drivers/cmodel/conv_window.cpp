#include <algorithm>
#include <utility>

#include "drivers/cmodel/conv.h"
#include "drivers/cmodel/matmul_kernels.h"

namespace cmodel::conv {
namespace {

// Smallest q with q * step + start >= 0, and the first with q * step + start >= size.
int64_t first_at_least(int64_t bound, int64_t start, int64_t step) {
  const int64_t distance = bound - start;
  return distance <= 0 ? 0 : (distance + step - 1) / step;
}

}  // namespace

template <class T>
typename Window<T>::Lane Window<T>::lane_of(const Axis& axis) {
  Lane lane;
  if (axis.taps.empty()) return lane;
  lane.least = axis.taps[0].offset;
  for (const Tap& tap : axis.taps) lane.least = std::min(lane.least, tap.offset);
  for (const Tap& tap : axis.taps) {
    const int64_t distance = tap.offset - lane.least;
    lane.reach = std::max(lane.reach, distance / axis.source_step);
    const int64_t residue = distance % axis.source_step;
    if (std::find(lane.residues.begin(), lane.residues.end(), residue) == lane.residues.end()) {
      lane.residues.push_back(residue);
    }
  }
  return lane;
}

template <class T>
int64_t Window<T>::elements(const Axis* axes, int64_t rows, int64_t cols) {
  const Lane y = lane_of(axes[1]), x = lane_of(axes[2]);
  return int64_t(axes[0].taps.size() * y.residues.size() * x.residues.size()) * (rows + y.reach) * (cols + x.reach);
}

template <class T>
Window<T>::Window(const Axis* axes, int64_t channels, int64_t rows, int64_t cols)
    : axes_(axes),
      y_(lane_of(axes[1])),
      x_(lane_of(axes[2])),
      // Kernels read whole vectors, up to one step past the last point.
      space_(sizeof(T) * (channels * elements(axes, rows, cols) + 2 * blas::kernels<T>().correlate_step)) {
  pitch_ = cols + x_.reach;
  plane_ = pitch_ * (rows + y_.reach);
  channel_size_ = elements(axes, rows, cols);
  std::fill_n(space_.template as<T>() + channels * channel_size_, 2 * blas::kernels<T>().correlate_step, T(0));
  const auto place = [](const Lane& lane, const Axis& axis, const Tap& tap) {
    const int64_t distance = tap.offset - lane.least;
    const auto residue = std::find(lane.residues.begin(), lane.residues.end(), distance % axis.source_step);
    return std::pair<int64_t, int64_t>(residue - lane.residues.begin(), distance / axis.source_step);
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

template <class T>
void Window<T>::fill(const Tensor& source, int64_t n, int64_t channel, int64_t count, int64_t z, int64_t y0,
                     int64_t rows, int64_t x0, int64_t cols) {
  const int64_t size = npu::dtype_size(source.dtype);
  const int64_t needed_rows = rows + y_.reach, needed_cols = cols + x_.reach;
  const Axis &az = axes_[0], &ay = axes_[1], &ax = axes_[2];
  T* out = space_.template as<T>();
  for (int64_t c = 0; c < count; ++c) {
    const char* at_channel = source.data + (n * source.stride[0] + (channel + c) * source.stride[1]) * size;
    for (const Tap& tap : az.taps) {
      const int64_t sz = z * az.source_step + tap.offset;
      for (const int64_t y_residue : y_.residues) {
        for (const int64_t x_residue : x_.residues) {
          const int64_t x_start = x0 * ax.source_step + x_.least + x_residue;
          const int64_t begin = std::min(needed_cols, first_at_least(0, x_start, ax.source_step));
          const int64_t end =
              std::max(begin, std::min(needed_cols, first_at_least(ax.source_size, x_start, ax.source_step)));
          for (int64_t r = 0; r < needed_rows; ++r) {
            T* line = out + r * pitch_;
            const int64_t sy = (y0 + r) * ay.source_step + y_.least + y_residue;
            if (sz < 0 || sz >= az.source_size || sy < 0 || sy >= ay.source_size || begin == end) {
              std::fill_n(line, needed_cols, T(0));
              continue;
            }
            const int64_t sx = x_start + begin * ax.source_step;
            std::fill_n(line, begin, T(0));
            blas::load_line<T>(
                source.dtype,
                at_channel + (sz * source.stride[2] + sy * source.stride[3] + sx * source.stride[4]) * size,
                source.stride[4] * ax.source_step, end - begin, line + begin);
            std::fill_n(line + end, needed_cols - end, T(0));
          }
          // Lines of a narrower tile end here; what follows up to the pitch is read, and its products dropped.
          out += plane_;
        }
      }
    }
  }
}

template class Window<float>;
template class Window<double>;
template class Window<uint32_t>;
template class Window<uint64_t>;

}  // namespace cmodel::conv
