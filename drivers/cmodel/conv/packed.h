// Convolution as products on packed register tiles: how the sum is cut into blocks, and the weights in that order.
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
};

struct PackedPlan {
  const product::Micro& micro;
  Shape shape;
  int64_t sources, results, words;  // channels of a group; words that hold the sources
  bool turned;                      // weights are B and positions A, which are read in the window (conv/points.cpp)
  int64_t strip;                    // rows of weights that are packed together
  std::vector<Part> parts;
  int64_t packed = 0;  // words of all packed weights

  PackedPlan(const product::Micro& micro, const Shape& shape, const std::vector<Phase>& phases, const Weights& weights,
             bool turned)
      : micro(micro), shape(shape), turned(turned) {
    sources = weights.swapped ? shape.out_channels : shape.in_channels;
    results = weights.swapped ? shape.in_channels : shape.out_channels;
    words = micro.words(sources);
    strip = turned ? product::even_span(micro, results) : product::even_rows(micro, results);
    const int64_t* stride = weights.tensor.stride;
    for (const Phase& axes : phases) {
      Part part{&axes, {}, true, 0, 0, words, 1, packed};
      for (const Tap& z : axes[0].taps) {
        for (const Tap& y : axes[1].taps) {
          for (const Tap& x : axes[2].taps) {
            part.taps.push_back(z.kernel * stride[2] + y.kernel * stride[3] + x.kernel * stride[4]);
          }
        }
      }
      for (size_t t = 0; t < part.taps.size(); ++t) {
        part.dense = part.dense && part.taps[t] == int64_t(t);
        part.first_tap = std::min(part.first_tap, part.taps[t]);
        part.last_tap = std::max(part.last_tap, part.taps[t]);
      }
      const int64_t taps = std::max<int64_t>(1, int64_t(part.taps.size()));
      part.blocks = (words * taps + product::kBlockWords * 5 / 4 - 1) / (product::kBlockWords * 5 / 4);
      part.block = (words + part.blocks - 1) / part.blocks;
      part.blocks = (words + part.block - 1) / part.block;
      packed += shape.groups * results * words * int64_t(part.taps.size());
      parts.push_back(std::move(part));
    }
  }

  // Words of channels in a block.
  int64_t block_words(const Part& part, int64_t b) const { return std::min(part.block, words - b * part.block); }
  // Where strips of a block begin: [group][block][strip][word][row].
  int64_t weights_at(const Part& part, int64_t group, int64_t b) const {
    return part.weights + (group * words + b * part.block) * int64_t(part.taps.size()) * results;
  }
};

// A row of positions that lie together in the window, and its taps: those of the others lie in the padding.
struct Segment {
  int64_t position, at, length;
  int64_t first_tap, last_tap;
};

// c[position][row] (+)= the product of a block of weights, each tap of which is `words` words, with what the window
// holds; `m` rows in strips of `strip`.
void multiply_points(const product::Micro& micro, const uint32_t* weights, int64_t strip, int64_t taps, int64_t words,
                     const std::vector<Segment>& segments, const uint32_t* window, const int64_t* offsets, int64_t m,
                     float* c, int64_t ldc, bool accumulate);
// As `emit`, of results[point][channel] with points `ld` apart; overwrites `space` of as many elements.
void emit_points(const Context& context, const Pieces::Piece& piece, int64_t channel, int64_t channels, float* results,
                 int64_t ld, float* space);

// Packs strips [first, last) of block b of a group's weights: [strip][tap][word of channels][row]. Taps come first, so
// that those at either end can be left out of a product.
void pack_weights(const PackedPlan& plan, const Part& part, const Weights& weights, int64_t group, int64_t b,
                  int64_t first, int64_t last, uint32_t* out);

// One strip of all parts and blocks, each to its place in `packed`.
void pack_all_weights(const PackedPlan& plan, const Weights& weights, int64_t group, int64_t strip, uint32_t* packed);

}  // namespace cmodel::conv
