// How attention is cut into tiles of scores, and the commands on one tile. All of them walk five dimensions: batch,
// group of heads with one key, head of the group, and the rows and columns of a matrix.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "csrc/aten/types.h"

namespace torch_npu::attention {

// Scores of some heads and queries against keys 0 .. columns - 1, or something of their shape, in scratch memory.
struct Tile {
  int64_t batch, batches;
  int64_t group, groups;
  int64_t repeat, repeats;
  int64_t row, rows;
  int64_t columns;
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

  Shape(const at::Tensor& query, const at::Tensor& key);
  int64_t heads() const { return groups * repeats; }
  // Keys that a query before `row_end` sees.
  int64_t columns(int64_t row_end, bool causal) const { return causal ? std::min(row_end, keys) : keys; }

  // Calls work(tile, first) for every tile; `first` with the first tile of its heads, which is the one with the last
  // queries: it sees every key that any query sees. `scores` becomes the memory of one tile, `copies` times.
  template <class Work>
  void for_each_tile(bool causal, int copies, const at::TensorOptions& options, at::Tensor& scores, Work work) const {
    const Cut cut = choose_cut(causal, copies);
    scores = allocate(cut, copies, options);
    for (int64_t b = 0; b < batches; b += cut.batches)
      for (int64_t g = 0; g < groups; g += cut.groups)
        for (int64_t r = 0; r < repeats; r += cut.repeats)
          for (int64_t i = (queries - 1) / cut.rows * cut.rows; i >= 0; i -= cut.rows)
            work(make_tile(cut, b, g, r, i, causal, scores), i + cut.rows >= queries);
  }

 private:
  struct Cut {
    int64_t batches, groups, repeats, rows;
  };
  Cut choose_cut(bool causal, int copies) const;
  at::Tensor allocate(const Cut& cut, int copies, const at::TensorOptions& options) const;
  Tile make_tile(const Cut& cut, int64_t b, int64_t g, int64_t r, int64_t i, bool causal,
                 const at::Tensor& scores) const;
};

// One command on a tile. Operands are numbered in the order in which they are added.
class Step {
 public:
  Step(npu_command_kind kind, const char* label, const Tile& tile, int64_t rows, int64_t columns);
  Step(const Step&) = delete;

  Step& contract(int64_t k, npu_dtype compute);  // MATMUL over k terms
  // [batch, heads, rows, columns] of the tile's heads, from row `row` on.
  Step& with(const at::Tensor& tensor, int64_t row = 0);
  Step& with_transposed(const at::Tensor& tensor, int64_t row = 0);
  Step& with_row(const at::Tensor& tensor);  // [batch, heads, rows]: one value per row of the tile
  // Element j - i of a vector that goes from -(rows - 1) to rows - 1, for row i and column j.
  Step& with_diagonals(const at::Tensor& vector);
  Step& with_tile(const Tile& tile, int64_t column = 0);
  Step& with_tile_transposed(const Tile& tile);
  Step& number(double value);
  Step& integer(int64_t value);

  void run();  // without a program
  void run(Kernel& kernel);

 private:
  npu_operand& next(npu_addr addr, npu_dtype dtype);
  npu_operand& heads_of(const at::Tensor& tensor, int64_t row);

  static constexpr int kOperands = 6;
  static constexpr int kParams = 12;
  const Tile& tile_;
  npu_command command_{};
  npu_operand operands_[kOperands];
  npu_scalar params_[kParams];
};

}  // namespace torch_npu::attention
