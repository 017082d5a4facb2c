#include <ATen/ops/empty.h>

#include <algorithm>

#include "csrc/aten/attention/attention.h"
#include "csrc/core/launch/launch.h"

namespace torch_npu::attention {
namespace {

// Scores in scratch memory. A tile is high if that makes it large, because matrix products like many rows, but several
// heads share a command only as long as it stays in a second-level cache between commands.
constexpr int64_t kScratchScores = 17 << 15;
constexpr int64_t kSharedScores = kScratchScores / 4;
constexpr int64_t kLeastRows = 16;    // fewer would make matrix products slow
constexpr int64_t kCausalRows = 128;  // a causal tile computes about this many columns too many

// Long rows that do not begin at multiples of a large power of two share a cache better; short ones are better dense.
int64_t row_stride(int64_t columns) {
  return columns <= 512 ? columns : (columns + 15) / 16 * 16 + 16;
}

}  // namespace

Tile Tile::behind(int64_t elements) const {
  Tile tile = *this;
  tile.addr += elements * (dtype == NPU_F64 ? 8 : 4);
  return tile;
}

Tile Tile::one_repeat(int64_t r) const {
  Tile tile = behind(r * stride[2]);
  tile.repeat += r;
  tile.repeats = 1;
  return tile;
}

Shape::Shape(const at::Tensor& query, const at::Tensor& key, const Window& window)
    : batches(query.size(0)),
      groups(key.size(1)),
      repeats(query.size(1) / key.size(1)),
      queries(query.size(2)),
      keys(key.size(2)),
      window(window) {}

Shape::Cut Shape::choose_cut(int copies) const {
  const int64_t stride = row_stride(window.widest(kCausalRows, keys));
  const int64_t most = std::max(kLeastRows, kScratchScores / copies / stride / kLeastRows * kLeastRows);
  // Tiles of about the same height, in multiples that matrix products like.
  const int64_t blocks = (queries + most - 1) / most;
  const int64_t even = ((queries + blocks - 1) / blocks + kLeastRows - 1) / kLeastRows * kLeastRows;
  const int64_t rows = std::min({queries, even, window.bounded() ? kCausalRows : even});
  int64_t room = std::max<int64_t>(1, kSharedScores / copies / (rows * stride));
  const auto take = [&room](int64_t size) {
    const int64_t part = std::min(room, size);
    room = part == size ? room / size : 1;
    return part;
  };
  const int64_t of_group = take(repeats), of_batch = take(groups);
  return {take(batches), of_batch, of_group, rows};
}

at::Tensor Shape::allocate(const Cut& cut, int copies, const at::TensorOptions& options) const {
  return at::empty(
      {copies * cut.batches * cut.groups * cut.repeats * cut.rows * row_stride(window.widest(cut.rows, keys))},
      options);
}

Tile Shape::make_tile(const Cut& cut, int64_t b, int64_t g, int64_t r, int64_t i, const at::Tensor& scores) const {
  Tile tile;
  tile.batch = b;
  tile.batches = std::min(cut.batches, batches - b);
  tile.group = g;
  tile.groups = std::min(cut.groups, groups - g);
  tile.repeat = r;
  tile.repeats = std::min(cut.repeats, repeats - r);
  tile.row = i;
  tile.rows = std::min(cut.rows, queries - i);
  const auto [first, last] = window.columns(i, i + tile.rows, keys);
  tile.column = first;
  tile.columns = last - first;
  tile.all_groups = groups;
  tile.all_repeats = repeats;
  tile.device = scores.device().index();
  tile.addr = reinterpret_cast<npu_addr>(scores.const_data_ptr());
  tile.dtype = storage_dtype(scores.scalar_type());
  tile.stride[3] = row_stride(tile.columns);
  tile.stride[2] = tile.stride[3] * tile.rows;
  tile.stride[1] = tile.stride[2] * tile.repeats;
  tile.stride[0] = tile.stride[1] * tile.groups;
  return tile;
}

Step::Step(npu_command_kind kind, const char* label, const Tile& tile, int64_t rows, int64_t columns)
    : tile_(tile),
      command_(kind, label, {tile.batches, tile.groups, tile.repeats, rows, columns}, kind == NPU_REDUCE ? 1 : 0) {
  command_.set_device(tile.device);
}

Step& Step::contract(int64_t k, npu_dtype compute) {
  command_->u.matmul.k = k;
  command_->u.matmul.acc_dtype = compute;
  return *this;
}

// The first dimensions, up to the rows. A tensor of keys has one head per group, which its queries share.
npu_operand& Step::heads_of(const at::Tensor& tensor, int64_t first) {
  const bool shared = tile_.all_repeats > 1 && tensor.size(1) == tile_.all_groups;
  const int64_t head = tensor.stride(1), group = shared ? head : head * tile_.all_repeats;
  const int64_t repeat = shared ? 0 : head, row = tensor.stride(2);
  const int64_t offset = tile_.batch * tensor.stride(0) + tile_.group * group + tile_.repeat * repeat + first * row;
  npu_operand& operand = command_.add(tensor.const_data_ptr(), storage_dtype(tensor.scalar_type()));
  operand.addr += offset * tensor.element_size();
  operand.stride[0] = tensor.stride(0);
  operand.stride[1] = group;
  operand.stride[2] = repeat;
  operand.stride[3] = row;
  return operand;
}

Step& Step::with(const at::Tensor& tensor, int64_t row, int64_t column) {
  npu_operand& operand = heads_of(tensor, row);
  operand.addr += column * tensor.stride(3) * tensor.element_size();
  operand.stride[4] = tensor.stride(3);
  return *this;
}

Step& Step::with_transposed(const at::Tensor& tensor, int64_t row) {
  npu_operand& operand = heads_of(tensor, row);
  operand.stride[4] = operand.stride[3];
  operand.stride[3] = tensor.stride(3);
  return *this;
}

Step& Step::with_row(const at::Tensor& tensor) {
  heads_of(tensor, tile_.row);
  return *this;
}

Step& Step::with_diagonals(const at::Tensor& vector, int64_t queries, int64_t column) {
  const int64_t at = column - tile_.row + queries - 1;
  npu_operand& operand = command_.add(vector.const_data_ptr(), storage_dtype(vector.scalar_type()));
  operand.addr += at * vector.element_size();
  operand.stride[3] = -1;
  operand.stride[4] = 1;
  return *this;
}

Step& Step::with_tile(const Tile& tile, int64_t column) {
  npu_operand& operand = command_.add(tile.behind(column).addr, tile.dtype);
  std::copy(tile.stride, tile.stride + 4, operand.stride);
  operand.stride[4] = 1;
  return *this;
}

Step& Step::with_tile_transposed(const Tile& tile) {
  npu_operand& operand = command_.add(tile.addr, tile.dtype);
  std::copy(tile.stride, tile.stride + 3, operand.stride);
  operand.stride[3] = 1;
  operand.stride[4] = tile.stride[3];
  return *this;
}

}  // namespace torch_npu::attention
