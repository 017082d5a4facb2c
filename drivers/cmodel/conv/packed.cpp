// Forward and input gradient as products on packed register tiles (product/packed.h): weights are A, packed once; the
// im2col matrix is B and exists only as packed blocks of a few hundred positions, copied from a window of the source.
#include "drivers/cmodel/conv/packed.h"

#include <algorithm>
#include <optional>

#include "drivers/cmodel/conv/tuning.h"
#include "drivers/cmodel/conv/window.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::conv {
namespace {

using product::Micro;
using product::Scratch;

const char* refuses(const Correlation& c) {
  if (c.context.acc_dtype != NPU_F32) return "sums are not f32";
  if (c.results < kPackedResults) return "there are few result channels";
  return c.sources * c.taps < kPackedDepth ? "a result is a sum of few products" : nullptr;
}

int64_t positions_of(const std::vector<Run>& runs) {
  return runs.empty() ? 0 : runs.back().position + runs.back().length;
}

// -- pack --

// The im2col matrix of one block: strips of positions, gathered from their runs.
void pack_positions(const Micro& micro, const std::vector<Run>& runs, const float* window,
                    const std::vector<int64_t>& offsets, uint32_t* out) {
  const Micro& plain = product::micro_f32();
  const int64_t positions = positions_of(runs), words = int64_t(offsets.size());
  size_t s = 0;
  for (int64_t j = 0; j < positions; j += micro.cols) {
    const int64_t end = std::min<int64_t>(j + micro.cols, positions), pitch = product::padded_cols(micro, end - j);
    while (runs[s].position + runs[s].length <= j) ++s;
    for (size_t i = s; i < runs.size() && runs[i].position < end; ++i) {
      const Run& run = runs[i];
      const int64_t from = std::max(run.position, j), to = std::min(run.position + run.length, end);
      plain.taps(window + run.at + (from - run.position), offsets.data(), to - from, words, pitch,
                 out + j * words + (from - j));
    }
  }
}

// -- multiply --

// body(strip of weights, its rows, where its sums go) for each strip.
template <class F>
void each_strip(const WeightBlock& a, const Target& target, F&& body) {
  for (int64_t i = 0; i < a.rows; i += a.strip) {
    const int64_t rows = std::min(a.strip, a.rows - i);
    body(a.data + i * a.words + a.from * rows, rows, target.sums + i * target.ld);
  }
}

// target[row][position] (+)= the product with packed positions.
void multiply_packed(const Micro& micro, const WeightBlock& a, const uint32_t* b, int64_t positions,
                     const Target& target) {
  for (int64_t j = 0; j < positions; j += micro.cols) {
    const int64_t cols = std::min<int64_t>(micro.cols, positions - j);
    each_strip(a, target, [&](const uint32_t* strip, int64_t rows, float* sums) {
      micro.tile(a.length, strip, b + j * a.length, sums + j, target.ld, rows, cols, target.accumulate);
    });
  }
}

// The same with positions where they lie in the window, if all of a half strip lie together.
bool lies_in_halves(const Micro& micro, const std::vector<Run>& runs) {
  return std::all_of(runs.begin(), runs.end(), [&](const Run& run) { return run.length % (micro.cols / 2) == 0; });
}

void multiply_halves(const Micro& micro, const WeightBlock& a, const std::vector<Run>& runs, const uint32_t* window,
                     const int64_t* offsets, const Target& target) {
  size_t s = 0;
  const auto place = [&](int64_t position) {
    while (runs[s].position + runs[s].length <= position) ++s;
    return window + runs[s].at + (position - runs[s].position);
  };
  const int64_t positions = positions_of(runs), half = micro.cols / 2;
  for (int64_t j = 0; j < positions; j += micro.cols) {
    const int64_t cols = std::min<int64_t>(micro.cols, positions - j);
    const uint32_t* first = place(j);
    const uint32_t* second = cols > half ? place(j + half) : first;
    each_strip(a, target, [&](const uint32_t* strip, int64_t rows, float* sums) {
      micro.halves(a.length, strip, first, second, offsets, sums + j, target.ld, rows, cols, target.accumulate);
    });
  }
}

// Dense rows to where their points lie `step` apart.
void scatter_rows(const float* from, int64_t rows, int64_t cols, float* to, int64_t ld, int64_t step) {
  for (int64_t y = 0; y < rows; ++y, from += cols, to += ld) {
    float* line = to;
    for (int64_t x = 0; x < cols; ++x, line += step) *line = from[x];
  }
}

// One thread's tasks: each is a set of positions with a share of a group's result channels.
class Worker {
 public:
  Worker(const PackedPlan& plan, const uint32_t* packed)
      : plan_(plan),
        c_(plan.c),
        packed_(packed),
        sums_space_(sizeof(float) * plan.sums_size()),
        column_space_(sizeof(uint32_t) *
                      (plan.by_points ? plan.sums_size()
                                      : product::padded_cols(plan.micro, plan.widest) * plan.longest_block() + 1)),
        block_space_(sizeof(uint32_t) * (plan.at_once ? 1 : plan.rows * plan.longest_block())),
        tile_size_{plan.step[0], plan.pieces.rows * plan.step[1], plan.pieces.cols * plan.step[2]} {
    if (!plan.single) tile_space_.emplace(sizeof(float) * plan.rows * plan.together * tile_points());
  }

  void run(int64_t task) {
    const int64_t share = task % plan_.shares;
    group_ = task / plan_.shares % c_.shape.groups;
    set_ = &plan_.sets[size_t(task / (plan_.shares * c_.shape.groups))];
    first_strip_ = plan_.strips * share / plan_.shares;
    last_strip_ = plan_.strips * (share + 1) / plan_.shares;
    first_row_ = first_strip_ * plan_.strip;
    rows_ = std::min(c_.results, last_strip_ * plan_.strip) - first_row_;
    for (const Part& part : plan_.parts) {
      if (!window_ || !plan_.single) {
        window_.emplace(*part.axes, part.block * plan_.together, plan_.pieces.rows, plan_.pieces.cols);
      }
      place_runs(part);
      for (int64_t b = 0; b < part.blocks; ++b) multiply(part, b);
      store(part);
    }
    if (!plan_.single) store_tile();
  }

 private:
  // body(bundle, its runs, its sums) for each bundle of the set that has positions in the current part.
  template <class F>
  void each_bundle(F&& body) {
    float* sums = sums_space_.as<float>();
    for (size_t i = set_->first; i < set_->last; ++i) {
      const std::vector<Run>& runs = runs_[i - set_->first];
      if (runs.empty()) continue;
      body(plan_.bundles[i], runs, sums);
      sums += plan_.sums_step(positions_of(runs));
    }
  }
  template <class F>
  void each_area(const Part& part, const Bundle& bundle, F&& body) {
    for (size_t a = bundle.first; a < bundle.last; ++a) {
      const Piece p = plan_.clipped(part, plan_.areas[a]);
      if (p.rows > 0) body(int64_t(a - bundle.first), p);
    }
  }

  // Where positions will lie in the window: that of each area of a bundle behind that of the one before.
  void place_runs(const Part& part) {
    const int64_t width = int64_t((*part.axes)[2].taps.size());
    const bool by_line = plan_.flat && plan_.by_points;  // then taps are left out line by line
    runs_.assign(set_->last - set_->first, {});
    for (size_t i = set_->first; i < set_->last; ++i) {
      int64_t filled = 0;
      each_area(part, plan_.bundles[i], [&](int64_t area, const Piece& p) {
        const int64_t at = area * part.block * window_->channel_size();
        const bool whole = p.cols == window_->pitch() && !by_line;
        for (int64_t y = 0; y < (whole ? 1 : p.rows); ++y) {
          TapRange taps{0, part.tap_count()};
          if (by_line) {
            const TapRange inside = taps_inside((*part.axes)[1], p.y + y);
            taps = {inside.first * width, inside.last * width};
          }
          const int64_t length = whole ? p.points() : p.cols;
          runs_[i - set_->first].push_back({filled, at + y * window_->pitch(), length, taps});
          filled += length;
        }
      });
    }
  }

  // Block b of the sum.
  void multiply(const Part& part, int64_t b) {
    const int64_t words = plan_.block_words(part, b), channel = b * part.block * plan_.micro.depth;
    const int64_t channels = std::min(words * plan_.micro.depth, c_.sources - channel);
    const uint32_t* weights = packed_ + plan_.weights_at(part, group_, b) + first_row_ * words * part.tap_count();
    if (!plan_.at_once) {
      pack_weights(plan_, part, group_, b, first_strip_, last_strip_, block_space_.as<uint32_t>());
      weights = block_space_.as<uint32_t>();
    }
    const int64_t width = int64_t((*part.axes)[2].taps.size());
    each_bundle([&](const Bundle& bundle, const std::vector<Run>& runs, float* sums) {
      TapRange taps{0, part.tap_count()};
      if (plan_.split)
        taps = {plan_.areas[bundle.first].taps.first * width, plan_.areas[bundle.first].taps.last * width};
      find_offsets(taps, words);
      if (taps.first < taps.last) {
        each_area(part, bundle, [&](int64_t area, const Piece& p) {
          window_->fill_words(plan_.micro, area * part.block, c_.source, p, group_ * c_.sources + channel, channels);
        });
      }
      const WeightBlock block{
          weights, plan_.strip, rows_, words * part.tap_count(), words, words * taps.first, int64_t(offsets_.size())};
      multiply_bundle(block, runs, {sums, plan_.sums_ld, b > 0});
    });
  }

  // Of each word of each tap, in the order of packed weights.
  void find_offsets(const TapRange& taps, int64_t words) {
    offsets_.clear();
    for (int64_t t = taps.first; t < taps.last; ++t) {
      for (int64_t w = 0; w < words; ++w) {
        offsets_.push_back(window_->offsets()[size_t(t)] + w * window_->channel_size());
      }
    }
  }

  void multiply_bundle(const WeightBlock& weights, const std::vector<Run>& runs, const Target& target) {
    const uint32_t* window = reinterpret_cast<const uint32_t*>(window_->data());
    if (plan_.by_points) return multiply_points(plan_.micro, weights, runs, window, offsets_.data(), target);
    if (lies_in_halves(plan_.micro, runs)) {
      return multiply_halves(plan_.micro, weights, runs, window, offsets_.data(), target);
    }
    pack_positions(plan_.micro, runs, window_->data(), offsets_, column_space_.as<uint32_t>());
    multiply_packed(plan_.micro, weights, column_space_.as<uint32_t>(), positions_of(runs), target);
  }

  // -- store --

  void store(const Part& part) {
    const Phase& axes = *part.axes;
    each_bundle([&](const Bundle& bundle, const std::vector<Run>&, float* sums) {
      each_area(part, bundle, [&](int64_t area, const Piece& p) {
        const Results at{p, group_ * c_.results + first_row_, rows_};
        if (plan_.by_points) {
          emit_points(c_.context, at, sums, plan_.sums_ld, column_space_.as<float>());
          sums += p.points() * plan_.sums_ld;
          return;
        }
        if (plan_.single) {
          emit(c_.context, at, Sums<float>{sums, plan_.sums_ld, p.cols});
        } else {
          const int64_t first =
              (axes[0].result_start * tile_size_[1] + axes[1].result_start) * tile_size_[2] + axes[2].result_start;
          for (int64_t r = 0; r < rows_; ++r) {
            float* to = tile_space_->as<float>() + (r * plan_.together + area) * tile_points() + first;
            scatter_rows(sums + r * plan_.sums_ld, p.rows, p.cols, to, plan_.step[1] * tile_size_[2], plan_.step[2]);
          }
        }
        sums += p.points();
      });
    });
  }

  // Several phases, put together: the areas of the set's only bundle, and every z between two of a phase's.
  void store_tile() {
    const Bundle& bundle = plan_.bundles[set_->first];
    const int64_t *size = c_.size, *step = plan_.step;
    for (size_t a = bundle.first; a < bundle.last; ++a) {
      const Piece& p = plan_.areas[a].piece;
      const int64_t y = p.y * step[1], x = p.x * step[2];
      for (int64_t z = p.z * step[0]; z < std::min(size[0], (p.z + 1) * step[0]); ++z) {
        const Piece results{
            p.n, z, y, std::min(p.rows * step[1], size[1] - y), x, std::min(p.cols * step[2], size[2] - x)};
        float* from = tile_space_->as<float>() + int64_t(a - bundle.first) * tile_points() +
                      (z - p.z * step[0]) * tile_size_[1] * tile_size_[2];
        emit(c_.context, {results, group_ * c_.results + first_row_, rows_},
             Sums<float>{from, plan_.together * tile_points(), tile_size_[2]});
      }
    }
  }

  int64_t tile_points() const { return tile_size_[0] * tile_size_[1] * tile_size_[2]; }

  const PackedPlan& plan_;
  const Correlation& c_;
  const uint32_t* packed_;
  Scratch sums_space_;
  Scratch column_space_;  // the im2col matrix, or results as `emit` takes them
  Scratch block_space_;   // of weights
  const int64_t tile_size_[3];
  std::optional<Scratch> tile_space_;
  std::optional<Window<float>> window_;
  std::vector<std::vector<Run>> runs_;  // of each bundle of the set
  std::vector<int64_t> offsets_;
  // The task.
  const Set* set_ = nullptr;
  int64_t group_ = 0, first_strip_ = 0, last_strip_ = 0, first_row_ = 0, rows_ = 0;
};

void run(const Correlation& c) {
  const Micro& micro = product::micro_for(c.source.dtype, c.weights.tensor.dtype);
  std::optional<Scratch> converted_space;
  const PackedPlan plan(c, micro, micro.depth == 2 ? c.weights : converted<float>(c.shape, c.weights, converted_space));
  Scratch packed_space(sizeof(uint32_t) * (plan.at_once ? plan.packed_words + 1 : 1));
  uint32_t* packed = packed_space.as<uint32_t>();
  if (plan.at_once) {
    const int64_t each = plan.strip * plan.words * c.taps + 1;
    parallel_for(c.shape.groups * plan.strips, grain_for(each, kPackElements), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) pack_all_weights(plan, i / plan.strips, i % plan.strips, packed);
    });
  }
  const int64_t each = plan.capacity * c.results / plan.shares * c.sources * c.taps / int64_t(c.phases.size());
  parallel_for(plan.tasks(), grain_for(each, kTaskWork), [&](int64_t first, int64_t last) {
    Worker worker(plan, packed);
    for (int64_t task = first; task < last; ++task) worker.run(task);
  });
}

}  // namespace

constinit const CorrelationWay packed = {"packed", refuses, always<run, const Correlation>};

}  // namespace cmodel::conv
