#include <cstring>

#include "drivers/cmodel/conv/packed.h"
#include "drivers/cmodel/conv/tuning.h"

namespace cmodel::conv {
namespace {

using product::Micro;
using product::Scratch;

// Pairs of channels in one word. Rows one by one: [word of channels][tap], transposed to [tap][word]; then rows
// together.
void pack_strip(const PackedPlan& plan, const Part& part, const uint16_t* from, int64_t row_step, int64_t step,
                int64_t c0, int64_t words, int64_t rows, uint32_t* space, uint32_t* to) {
  const Micro& plain = product::micro_f32();  // words are moved as they are
  const int64_t taps = part.tap_count(), length = words * taps;
  uint32_t *by_channel = space, *lines = space + length;
  for (int64_t r = 0; r < rows; ++r) {
    const uint16_t* channels = from + r * row_step;
    if (part.dense) {
      plan.micro.wide(channels, step, taps, std::min(words * plan.micro.depth, plan.c.sources - c0), taps, by_channel);
    } else {
      for (int64_t w = 0; w < words; ++w) {
        const uint16_t* channel = channels + 2 * w * step;
        const bool pair = c0 + 2 * w + 1 < plan.c.sources;
        for (int64_t t = 0; t < taps; ++t) {
          const uint32_t second = pair ? channel[step + part.taps[t]] : 0;
          by_channel[w * taps + t] = channel[part.taps[t]] | second << 16;
        }
      }
    }
    plain.deep(by_channel, taps, words, taps, words, lines + r * length);
  }
  plain.deep(lines, length, rows, length, rows, to);
}

// Words that are channels: as few passes as the layout allows.
void pack_strip(const PackedPlan&, const Part& part, const float* from, int64_t row_step, int64_t step, int64_t,
                int64_t words, int64_t rows, uint32_t* space, uint32_t* to) {
  const Micro& plain = product::micro_f32();
  const int64_t taps = part.tap_count(), length = words * taps;
  if (part.dense && step == taps) {  // a row is one line of memory, [channel][tap]
    int64_t offset[2 * product::kBlockWords];
    plain.deep(from, row_step, rows, length, rows, space);
    for (int64_t k = 0; k < length; k += std::size(offset)) {
      const int64_t count = std::min<int64_t>(length - k, std::size(offset));
      for (int64_t i = 0; i < count; ++i) offset[i] = ((k + i) % words * taps + (k + i) / words) * rows;
      plain.taps(space, offset, rows, count, rows, to + k * rows);
    }
  } else if (step == 1 || row_step == 1) {  // channels are last
    for (int64_t t = 0; t < taps; ++t) {
      uint32_t* into = to + t * words * rows;
      if (step == 1) {
        plain.deep(from + part.taps[t], row_step, rows, words, rows, into);
      } else {
        plain.wide(from + part.taps[t], step, rows, words, rows, into);
      }
    }
  } else if (part.dense) {
    for (int64_t w = 0; w < words; ++w) plain.deep(from + w * step, row_step, rows, taps, words * rows, to + w * rows);
  } else if (part.first_tap >= 0 && part.last_tap < kWidestKernel) {
    for (int64_t w = 0; w < words; ++w) {
      plain.deep(from + w * step, row_step, rows, part.last_tap + 1, rows, space);
      for (int64_t t = 0; t < taps; ++t) {
        std::memcpy(to + (t * words + w) * rows, space + part.taps[t] * rows, sizeof(uint32_t) * size_t(rows));
      }
    }
  } else {
    for (int64_t k = 0; k < length; ++k) {
      const float* line = from + k % words * step + part.taps[k / words];
      for (int64_t r = 0; r < rows; ++r) std::memcpy(to + k * rows + r, line + r * row_step, sizeof(uint32_t));
    }
  }
}

template <class E>
void pack(const PackedPlan& plan, const Part& part, int64_t group, int64_t b, int64_t first, int64_t last,
          uint32_t* out) {
  const Weights& weights = plan.weights;
  const int64_t words = plan.block_words(part, b), length = words * part.tap_count();
  if (length == 0) return;
  const int64_t c0 = b * part.block * plan.micro.depth, step = weights.source_stride(),
                row_step = weights.result_stride();
  Scratch space(sizeof(uint32_t) * size_t((plan.strip + 1) * std::max(length, kWidestKernel)));
  const E* from =
      reinterpret_cast<const E*>(weights.tensor.data) + group * weights.group_stride(plan.c.shape) + c0 * step;
  for (int64_t i = first; i < last; ++i) {
    const int64_t row = i * plan.strip, rows = std::min(plan.strip, plan.c.results - row);
    pack_strip(plan, part, from + row * row_step, row_step, step, c0, words, rows, space.as<uint32_t>(),
               out + (i - first) * plan.strip * length);
  }
}

}  // namespace

void pack_weights(const PackedPlan& plan, const Part& part, int64_t group, int64_t b, int64_t first, int64_t last,
                  uint32_t* out) {
  if (plan.micro.depth == 2) {
    pack<uint16_t>(plan, part, group, b, first, last, out);
  } else {
    pack<float>(plan, part, group, b, first, last, out);
  }
}

void pack_all_weights(const PackedPlan& plan, int64_t group, int64_t strip, uint32_t* packed) {
  const Weights& weights = plan.weights;
  const int64_t step = weights.source_stride(), row_step = weights.result_stride(), row = strip * plan.strip;
  const int64_t rows = std::min(plan.strip, plan.c.results - row);
  const auto place = [&](const Part& part, int64_t b) {
    return packed + plan.weights_at(part, group, b) + row * plan.block_words(part, b) * part.tap_count();
  };
  int64_t widest = 0, least = 0;
  for (const Part& part : plan.parts) {
    widest = std::max(widest, part.last_tap + 1);
    least = std::min(least, part.first_tap);
  }
  if (plan.parts.size() == 1 || plan.micro.depth == 2 || least < 0 || widest > kWidestKernel || step == 1 ||
      row_step == 1) {
    for (const Part& part : plan.parts) {
      for (int64_t b = 0; b < part.blocks; ++b) {
        pack_weights(plan, part, group, b, strip, strip + 1, place(part, b));
      }
    }
    return;
  }
  // Parts have some of the taps each: a channel is transposed once for all of them.
  Scratch space(sizeof(uint32_t) * size_t((plan.strip + 1) * kWidestKernel));
  uint32_t* transposed = space.as<uint32_t>();
  const float* from =
      reinterpret_cast<const float*>(weights.tensor.data) + group * weights.group_stride(plan.c.shape) + row * row_step;
  for (int64_t w = 0; w < plan.words; ++w) {
    product::micro_f32().deep(from + w * step, row_step, rows, widest, rows, transposed);
    for (const Part& part : plan.parts) {
      if (part.taps.empty()) continue;
      const int64_t b = w / part.block, words = plan.block_words(part, b);
      uint32_t* to = place(part, b) + w % part.block * rows;
      for (const int64_t tap : part.taps) {
        std::memcpy(to, transposed + tap * rows, sizeof(uint32_t) * size_t(rows));
        to += words * rows;
      }
    }
  }
}

}  // namespace cmodel::conv
