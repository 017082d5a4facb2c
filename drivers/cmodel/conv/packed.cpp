// Forward and input gradient as products on packed register tiles (product/packed.h): weights are A, packed once; the
// im2col matrix is B and exists only as packed blocks of a few hundred positions, copied from a window of the source.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "drivers/cmodel/conv/packed.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::conv {
namespace {

using product::Micro;
using product::Scratch;

constexpr int64_t kMostPositions = 512, kLeastPositions = 96;  // of one block

// The im2col matrix of one block: strips of positions, gathered from their segments.
void pack_positions(const Micro& micro, const std::vector<Segment>& segments, int64_t positions, const float* window,
                    const std::vector<int64_t>& offsets, int64_t words, uint32_t* out) {
  const Micro& plain = product::micro_f32();
  size_t s = 0;
  for (int64_t j = 0; j < positions; j += micro.cols) {
    const int64_t end = std::min<int64_t>(j + micro.cols, positions), pitch = product::padded_cols(micro, end - j);
    while (segments[s].position + segments[s].length <= j) ++s;
    for (size_t i = s; i < segments.size() && segments[i].position < end; ++i) {
      const Segment& segment = segments[i];
      const int64_t from = std::max(segment.position, j), to = std::min(segment.position + segment.length, end);
      plain.taps(window + segment.at + (from - segment.position), offsets.data(), to - from, words, pitch,
                 out + j * words + (from - j));
    }
  }
}

// As product::multiply, of `words` words from `from` on where strips of A hold `all`.
void multiply(const Micro& micro, const uint32_t* a, int64_t strip, int64_t all, int64_t from, const uint32_t* b,
              int64_t m, int64_t n, int64_t words, float* c, int64_t ldc, bool accumulate) {
  for (int64_t j = 0; j < n; j += micro.cols) {
    for (int64_t i = 0; i < m; i += strip) {
      const int64_t rows = std::min(strip, m - i);
      micro.tile(words, a + i * all + from * rows, b + j * words, c + i * ldc + j, ldc, rows,
                 std::min<int64_t>(micro.cols, n - j), accumulate);
    }
  }
}

// The same with positions where they lie in the window, if all of a half strip lie together.
bool lies_in_halves(const Micro& micro, const std::vector<Segment>& segments) {
  return std::all_of(segments.begin(), segments.end(),
                     [&](const Segment& segment) { return segment.length % (micro.cols / 2) == 0; });
}

void multiply_spread(const Micro& micro, const uint32_t* a, int64_t strip, int64_t all, int64_t from,
                     const std::vector<Segment>& segments, const uint32_t* window, const int64_t* offsets, int64_t m,
                     int64_t n, int64_t words, float* c, int64_t ldc, bool accumulate) {
  size_t s = 0;
  const auto place = [&](int64_t position) {
    while (segments[s].position + segments[s].length <= position) ++s;
    return window + segments[s].at + (position - segments[s].position);
  };
  for (int64_t j = 0; j < n; j += micro.cols) {
    const int64_t cols = std::min<int64_t>(micro.cols, n - j), half = micro.cols / 2;
    const uint32_t* first = place(j);
    const uint32_t* second = cols > half ? place(j + half) : first;
    for (int64_t i = 0; i < m; i += strip) {
      const int64_t rows = std::min(strip, m - i);
      micro.spread(words, a + i * all + from * rows, first, second, offsets, c + i * ldc + j, ldc, rows, cols,
                   accumulate);
    }
  }
}

// A rectangle of positions, and which taps along y it has: those of the others lie in the padding throughout.
struct Area {
  Pieces::Piece piece;
  int64_t first_tap, last_tap;
};

// The taps along y that do not lie in the padding for results of line y.
std::pair<int64_t, int64_t> taps_inside(const Axis& axis, int64_t y) {
  const auto inside = [&](int64_t t) {
    const int64_t at = y * axis.source_step + axis.taps[t].offset;
    return at >= 0 && at < axis.source_size;
  };
  int64_t first = 0, last = int64_t(axis.taps.size());
  while (first < last && !inside(first)) ++first;
  while (last > first && !inside(last - 1)) --last;
  return {first, last};
}

// Positions in areas of at most so many, those with the same taps one after the other. `split`: lines at the upper and
// lower edge become areas of their own.
std::vector<Area> areas_of(const Pieces& pieces, const Axis& y_axis, bool split) {
  std::vector<Area> areas;
  const int64_t taps = int64_t(y_axis.taps.size());
  for (int64_t i = 0; i < pieces.count; ++i) {
    Pieces::Piece rest = pieces.at(i);
    while (rest.rows > 0) {
      Area area{rest, 0, taps};
      if (split) {
        const auto range = taps_inside(y_axis, rest.y);
        area.first_tap = range.first;
        area.last_tap = range.second;
        area.piece.rows = 1;
        while (area.piece.rows < rest.rows && taps_inside(y_axis, rest.y + area.piece.rows) == range) ++area.piece.rows;
      }
      areas.push_back(area);
      rest.y += area.piece.rows;
      rest.rows -= area.piece.rows;
    }
  }
  std::stable_sort(areas.begin(), areas.end(), [](const Area& a, const Area& b) {
    return a.first_tap != b.first_tap ? a.first_tap < b.first_tap : a.last_tap < b.last_tap;
  });
  return areas;
}

// Areas that are computed together, from the first on: as many as fill strips of B well.
std::vector<size_t> runs_of(const Micro& micro, const std::vector<Area>& areas, int64_t most) {
  std::vector<size_t> ends;
  for (size_t begin = 0; begin < areas.size();) {
    size_t best = begin + 1;
    double best_use = 0;
    int64_t positions = 0;
    for (size_t i = begin; i < areas.size(); ++i) {
      const Area& area = areas[i];
      if (area.first_tap != areas[begin].first_tap || area.last_tap != areas[begin].last_tap) break;
      positions += area.piece.rows * area.piece.cols;
      if (i > begin && positions > most) break;
      const double use = double(positions) / double(product::padded_cols(micro, positions));
      if (use >= best_use - 0.01) best = i + 1, best_use = std::max(use, best_use);
    }
    ends.push_back(best);
    begin = best;
  }
  return ends;
}

// Dense rows to where their points lie `step` apart.
void spread(const float* from, int64_t rows, int64_t cols, float* to, int64_t ld, int64_t step) {
  for (int64_t y = 0; y < rows; ++y, from += cols, to += ld) {
    float* line = to;
    for (int64_t x = 0; x < cols; ++x, line += step) *line = from[x];
  }
}

// Runs first .. last and their positions.
struct Set {
  size_t first, last;
  int64_t positions;
};

}  // namespace

bool try_packed(const Context& context, const std::vector<Phase>& phases, const Tensor& source, const Weights& given) {
  const Shape& shape = context.shape;
  const Micro& micro = product::micro_for(source.dtype, given.tensor.dtype);
  const int64_t taps = shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
  const int64_t inputs = given.swapped ? shape.out_channels : shape.in_channels;
  const int64_t outputs = given.swapped ? shape.in_channels : shape.out_channels;
  if (context.acc_dtype != NPU_F32 || outputs < 8 || inputs * taps < 24) return false;

  std::optional<Scratch> converted_space;
  const Weights weights = micro.depth == 2 ? given : converted<float>(shape, given, converted_space);
  // A block is a number of rectangles of q, the same for every phase, so that its results are rectangles too.
  const bool single = phases.size() == 1;
  int64_t most[3] = {}, step[3];
  for (int d = 0; d < 3; ++d) {
    step[d] = phases[0][d].result_step;
    for (const Phase& axes : phases) most[d] = std::max(most[d], axes[d].count);
  }
  const bool turned = single && product::even_span(micro, outputs) > 0;
  const PackedPlan plan(micro, shape, phases, weights, turned);
  const int64_t sources = plan.sources, results = plan.results;
  const int64_t strips = (results + plan.strip - 1) / plan.strip;
  const int threads = pool_threads();
  const int64_t in_all = shape.batch * most[0] * most[1] * most[2];
  const int64_t share = in_all * shape.groups / (4 * threads);  // of a thread, in four
  const int64_t positions = threads == 1 ? kMostPositions : std::clamp(share, kLeastPositions, kMostPositions);
  const Pieces pieces(shape.batch, most[0], most[1], most[2], positions);
  const bool flat = single && phases[0][0].taps.size() == 1, split = flat && !turned && most[1] <= 32;
  const std::vector<Area> areas = areas_of(pieces, phases[0][1], split);
  const std::vector<size_t> ends = runs_of(micro, areas, positions);
  // Runs of few positions are one set: block by block of the weights, since those are large beside them.
  std::vector<Set> sets;
  int64_t together = 1, widest = 1,
          capacity = 1;  // areas and positions of the largest run, positions of the largest set
  for (size_t i = 0; i < ends.size(); ++i) {
    const size_t begin = i ? ends[i - 1] : 0;
    int64_t count = 0;
    for (size_t a = begin; a < ends[i]; ++a) count += areas[a].piece.rows * areas[a].piece.cols;
    together = std::max(together, int64_t(ends[i] - begin));
    widest = std::max(widest, count);
    if (!turned) count = product::padded_cols(micro, count);
    if (!single || sets.empty() || sets.back().positions + count > kMostPositions) sets.push_back({i, i, 0});
    sets.back().last = i + 1;
    sets.back().positions += count;
    capacity = std::max(capacity, sets.back().positions);
  }
  const int64_t set_count = int64_t(sets.size());
  int64_t shares = 1;  // of the result channels, where there are too few blocks for the threads
  while (threads > 1 && set_count * shape.groups * shares < 2 * threads && strips / shares >= (turned ? 2 : 4)) {
    shares *= 2;
  }
  const int64_t most_rows = (strips + shares - 1) / shares * plan.strip;
  // An odd number of cache lines: rows of a tile then lie in different sets of the caches.
  const int64_t acc_ld = turned ? most_rows : (capacity + 15) / 16 / 2 * 32 + 16;
  const int64_t acc_size = turned ? most_rows * capacity : most_rows * acc_ld;
  const auto sums_of = [&](int64_t count) { return turned ? count * acc_ld : product::padded_cols(micro, count); };

  // All weights once, or each block where it is used if that is once only.
  const bool at_once = set_count > 1 || !single;
  Scratch packed_space(sizeof(uint32_t) * (at_once ? plan.packed + 1 : 1));
  uint32_t* packed = packed_space.as<uint32_t>();
  if (at_once) {
    const int64_t each = plan.strip * plan.words * taps + 1;
    parallel_for(shape.groups * strips, std::max<int64_t>(1, (1 << 15) / each), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) pack_all_weights(plan, weights, i / strips, i % strips, packed);
    });
  }

  const auto run = [&](int64_t first, int64_t last) {
    int64_t block_words = 0;
    for (const Part& part : plan.parts) block_words = std::max(block_words, part.block * int64_t(part.taps.size()));
    Scratch acc_space(sizeof(float) * acc_size);
    // The im2col matrix, or results as `emit` takes them.
    Scratch column_space(sizeof(uint32_t) *
                         (turned ? acc_size : product::padded_cols(micro, widest) * block_words + 1));
    Scratch block_space(sizeof(uint32_t) * (at_once ? 1 : most_rows * block_words));
    float* acc = acc_space.as<float>();
    uint32_t* column = column_space.as<uint32_t>();
    // Several phases are put together in a tile of results.
    const int64_t tile_size[3] = {step[0], pieces.rows * step[1], pieces.cols * step[2]};
    const int64_t tile_points = tile_size[0] * tile_size[1] * tile_size[2];
    std::optional<Scratch> tile_space;
    float* tile = nullptr;
    if (!single) tile = tile_space.emplace(sizeof(float) * most_rows * together * tile_points).template as<float>();
    std::optional<Window<float>> window;
    std::vector<std::vector<Segment>> segments;
    std::vector<int64_t> offsets;

    for (int64_t task = first; task < last; ++task) {
      const int64_t part_of_rows = task % shares, group = task / shares % shape.groups;
      const int64_t index = task / (shares * shape.groups);
      const Set& set = sets[size_t(index)];
      const auto first_area = [&](size_t i) { return areas.data() + (i ? ends[i - 1] : 0); };
      const auto last_area = [&](size_t i) { return areas.data() + ends[i]; };
      const int64_t s0 = strips * part_of_rows / shares, s1 = strips * (part_of_rows + 1) / shares;
      const int64_t r0 = s0 * plan.strip, rows = std::min(results, s1 * plan.strip) - r0;
      for (const Part& part : plan.parts) {
        const Phase& axes = *part.axes;
        if (!window || !single) window.emplace(axes.data(), part.block * together, pieces.rows, pieces.cols);
        const auto clipped = [&](const Area* area) {
          Pieces::Piece p = area->piece;
          p.rows = p.z < axes[0].count ? std::min(p.rows, axes[1].count - p.y) : 0;
          p.cols = std::min(p.cols, axes[2].count - p.x);
          if (p.rows <= 0 || p.cols <= 0) p.rows = p.cols = 0;
          return p;
        };
        const int64_t all_taps = int64_t(part.taps.size());
        const int64_t width = int64_t(axes[2].taps.size());
        segments.assign(set.last - set.first, {});
        for (size_t i = set.first; i < set.last; ++i) {
          int64_t filled = 0;
          for (const Area *begin = first_area(i), *area = begin; area < last_area(i); ++area) {
            const Pieces::Piece p = clipped(area);
            const int64_t at = (area - begin) * part.block * window->channel_size();
            const bool by_line = flat && turned;  // then taps are left out line by line
            const bool whole = p.cols == window->pitch() && !by_line;
            for (int64_t y = 0; y < (whole ? 1 : p.rows); ++y) {
              const int64_t length = whole ? p.rows * p.cols : p.cols;
              Segment segment{filled, at + y * window->pitch(), length, 0, all_taps};
              if (by_line) {
                const auto range = taps_inside(axes[1], p.y + y);
                segment.first_tap = range.first * width;
                segment.last_tap = range.second * width;
              }
              segments[i - set.first].push_back(segment);
              filled += length;
            }
          }
        }
        const auto positions_of = [](const std::vector<Segment>& list) {
          return list.empty() ? 0 : list.back().position + list.back().length;
        };
        for (int64_t b = 0; b < part.blocks; ++b) {
          const int64_t words = plan.block_words(part, b), c0 = b * part.block * micro.depth;
          const int64_t count = std::min(words * micro.depth, sources - c0);
          const uint32_t* a = packed + plan.weights_at(part, group, b) + r0 * words * all_taps;
          if (!at_once) {
            pack_weights(plan, part, weights, group, b, s0, s1, block_space.as<uint32_t>());
            a = block_space.as<uint32_t>();
          }
          float* sums = acc;
          for (size_t i = set.first; i < set.last; ++i) {
            const int64_t filled = positions_of(segments[i - set.first]);
            if (filled == 0) continue;
            const Area *begin = first_area(i), *end = last_area(i);
            const int64_t first_tap = split ? begin->first_tap * width : 0;
            const int64_t taps_here = split ? (begin->last_tap - begin->first_tap) * width : all_taps;
            const int64_t length = words * taps_here;
            offsets.resize(length);
            for (int64_t t = 0; t < taps_here; ++t) {
              for (int64_t w = 0; w < words; ++w) {
                offsets[t * words + w] = window->offsets()[first_tap + t] + w * window->channel_size();
              }
            }
            for (const Area* area = begin; area < end && length > 0; ++area) {
              const Pieces::Piece p = clipped(area);
              if (p.rows == 0) continue;
              window->fill_words(micro, (area - begin) * part.block, source, p.n, group * sources + c0, count, p.z, p.y,
                                 p.rows, p.x, p.cols);
            }
            if (turned) {
              multiply_points(micro, a, plan.strip, all_taps, words, segments[i - set.first],
                              reinterpret_cast<const uint32_t*>(window->data()), offsets.data(), rows, sums, acc_ld,
                              b > 0);
              sums += sums_of(filled);
              continue;
            }
            if (lies_in_halves(micro, segments[i - set.first])) {
              multiply_spread(micro, a, plan.strip, words * all_taps, words * first_tap, segments[i - set.first],
                              reinterpret_cast<const uint32_t*>(window->data()), offsets.data(), rows, filled, length,
                              sums, acc_ld, b > 0);
              sums += sums_of(filled);
              continue;
            }
            pack_positions(micro, segments[i - set.first], filled, window->data(), offsets, length, column);
            multiply(micro, a, plan.strip, words * all_taps, words * first_tap, column, rows, filled, length, sums,
                     acc_ld, b > 0);
            sums += sums_of(filled);
          }
        }
        float* sums = acc;
        for (size_t i = set.first; i < set.last; ++i) {
          int64_t filled = 0;
          for (const Area *begin = first_area(i), *area = begin; area < last_area(i); ++area) {
            const Pieces::Piece p = clipped(area);
            if (turned) {
              emit_points(context, p, group * results + r0, rows, sums + filled * acc_ld, acc_ld,
                          column_space.as<float>());
            } else if (single) {
              emit(context, p.n, group * results + r0, rows, p.z, p.y, p.rows, p.x, p.cols, sums + filled, acc_ld,
                   p.cols);
            } else {
              for (int64_t r = 0; r < rows; ++r) {
                float* to = tile + (r * together + (area - begin)) * tile_points +
                            (axes[0].result_start * tile_size[1] + axes[1].result_start) * tile_size[2] +
                            axes[2].result_start;
                spread(sums + r * acc_ld + filled, p.rows, p.cols, to, step[1] * tile_size[2], step[2]);
              }
            }
            filled += p.rows * p.cols;
          }
          sums += sums_of(filled);
        }
      }
      if (single) continue;
      const int64_t* size = given.swapped ? shape.in_size : shape.out_size;
      const Area* begin = first_area(set.first);
      for (const Area* area = begin; area < last_area(set.first); ++area) {
        const Pieces::Piece& p = area->piece;
        const int64_t y = p.y * step[1], x = p.x * step[2];
        for (int64_t z = p.z * step[0]; z < std::min(size[0], (p.z + 1) * step[0]); ++z) {
          emit(context, p.n, group * results + r0, rows, z, y, std::min(p.rows * step[1], size[1] - y), x,
               std::min(p.cols * step[2], size[2] - x),
               tile + (area - begin) * tile_points + (z - p.z * step[0]) * tile_size[1] * tile_size[2],
               together * tile_points, tile_size[2]);
        }
      }
    }
  };
  const int64_t tasks = set_count * shape.groups * shares;
  const int64_t each = std::max<int64_t>(1, capacity * results / shares * sources * taps / int64_t(phases.size()));
  parallel_for(tasks, std::max<int64_t>(1, (1 << 17) / each), run);
  return true;
}

}  // namespace cmodel::conv
