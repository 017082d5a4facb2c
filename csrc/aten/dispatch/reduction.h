// From tensors to one command over rows: REDUCE, SCAN, SORT, or a MAP whose last dimension has a name. For ops that
// TensorIterator does not describe: several outputs, indices, operands that lack the folded dimensions.
//
//   Rows("aten::amax", self.sizes(), dims).reduced(out).add(self).reduce(kernel);
//
// Operands are numbered in the order in which they are added.
#pragma once
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <bitset>
#include <initializer_list>

#include "csrc/aten/dispatch/command.h"
#include "csrc/aten/dispatch/map.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu {

using DimMask = std::bitset<64>;
using Params = std::initializer_list<npu_scalar>;

// The type that values of this tensor are computed in. Throws Unsupported for types that no command carries.
npu_dtype compute_type(const at::Tensor& tensor, const char* label);

inline DimMask one_dim(const at::Tensor& self, int64_t dim) {
  DimMask mask;
  mask[at::maybe_wrap_dim(dim, self.dim())] = true;
  return mask;
}

inline DimMask last_dims(const at::Tensor& self, int64_t count) {
  DimMask mask;
  for (int64_t d = self.dim() - count; d < self.dim(); ++d) mask[d] = true;
  return mask;
}
inline DimMask first_dims(int64_t count) {
  DimMask mask;
  for (int64_t d = 0; d < count; ++d) mask[d] = true;
  return mask;
}

class Rows {
 public:
  // The index space is `sizes`; the dimensions in `inner` are folded, scanned or sorted.
  Rows(const char* label, at::IntArrayRef sizes, DimMask inner);

  // A tensor that broadcasts against the space.
  Rows& add(const at::Tensor& tensor);
  // A tensor without the inner dimensions, or with size 1 there.
  Rows& reduced(const at::Tensor& tensor);
  // One stride per dimension of the space; `limit` bounds load_at, `offset` moves the origin.
  Rows& strided(const at::Tensor& tensor, at::IntArrayRef strides, int64_t limit = 0, int64_t offset = 0);
  // Its first element everywhere.
  Rows& scalar(const at::Tensor& tensor);
  // A value instead of a tensor that the caller did not give.
  Rows& number(double value);
  // The tensor if it is defined, else the value.
  Rows& add_or(const at::Tensor& tensor, double value) { return tensor.defined() ? add(tensor) : number(value); }

  // In these, a program that says `index 7` or `size 7` means the one inner dimension.
  void reduce(DeviceProgram& program, Params params = {}) { run(NPU_REDUCE, program, params); }
  void scan(DeviceProgram& program, Params params = {}) { run(NPU_SCAN, program, params); }
  void map(DeviceProgram& program, Params params = {}) { run(NPU_MAP, program, params); }
  // Operands: keys, an unused one for the payload 0 .. n - 1, sorted keys, sorted positions.
  void sort(int64_t count, bool descending, bool stable);

  // For programs that use `index 7`: keeps the inner dimension apart, as number 7 of the command.
  Rows& indexed() {
    indexed_ = true;
    return *this;
  }

 private:
  static constexpr int kDims = 24;
  struct Strides {
    std::array<int64_t, kDims> at;
  };
  npu_operand& next(const at::Tensor& tensor);  // strides: those of the last operand
  int64_t* strides() { return strides_[command_->operand_count - 1].at.data(); }
  std::array<int, kDims> sorted_dims() const;
  // Drops dimensions of size 1 and merges neighbours. False if there is nothing to do.
  bool finish(npu_command_kind kind);
  void run(npu_command_kind kind, DeviceProgram& program, Params params);

  Command command_;
  int rank_;
  DimMask inner_;
  bool indexed_ = false;
  std::array<int64_t, kDims> size_;
  Strides strides_[NPU_MAX_OPERANDS];
};

}  // namespace torch_npu
