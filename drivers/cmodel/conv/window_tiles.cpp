// Forward and input gradient: register tiles of results straight from a window of the source, without im2col.
#include <algorithm>
#include <optional>
#include <type_traits>

#include "drivers/cmodel/conv/kernels/kernels.h"
#include "drivers/cmodel/conv/tuning.h"
#include "drivers/cmodel/conv/window.h"
#include "drivers/cmodel/product/kernels/kernels.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::conv {
namespace {

using product::Scratch;

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
void pack_weights(const Correlation& c, const Weights& weights, const Phase& axes, const Blocks& blocks, T* out) {
  const T* data = reinterpret_cast<const T*>(weights.tensor.data);
  std::vector<int64_t> taps;
  each_tap(axes, [&](const Tap& z, const Tap& y, const Tap& x) { taps.push_back(weights.offset(z, y, x)); });
  const int64_t depth = c.sources * int64_t(taps.size()), count = c.shape.groups * blocks.count;
  const auto pack = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t group = i / blocks.count, block = i % blocks.count;
      const int64_t begin = blocks.begin(block), rows = blocks.begin(block + 1) - begin;
      T* to = out + (group * blocks.channels + begin) * depth;
      for (int64_t r = 0; r < rows; ++r) {
        const T* from = data + group * weights.group_stride(c.shape) + (begin + r) * weights.result_stride();
        T* column = to + r;
        for (int64_t s = 0; s < c.sources; ++s, from += weights.source_stride()) {
          for (const int64_t tap : taps) {
            *column = from[tap];
            column += rows;
          }
        }
      }
    }
  };
  const int64_t grain = grain_for(depth * product::kMicroRows, kPackElements);
  count <= grain ? pack(0, count) : parallel_for(count, grain, pack);
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

// How the work is cut. A tile is a range of q along y and x, the same for every phase, so that its results are one
// dense rectangle.
template <class T>
struct Plan {
  const Correlation& c;
  Blocks blocks;
  bool single;      // one phase: sums need not be put together
  bool one_source;  // a result channel reads one source channel: by columns of taps
  int64_t step[3], most[3] = {};
  int64_t rows, cols, y_tiles, x_tiles, tiles;
  int64_t parts = 1;  // of the blocks: where there are too few tiles, several tasks share one
  int64_t work;
  int threads;
  std::vector<int64_t> phase_start;  // of packed weights
  std::optional<Scratch> packed;

  explicit Plan(const Correlation& c)
      : c(c),
        blocks(c.results),
        single(c.phases.size() == 1),
        one_source(std::is_same_v<T, float> && c.sources == 1 && c.shape.kernel[1] > 1) {
    for (int d = 0; d < 3; ++d) {
      step[d] = c.phases[0][d].result_step;
      for (const Phase& axes : c.phases) most[d] = std::max(most[d], axes[d].count);
    }
    cols = std::min(most[2], kTilePoints);
    rows = std::min(most[1], std::max<int64_t>(1, kTilePoints / cols));
    while (rows > 1 && c.sources * Window<T>::elements(c.phases[0], rows, cols) > kWindowElements)
      rows = (rows + 1) / 2;
    const int64_t outer = c.shape.batch * c.shape.groups * c.size[0];
    work =
        outer * c.size[1] * c.size[2] * c.results * c.sources * std::max<int64_t>(1, c.taps / int64_t(c.phases.size()));
    threads = work <= kSerialWork ? 1 : pool_threads();
    y_tiles = (most[1] + rows - 1) / rows;
    x_tiles = (most[2] + cols - 1) / cols;
    tiles = outer * y_tiles * x_tiles;
    if (threads > 1) parts = parts_for(tiles, kTasksPerThread * threads, blocks.count, 2);
    pack();
  }

  const T* weights_of(size_t phase, int64_t group, int64_t begin, int64_t depth) {
    return packed->as<T>() + phase_start[phase] + (group * c.results + begin) * depth;
  }

 private:
  void pack() {
    std::optional<Scratch> space;
    const Weights weights = converted<T>(c.shape, c.weights, space);
    int64_t size = 0;
    for (const Phase& axes : c.phases) {
      phase_start.push_back(size);
      size += c.shape.groups * c.results * c.sources * taps_of(axes);
    }
    packed.emplace(sizeof(T) * size);
    for (size_t f = 0; f < c.phases.size(); ++f) {
      pack_weights(c, weights, c.phases[f], blocks, packed->as<T>() + phase_start[f]);
    }
  }
};

// One thread's tasks: a tile of results of some blocks of channels.
template <class T>
class Worker {
 public:
  explicit Worker(Plan<T>& plan) : plan_(plan), c_(plan.c) {
    const int64_t channels = (plan.blocks.count + plan.parts - 1) / plan.parts * product::kMicroRows;
    tile_rows_ = std::min(c_.size[1], plan.rows * plan.step[1]);
    tile_cols_ = std::min(c_.size[2], plan.cols * plan.step[2]);
    if (!plan.single) tile_.emplace(sizeof(T) * channels * tile_rows_ * tile_cols_);
  }

  void run(int64_t task) {
    const auto take = [&task](int64_t count) {
      const int64_t i = task % count;
      task /= count;
      return i;
    };
    const Plan<T>& p = plan_;
    const int64_t part = take(p.parts), x = take(p.x_tiles) * p.cols, y = take(p.y_tiles) * p.rows,
                  z = take(c_.size[0]), group = take(c_.shape.groups), n = take(c_.shape.batch);
    first_block_ = part * p.blocks.count / p.parts;
    last_block_ = (part + 1) * p.blocks.count / p.parts;
    for (size_t f = 0; f < c_.phases.size(); ++f) {
      const Phase& axes = c_.phases[f];
      if (z % p.step[0] != axes[0].result_start) continue;
      const Piece piece{
          n, z / p.step[0], y, std::min(p.rows, axes[1].count - y), x, std::min(p.cols, axes[2].count - x)};
      if (piece.rows > 0 && piece.cols > 0) run_phase(f, group, piece);
    }
    if (p.single) return;
    const int64_t y0 = y * p.step[1], x0 = x * p.step[2], begin = p.blocks.begin(first_block_);
    const Piece whole{n, z, y0, std::min(tile_rows_, c_.size[1] - y0), x0, std::min(tile_cols_, c_.size[2] - x0)};
    emit(c_.context, {whole, group * c_.results + begin, p.blocks.begin(last_block_) - begin},
         Sums<T>{tile_->template as<T>(), tile_rows_ * tile_cols_, tile_cols_});
  }

 private:
  void run_phase(size_t phase, int64_t group, const Piece& p) {
    const Phase& axes = c_.phases[phase];
    if (!window_ || !plan_.single) window_.emplace(axes, c_.sources, plan_.rows, plan_.cols);
    window_->fill(c_.source, p, group * c_.sources, c_.sources);
    // Results of a row are followed by those that belong to no point; columns need room for them.
    const int64_t pitch = plan_.one_source ? window_->pitch() + kColumnStep : window_->pitch();
    const int64_t unit = product::kernels<T>().correlate_step, ld = (plan_.rows * pitch + unit) / unit * unit;
    if (plan_.one_source && (!columns_ || !plan_.single)) columns_.emplace(axes, window_->offsets(), window_->pitch());
    if (!sums_ || !plan_.single) sums_.emplace(sizeof(T) * ld * product::kMicroRows);
    const Sums<T> sums{sums_->template as<T>(), ld, pitch};
    const int64_t depth = int64_t(window_->offsets().size());
    for (int64_t block = first_block_; block < last_block_; ++block) {
      const int64_t begin = plan_.blocks.begin(block), count = plan_.blocks.begin(block + 1) - begin;
      multiply(p, plan_.weights_of(phase, group, begin, depth), depth, count, sums);
      if (plan_.single) {
        emit(c_.context, {p, group * c_.results + begin, count}, sums);
      } else {
        put_into_tile(axes, p, begin - plan_.blocks.begin(first_block_), count, sums);
      }
    }
  }

  // Sums of `count` channels from the window.
  void multiply(const Piece& p, const T* weights, int64_t depth, int64_t count, const Sums<T>& sums) {
    if constexpr (std::is_same_v<T, float>) {
      for (int64_t r = 0; plan_.one_source && r < count; ++r) {
        for (int64_t t = 0; t < depth; ++t) columns_->weights[t] = weights[columns_->order[t] * count + r];
        kernels().columns(sums.data + r * sums.channel_ld, sums.row_ld, p.rows, p.cols, window_->data(),
                          window_->pitch(), columns_->columns.data(), int64_t(columns_->columns.size()));
      }
    }
    if (plan_.one_source) return;
    const int64_t length = (p.rows - 1) * window_->pitch() + p.cols;
    product::kernels<T>().correlate(sums.data, sums.channel_ld, length, window_->data(), window_->offsets().data(),
                                    weights, depth, count);
  }

  // Results of one phase lie a step apart.
  void put_into_tile(const Phase& axes, const Piece& p, int64_t channel, int64_t count, const Sums<T>& sums) {
    for (int64_t c = 0; c < count; ++c) {
      T* plane = tile_->template as<T>() + (channel + c) * tile_rows_ * tile_cols_;
      for (int64_t y = 0; y < p.rows; ++y) {
        T* to = plane + (y * plan_.step[1] + axes[1].result_start) * tile_cols_ + axes[2].result_start;
        const T* from = sums.data + c * sums.channel_ld + y * sums.row_ld;
        for (int64_t x = 0; x < p.cols; ++x) to[x * plan_.step[2]] = from[x];
      }
    }
  }

  Plan<T>& plan_;
  const Correlation& c_;
  int64_t tile_rows_, tile_cols_, first_block_ = 0, last_block_ = 0;
  std::optional<Window<T>> window_;
  std::optional<Columns> columns_;
  std::optional<Scratch> tile_, sums_;
};

template <class T>
void run_as(const Correlation& c) {
  Plan<T> plan(c);
  const int64_t tasks = plan.tiles * plan.parts;
  const auto run = [&](int64_t first, int64_t last) {
    Worker<T> worker(plan);
    for (int64_t task = first; task < last; ++task) worker.run(task);
  };
  if (plan.threads == 1) return run(0, tasks);
  parallel_for(tasks, grain_for(plan.work / tasks, kTaskWork), run);
}

void run(const Correlation& c) {
  product::with_accumulator(c.context.acc_dtype, [&]<class T>(T) { run_as<T>(c); });
}

}  // namespace

constinit const CorrelationWay window_tiles = {"window tiles", nullptr, always<run, const Correlation>};

}  // namespace cmodel::conv
