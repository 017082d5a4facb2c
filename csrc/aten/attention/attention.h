// How attention is cut into tiles of scores, and the commands on one tile. All of them walk five dimensions: batch,
// group of heads with one key, head of the group, and the rows and columns of a matrix.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "csrc/aten/dispatch/command.h"

namespace torch_npu::attention {

// Keys that query i sees: i + low .. i + high, and the first `prefix` in any case.
struct Window {
  static constexpr int64_t kFar = int64_t{1} << 40;
  int64_t low = -kFar, high = kFar;
  int64_t prefix = 0;  // of the batch with the longest one

  bool bounded() const { return low > -kFar || high < kFar; }
  // Columns that some query in [row, end) sees: none outside [first, second).
  std::pair<int64_t, int64_t> columns(int64_t row, int64_t end, int64_t keys) const {
    const int64_t first = prefix > 0 ? 0 : std::clamp<int64_t>(row + low, 0, keys);
    return {first, std::clamp<int64_t>(std::max(end + high, prefix), first, keys)};
  }
  // Of these, the ones that all of them see, in multiples that matrix products like.
  std::pair<int64_t, int64_t> free_columns(int64_t row, int64_t end, int64_t keys) const {
    constexpr int64_t kUnit = 16;
    const auto [first, last] = columns(row, end, keys);
    const int64_t from = std::clamp(end - 1 + low, first, last), to = std::clamp(row + high + 1, first, last);
    return {from == first ? from : std::min((from + kUnit - 1) / kUnit * kUnit, last),
            to == last ? to : std::max(to / kUnit * kUnit, first)};
  }
  // The most columns of a tile of this many rows.
  int64_t widest(int64_t rows, int64_t keys) const {
    return prefix > 0 || low <= -kFar || high >= kFar ? keys : std::clamp<int64_t>(rows + high - low, 0, keys);
  }
};

// Scores of some heads and queries against keys column .. column + columns - 1, or something of their shape, in scratch
// memory.
struct Tile {
  int64_t batch, batches;
  int64_t group, groups;
  int64_t repeat, repeats;
  int64_t row, rows;
  int64_t column, columns;
  int64_t all_groups, all_repeats;  // of the whole problem: keys' heads, and heads that share one
  npu_addr addr;
  npu_dtype dtype;
  c10::DeviceIndex device;
  int64_t stride[4];  // batch, group, repeat, row; columns lie side by side

  int64_t first_head() const { return group * all_repeats + repeat; }
  Tile behind(int64_t elements) const;  // the same tile further on in memory
  Tile one_repeat(int64_t r) const;     // the part of one head per group
};

struct Shape {
  int64_t batches, groups, repeats, queries, keys;
  Window window;

  Shape(const at::Tensor& query, const at::Tensor& key, const Window& window);
  int64_t heads() const { return groups * repeats; }

  // Calls work(tile, first) for every tile; `first` with the first tile of its heads, which is the one with the last
  // queries: without a lower bound it sees every key that any query sees. `scores` becomes the memory of one tile,
  // `copies` times.
  template <class Work>
  void for_each_tile(int copies, const at::TensorOptions& options, at::Tensor& scores, Work work) const {
    const Cut cut = choose_cut(copies);
    scores = allocate(cut, copies, options);
    for (int64_t b = 0; b < batches; b += cut.batches)
      for (int64_t g = 0; g < groups; g += cut.groups)
        for (int64_t r = 0; r < repeats; r += cut.repeats)
          for (int64_t i = (queries - 1) / cut.rows * cut.rows; i >= 0; i -= cut.rows)
            work(make_tile(cut, b, g, r, i, scores), i + cut.rows >= queries);
  }

 private:
  struct Cut {
    int64_t batches, groups, repeats, rows;
  };
  Cut choose_cut(int copies) const;
  at::Tensor allocate(const Cut& cut, int copies, const at::TensorOptions& options) const;
  Tile make_tile(const Cut& cut, int64_t b, int64_t g, int64_t r, int64_t i, const at::Tensor& scores) const;
};

// One command on a tile. Operands are numbered in the order in which they are added.
class Step {
 public:
  Step(npu_command_kind kind, const char* label, const Tile& tile, int64_t rows, int64_t columns);

  Step& contract(int64_t k, npu_dtype compute);  // MATMUL over k terms
  // [batch, heads, rows, columns] of the tile's heads, from row `row` and column `column` on.
  Step& with(const at::Tensor& tensor, int64_t row, int64_t column = 0);
  Step& with_transposed(const at::Tensor& tensor, int64_t row);
  Step& with_row(const at::Tensor& tensor);  // [batch, heads, rows]: one value per row of the tile
  // Element j - i, for query i and key j from `column` on, of a vector that begins with that of 1 - `queries`.
  Step& with_diagonals(const at::Tensor& vector, int64_t queries, int64_t column);
  Step& with_tile(const Tile& tile, int64_t column = 0);
  Step& with_tile_transposed(const Tile& tile);
  Step& scalar(npu_scalar value) {
    command_.param(value);
    return *this;
  }
  Step& number(double value) { return scalar(torch_npu::number(value)); }
  Step& integer(int64_t value) { return scalar(torch_npu::integer(value)); }

  void run() { command_.run(); }  // without a program
  void run(DeviceProgram& program) { command_.run(program); }

 private:
  npu_operand& heads_of(const at::Tensor& tensor, int64_t row);

  const Tile& tile_;
  Command command_;
};

// -- attention_core.cpp --

struct Options {
  double scale = 1;
  at::Tensor bias;             // added to the scores
  at::Tensor hidden, padding;  // not 0 where a query must not look. Like the bias they broadcast to the scores
  Window window;
  std::vector<int64_t> prefix;  // of each batch: keys that every query sees, whatever the window; or nothing
  double dropout = 0;
  uint64_t seed = 0, offset = 0;
};

// For tensors [batch, heads, length, features] of one floating type that fit together. `max` and `sum`: of each row of
// scores, and of its exponentials.
struct Result {
  at::Tensor out, logsumexp, max, sum;
};
Result forward(const char* label, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const Options& options);

struct Grads {
  at::Tensor query, key, value, bias;
};
// `grad_logsumexp`: what reached logsumexp, if anything did.
Grads backward(const char* label, const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key,
               const at::Tensor& value, const at::Tensor& out, const at::Tensor& logsumexp, const Options& options,
               bool of_bias, const at::Tensor& grad_logsumexp = {});

}  // namespace torch_npu::attention
