// Forward and input gradient: register tiles of results straight from a window of the source, without im2col.
#include <algorithm>
#include <optional>
#include <type_traits>

#include "drivers/cmodel/conv/conv.h"
#include "drivers/cmodel/conv/kernels/kernels.h"
#include "drivers/cmodel/product/kernels.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::conv {
namespace {

using product::Scratch;

constexpr int64_t kSerialWork = 1 << 17;       // multiply-adds that are not worth waking a helper for
constexpr int64_t kWindowElements = 96 << 10;  // of a tile's window: stays in the second-level cache
constexpr int64_t kTilePoints = 2048;

// Result channels of one group in blocks that fill the registers evenly.
struct Blocks {
  int64_t channels, count;
  explicit Blocks(int64_t channels)
      : channels(channels), count((channels + product::kMicroRows - 1) / product::kMicroRows) {}
  int64_t begin(int64_t block) const { return block * channels / count; }
};

int64_t taps_of(const Phase& axes) {
  return int64_t(axes[0].taps.size() * axes[1].taps.size() * axes[2].taps.size());
}

// Weights of one phase as the kernel reads them: [group][block][source channel][tap][result channel of the block].
template <class T>
void pack_weights(const Shape& shape, const Weights& weights, const Phase& axes, int64_t source_channels,
                  const Blocks& blocks, T* out) {
  const int64_t groups = shape.groups, group_stride = weights.group_stride(shape);
  const Tensor& w = weights.tensor;
  const T* data = reinterpret_cast<const T*>(w.data);
  std::vector<int64_t> taps;
  for (const Tap& z : axes[0].taps) {
    for (const Tap& y : axes[1].taps) {
      for (const Tap& x : axes[2].taps) {
        taps.push_back(z.kernel * w.stride[2] + y.kernel * w.stride[3] + x.kernel * w.stride[4]);
      }
    }
  }
  const int64_t depth = source_channels * int64_t(taps.size());
  const int64_t each = std::max<int64_t>(1, depth * product::kMicroRows);
  const auto pack = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t group = i / blocks.count, block = i % blocks.count;
      const int64_t begin = blocks.begin(block), rows = blocks.begin(block + 1) - begin;
      T* to = out + (group * blocks.channels + begin) * depth;
      for (int64_t r = 0; r < rows; ++r) {
        const T* from = data + group * group_stride + (begin + r) * weights.result_stride();
        T* column = to + r;
        for (int64_t c = 0; c < source_channels; ++c, from += weights.source_stride()) {
          for (const int64_t tap : taps) {
            *column = from[tap];
            column += rows;
          }
        }
      }
    }
  };
  const int64_t grain = std::max<int64_t>(1, 32768 / each);
  if (groups * blocks.count <= grain) {
    pack(0, groups * blocks.count);
  } else {
    parallel_for(groups * blocks.count, grain, pack);
  }
}

// The taps of one source channel as columns, and the order in which those take their weights.
struct Columns {
  std::vector<Column> columns;
  std::vector<int64_t> order;  // of taps
  std::vector<float> weights;

  Columns(const Phase& axes, const std::vector<int64_t>& offsets, int64_t pitch) {
    const int64_t height = int64_t(axes[1].taps.size()), width = int64_t(axes[2].taps.size());
    for (int64_t z = 0; z < int64_t(axes[0].taps.size()); ++z) {
      for (int64_t x = 0; x < width; ++x) {
        std::vector<int64_t> taps;
        for (int64_t y = 0; y < height; ++y) taps.push_back((z * height + y) * width + x);
        std::sort(taps.begin(), taps.end(), [&](int64_t a, int64_t b) { return offsets[a] < offsets[b]; });
        for (const int64_t tap : taps) {
          const bool next = !columns.empty() && columns.back().height < kColumnHeight &&
                            offsets[tap] == columns.back().offset + columns.back().height * pitch &&
                            tap % width == order.back() % width &&
                            tap / (width * height) == order.back() / (width * height);
          if (next) {
            ++columns.back().height;
          } else {
            columns.push_back({offsets[tap], 1, nullptr});
          }
          order.push_back(tap);
        }
      }
    }
    weights.resize(order.size());
    const float* at = weights.data();
    for (Column& column : columns) {
      column.weight = at;
      at += column.height;
    }
  }
};

}  // namespace

template <class T>
void correlate(const Context& context, const std::vector<Phase>& phases, const Tensor& source, const Weights& given) {
  const Shape& shape = context.shape;
  const int64_t sources = given.swapped ? shape.out_channels : shape.in_channels;
  const int64_t results = given.swapped ? shape.in_channels : shape.out_channels;
  const int64_t* size = given.swapped ? shape.in_size : shape.out_size;
  const product::Kernels<T>& kernel = product::kernels<T>();
  const Blocks blocks(results);
  const bool single = phases.size() == 1;

  std::optional<Scratch> converted_space;
  const Weights weights = converted<T>(shape, given, converted_space);
  std::vector<int64_t> phase_start;
  int64_t packed = 0;
  for (const Phase& axes : phases) {
    phase_start.push_back(packed);
    packed += shape.groups * results * sources * taps_of(axes);
  }
  Scratch packed_space(sizeof(T) * packed);
  T* packed_weights = packed_space.as<T>();
  for (size_t f = 0; f < phases.size(); ++f) {
    pack_weights(shape, weights, phases[f], sources, blocks, packed_weights + phase_start[f]);
  }

  // A tile is a range of q along y and x, the same for every phase, so that its results are one dense rectangle.
  int64_t most[3] = {}, step[3];
  for (int d = 0; d < 3; ++d) {
    step[d] = phases[0][d].result_step;
    for (const Phase& axes : phases) most[d] = std::max(most[d], axes[d].count);
  }
  const int64_t cols = std::min(most[2], kTilePoints);
  int64_t rows = std::min(most[1], std::max<int64_t>(1, kTilePoints / cols));
  while (rows > 1 && sources * Window<T>::elements(phases[0].data(), rows, cols) > kWindowElements)
    rows = (rows + 1) / 2;
  const int64_t points = shape.batch * shape.groups * size[0] * size[1] * size[2];
  const int64_t work =
      points * results * sources *
      std::max<int64_t>(1, shape.kernel[0] * shape.kernel[1] * shape.kernel[2] / int64_t(phases.size()));
  const int threads = work <= kSerialWork ? 1 : pool_threads();
  const int64_t y_tiles = (most[1] + rows - 1) / rows, x_tiles = (most[2] + cols - 1) / cols;
  const int64_t tiles = shape.batch * shape.groups * size[0] * y_tiles * x_tiles;
  int64_t parts = 1;  // of the blocks: where there are too few tiles, several tasks share one
  while (threads > 1 && tiles * parts < 4 * threads && blocks.count / parts >= 2) parts *= 2;

  const bool one_source = std::is_same_v<T, float> && sources == 1 && shape.kernel[1] > 1;
  const auto run = [&](int64_t first, int64_t last) {
    std::optional<Window<T>> window;
    std::optional<Columns> columns;
    const int64_t tile_channels = (blocks.count + parts - 1) / parts * product::kMicroRows;
    const int64_t tile_rows = std::min(size[1], rows * step[1]), tile_cols = std::min(size[2], cols * step[2]);
    std::optional<Scratch> tile_space, acc_space;
    T* tile = single ? nullptr : tile_space.emplace(sizeof(T) * tile_channels * tile_rows * tile_cols).template as<T>();
    for (int64_t task = first; task < last; ++task) {
      int64_t rest = task;
      const auto take = [&rest](int64_t count) {
        const int64_t i = rest % count;
        rest /= count;
        return i;
      };
      const int64_t part = take(parts), x0 = take(x_tiles) * cols, y0 = take(y_tiles) * rows, z = take(size[0]);
      const int64_t group = take(shape.groups), n = take(shape.batch);
      const int64_t first_block = part * blocks.count / parts, last_block = (part + 1) * blocks.count / parts;
      const int64_t first_channel = blocks.begin(first_block);
      for (size_t f = 0; f < phases.size(); ++f) {
        const Phase& axes = phases[f];
        if (z % step[0] != axes[0].result_start) continue;
        const int64_t height = std::min(rows, axes[1].count - y0), width = std::min(cols, axes[2].count - x0);
        if (height <= 0 || width <= 0) continue;
        if (!window || !single) window.emplace(axes.data(), sources, rows, cols);
        window->fill(source, n, group * sources, sources, z / step[0], y0, height, x0, width);
        const int64_t pitch = window->pitch(), length = (height - 1) * pitch + width;
        // Results of a row are followed by those that belong to no point; columns need room for them.
        const int64_t acc_pitch = one_source ? pitch + kColumnStep : pitch;
        const int64_t ld = (rows * acc_pitch + kernel.correlate_step) / kernel.correlate_step * kernel.correlate_step;
        if (one_source && (!columns || !single)) columns.emplace(axes, window->offsets(), pitch);
        if (!acc_space || !single) acc_space.emplace(sizeof(T) * ld * product::kMicroRows);
        T* acc = acc_space->template as<T>();
        const int64_t depth = int64_t(window->offsets().size());
        for (int64_t block = first_block; block < last_block; ++block) {
          const int64_t begin = blocks.begin(block), count = blocks.begin(block + 1) - begin;
          const T* w = packed_weights + phase_start[f] + (group * results + begin) * depth;
          if constexpr (std::is_same_v<T, float>) {
            for (int64_t r = 0; one_source && r < count; ++r) {
              for (int64_t t = 0; t < depth; ++t) columns->weights[t] = w[columns->order[t] * count + r];
              kernels().columns(acc + r * ld, acc_pitch, height, width, window->data(), pitch, columns->columns.data(),
                                int64_t(columns->columns.size()));
            }
          }
          if (!one_source) {
            kernel.correlate(acc, ld, length, window->data(), window->offsets().data(), w, depth, count);
          }
          if (single) {
            emit(context, n, group * results + begin, count, z, y0, height, x0, width, acc, ld, acc_pitch);
            continue;
          }
          for (int64_t c = 0; c < count; ++c) {
            T* plane = tile + (begin - first_channel + c) * tile_rows * tile_cols;
            for (int64_t y = 0; y < height; ++y) {
              T* to = plane + (y * step[1] + axes[1].result_start) * tile_cols + axes[2].result_start;
              const T* from = acc + c * ld + y * acc_pitch;
              for (int64_t x = 0; x < width; ++x) to[x * step[2]] = from[x];
            }
          }
        }
      }
      if (single) continue;
      const int64_t y = y0 * step[1], x = x0 * step[2];
      emit(context, n, group * results + first_channel, blocks.begin(last_block) - first_channel, z, y,
           std::min(tile_rows, size[1] - y), x, std::min(tile_cols, size[2] - x), tile, tile_rows * tile_cols,
           tile_cols);
    }
  };
  const int64_t tasks = tiles * parts;
  if (threads == 1) {
    run(0, tasks);
  } else {
    parallel_for(tasks, std::max<int64_t>(1, kSerialWork / std::max<int64_t>(1, work / tasks)), run);
  }
}

template void correlate<float>(const Context&, const std::vector<Phase>&, const Tensor&, const Weights&);
template void correlate<double>(const Context&, const std::vector<Phase>&, const Tensor&, const Weights&);
template void correlate<uint32_t>(const Context&, const std::vector<Phase>&, const Tensor&, const Weights&);
template void correlate<uint64_t>(const Context&, const std::vector<Phase>&, const Tensor&, const Weights&);

}  // namespace cmodel::conv
