// Convolution as products on packed register tiles. Everything that is decided before the first multiplication is a
// PackedPlan: how the sum is cut into blocks, where packed weights lie, which positions are computed together.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "drivers/cmodel/conv/conv.h"
#include "drivers/cmodel/product/packed.h"

namespace cmodel::conv {

// One phase: its taps, and its k (words of source channels, each with all taps) in blocks.
struct Part {
  const Phase* axes;
  std::vector<int64_t> taps;    // offsets in the weights
  bool dense;                   // these are 0, 1, 2, ...
  int64_t first_tap, last_tap;  // the least and the greatest
  int64_t block, blocks;        // words of channels in one, and how many
  int64_t weights;              // where its packed weights begin
  int64_t tap_count() const { return int64_t(taps.size()); }
};

struct TapRange {
  int64_t first, last;
  bool operator==(const TapRange&) const = default;
};

// The taps of an axis that do not lie in the padding for position q.
TapRange taps_inside(const Axis& axis, int64_t q);

// A rectangle of positions, and which taps along y it has: those of the others lie in the padding throughout.
struct Area {
  Piece piece;
  TapRange taps;
};

// Areas [first, last) that are computed together, as many as fill strips of B well.
struct Bundle {
  size_t first, last;
};

// Bundles [first, last), and their positions, that take a block of the weights one after the other.
struct Set {
  size_t first, last;
  int64_t positions;
};

class PackedPlan {
 public:
  PackedPlan(const Correlation& c, const product::Micro& micro, const Weights& weights);

  const Correlation& c;
  const product::Micro& micro;
  const Weights weights;  // in a type that can be packed
  const int threads;
  const bool single;     // one phase: results of several would be put together in a tile
  const bool by_points;  // weights are B, and positions A, which is read in the window (conv/points.cpp)
  const bool flat;       // every position has all taps along z
  bool split;            // lines at the upper and lower edge are areas of their own
  bool at_once;          // all weights are packed at the beginning, not each block where it is used

  int64_t words;             // that hold the source channels of a group
  int64_t strip, strips;     // rows of weights that are packed together, and how many such of a group
  std::vector<Part> parts;   // of the sum, one for each phase
  int64_t packed_words = 0;  // of all weights
  int64_t step[3];           // of results of a phase
  Pieces pieces;             // of positions
  std::vector<Area> areas;
  std::vector<Bundle> bundles;
  std::vector<Set> sets;
  int64_t together = 1, widest = 1;  // areas and positions of the largest bundle
  int64_t capacity = 1;              // positions of the largest set
  int64_t shares = 1;                // of the result channels, where there are too few sets for the threads
  int64_t rows;                      // of weights in a share, at most
  int64_t sums_ld;                   // of a set's sums: [row][position], or by points [position][row]

  // Words of channels in a block.
  int64_t block_words(const Part& part, int64_t b) const { return std::min(part.block, words - b * part.block); }
  int64_t longest_block() const;  // words with all taps
  // Where strips of a block begin: [group][block][strip][word][row].
  int64_t weights_at(const Part& part, int64_t group, int64_t b) const {
    return part.weights + (group * words + b * part.block) * part.tap_count() * c.results;
  }
  // Elements of sums: of a set, and from one bundle to the next behind `count` positions.
  int64_t sums_size() const { return rows * (by_points ? capacity : sums_ld); }
  int64_t sums_step(int64_t count) const { return by_points ? count * sums_ld : product::padded_cols(micro, count); }
  // What an area has of the positions of a part: phases differ in size. No rows: nothing.
  Piece clipped(const Part& part, const Area& area) const;
  int64_t tasks() const { return int64_t(sets.size()) * c.shape.groups * shares; }

 private:
  static Pieces pieces_of(const Correlation& c, int threads);
  void cut_sum();
  void cut_positions();
  void gather_sets();
};

// Positions that lie together in the window, and their taps: those of the others lie in the padding.
struct Run {
  int64_t position, at, length;
  TapRange taps;
};

// A block of packed weights: `rows` rows in strips, each of `words` words, `per_tap` of which belong to one tap. Words
// [from, from + length) take part in the product.
struct WeightBlock {
  const uint32_t* data;
  int64_t strip, rows, words, per_tap, from, length;
};

// Where sums go, or are added.
struct Target {
  float* sums;
  int64_t ld;
  bool accumulate;
};

// target[position][row] (+)= the product of a block of weights with what the window holds.
void multiply_points(const product::Micro& micro, const WeightBlock& weights, const std::vector<Run>& runs,
                     const uint32_t* window, const int64_t* offsets, const Target& target);
// As `emit`, of results[point][channel] with points `ld` apart; overwrites `space` of as many elements.
void emit_points(const Context& context, const Results& at, float* results, int64_t ld, float* space);

// Packs strips [first, last) of block b of a group's weights: [strip][tap][word of channels][row]. Taps come first, so
// that those at either end can be left out of a product.
void pack_weights(const PackedPlan& plan, const Part& part, int64_t group, int64_t b, int64_t first, int64_t last,
                  uint32_t* out);
// One strip of all parts and blocks, each to its place in `packed`.
void pack_all_weights(const PackedPlan& plan, int64_t group, int64_t strip, uint32_t* packed);

}  // namespace cmodel::conv
