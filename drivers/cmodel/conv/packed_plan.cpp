#include "drivers/cmodel/conv/packed.h"
#include "drivers/cmodel/conv/tuning.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::conv {

TapRange taps_inside(const Axis& axis, int64_t q) {
  TapRange range{0, int64_t(axis.taps.size())};
  while (range.first < range.last && !axis.is_inside(q, axis.taps[size_t(range.first)])) ++range.first;
  while (range.last > range.first && !axis.is_inside(q, axis.taps[size_t(range.last - 1)])) --range.last;
  return range;
}

PackedPlan::PackedPlan(const Correlation& c, const product::Micro& micro, const Weights& weights)
    : c(c),
      micro(micro),
      weights(weights),
      threads(pool_threads()),
      single(c.phases.size() == 1),
      by_points(single && product::even_span(micro, c.results) > 0),
      flat(single && c.phases[0][0].taps.size() == 1),
      words(micro.words(c.sources)),
      strip(by_points ? product::even_span(micro, c.results) : product::even_rows(micro, c.results)),
      strips((c.results + strip - 1) / strip),
      pieces(pieces_of(c, threads)) {
  for (int d = 0; d < 3; ++d) step[d] = c.phases[0][d].result_step;
  cut_sum();
  cut_positions();
  gather_sets();
  const int64_t set_count = int64_t(sets.size());
  if (threads > 1)
    shares = parts_for(set_count * c.shape.groups, kSharesPerThread * threads, strips, by_points ? 2 : 4);
  rows = (strips + shares - 1) / shares * strip;
  // An odd number of cache lines: rows of a tile then lie in different sets of the caches.
  sums_ld = by_points ? rows : (capacity + 15) / 16 / 2 * 32 + 16;
  at_once = set_count > 1 || !single;
}

void PackedPlan::cut_sum() {
  constexpr int64_t kMost = product::kBlockWords * kBlockPercent / 100;
  for (const Phase& axes : c.phases) {
    Part part{&axes, {}, true, 0, 0, words, 1, packed_words};
    each_tap(axes, [&](const Tap& z, const Tap& y, const Tap& x) {
      const int64_t tap = weights.offset(z, y, x);
      part.dense = part.dense && tap == part.tap_count();
      part.first_tap = std::min(part.first_tap, tap);
      part.last_tap = std::max(part.last_tap, tap);
      part.taps.push_back(tap);
    });
    part.blocks = (words * std::max<int64_t>(1, part.tap_count()) + kMost - 1) / kMost;
    part.block = (words + part.blocks - 1) / part.blocks;
    part.blocks = (words + part.block - 1) / part.block;
    packed_words += c.shape.groups * c.results * words * part.tap_count();
    parts.push_back(std::move(part));
  }
}

// Rectangles of q, the same for every phase, so that their results are rectangles too.
Pieces PackedPlan::pieces_of(const Correlation& c, int threads) {
  int64_t most[3] = {};
  for (const Phase& axes : c.phases) {
    for (int d = 0; d < 3; ++d) most[d] = std::max(most[d], axes[d].count);
  }
  const int64_t all = c.shape.batch * most[0] * most[1] * most[2] * c.shape.groups;
  const int64_t share = all / (kTasksPerThread * threads);
  return {c.shape.batch, most[0], most[1], most[2],
          threads == 1 ? kMostPositions : std::clamp(share, kLeastPositions, kMostPositions)};
}

// Areas with the same taps come one after the other, and are bundled.
void PackedPlan::cut_positions() {
  const Axis& y_axis = c.phases[0][1];
  split = flat && !by_points && pieces.height <= kSplitRows;
  for (int64_t i = 0; i < pieces.count; ++i) {
    Piece rest = pieces.at(i);
    while (rest.rows > 0) {
      Area area{rest, {0, int64_t(y_axis.taps.size())}};
      if (split) {
        area.taps = taps_inside(y_axis, rest.y);
        area.piece.rows = 1;
        while (area.piece.rows < rest.rows && taps_inside(y_axis, rest.y + area.piece.rows) == area.taps) {
          ++area.piece.rows;
        }
      }
      areas.push_back(area);
      rest.y += area.piece.rows;
      rest.rows -= area.piece.rows;
    }
  }
  std::stable_sort(areas.begin(), areas.end(), [](const Area& a, const Area& b) {
    return a.taps.first != b.taps.first ? a.taps.first < b.taps.first : a.taps.last < b.taps.last;
  });
  for (size_t begin = 0; begin < areas.size(); begin = bundles.back().last) {
    size_t best = begin + 1;
    double best_use = 0;
    int64_t positions = 0;
    for (size_t i = begin; i < areas.size() && areas[i].taps == areas[begin].taps; ++i) {
      positions += areas[i].piece.points();
      if (i > begin && positions > pieces.positions) break;
      const double use = double(positions) / double(product::padded_cols(micro, positions));
      if (use >= best_use - kUseTolerance) best = i + 1, best_use = std::max(use, best_use);
    }
    bundles.push_back({begin, best});
  }
}

// Bundles of few positions are one set: block by block of the weights, since those are large beside them.
void PackedPlan::gather_sets() {
  for (size_t i = 0; i < bundles.size(); ++i) {
    int64_t count = 0;
    for (size_t a = bundles[i].first; a < bundles[i].last; ++a) count += areas[a].piece.points();
    together = std::max(together, int64_t(bundles[i].last - bundles[i].first));
    widest = std::max(widest, count);
    if (!by_points) count = product::padded_cols(micro, count);
    if (!single || sets.empty() || sets.back().positions + count > kMostPositions) sets.push_back({i, i, 0});
    sets.back().last = i + 1;
    sets.back().positions += count;
    capacity = std::max(capacity, sets.back().positions);
  }
}

int64_t PackedPlan::longest_block() const {
  int64_t most = 0;
  for (const Part& part : parts) most = std::max(most, part.block * part.tap_count());
  return most;
}

Piece PackedPlan::clipped(const Part& part, const Area& area) const {
  const Phase& axes = *part.axes;
  Piece p = area.piece;
  p.rows = p.z < axes[0].count ? std::min(p.rows, axes[1].count - p.y) : 0;
  p.cols = std::min(p.cols, axes[2].count - p.x);
  if (p.rows <= 0 || p.cols <= 0) p.rows = p.cols = 0;
  return p;
}

}  // namespace cmodel::conv
