// A command whose index space and strides an op works out itself, for the ops that no TensorIterator describes: pooling
// windows, computed addresses, random numbers.
//
//   Nest(NPU_MAP, "aten::roll", sizes).with(out).with(self, strides, offset).integer(shift).run(kernel);
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "csrc/aten/dispatch/command.h"
#include "csrc/aten/dispatch/map.h"

namespace torch_npu {

// The type whose elements are words of this many bytes.
npu_dtype bits_dtype(size_t element_size, const char* label);
// The storage type that moves the bits of `type` and never looks at them: complex64 travels as a 64-bit word.
npu_dtype opaque_dtype(c10::ScalarType type, const char* label);
// For ops that compute with the values.
npu_dtype numeric_dtype(c10::ScalarType type, const char* label);

// What a command sees of a complex number. Real ones are always whole.
enum class Part { kWhole, kReal, kImag };
// Calls `launch` for the whole numbers, or for one part after the other: where parts are added up, and where a whole
// number has 16 bytes.
template <class Launch>
void for_each_part(c10::ScalarType type, bool computes, Launch&& launch) {
  if (c10::isComplexType(type) && (computes || c10::elementSize(type) > 8)) {
    launch(Part::kReal);
    launch(Part::kImag);
  } else {
    launch(Part::kWhole);
  }
}
// The type that moves `part` of an element of this type.
npu_dtype moving_dtype(c10::ScalarType type, Part part, const char* label);

class Nest {
 public:
  Nest(npu_command_kind kind, const char* label, at::IntArrayRef sizes, int inner_rank = 0)
      : command_(kind, label, sizes, inner_rank) {}

  // The next operand. Strides are in elements, one per dimension of the nest; the tensor's own if left out. `offset`
  // moves the origin. Empty tensors have no address: a nest with points never has them, unless every access is masked.
  Nest& with(const at::Tensor& tensor, npu_dtype type, at::IntArrayRef strides, int64_t offset = 0);
  Nest& with(const at::Tensor& tensor, at::IntArrayRef strides, int64_t offset = 0);
  Nest& with(const at::Tensor& tensor);

  // Over the index space of an iterator, with its tensors as operands in its order. Values are moved, not computed
  // with. Of complex tensors: the whole number, or one part.
  Nest(npu_command_kind kind, const char* label, const at::TensorIteratorBase& iter, Part part = Part::kWhole);

  Nest& scalar(npu_scalar value) {
    command_.param(value);
    return *this;
  }
  Nest& integer(int64_t value) { return scalar(torch_npu::integer(value)); }
  Nest& integers(at::IntArrayRef values);
  Nest& number(double value) { return scalar(torch_npu::number(value)); }

  // MATMUL: a nest of batch..., m, n whose operands 0 (batch..., m, k) and 1 (batch..., k, n) are contracted.
  Nest& contract(int64_t k, npu_dtype accumulator);

  // Nothing happens where there are no points; a REDUCE over empty rows still runs its row segments.
  void run(DeviceProgram& program);
  void run();  // without a program: COPY (operand 0 <- operand 1) and MATMUL (operand 2)

 private:
  bool no_points() const;

  Command command_;
};

// Programs that differ by a number (of dimensions, of indices) are written by a function and kept by key and type. `$t`
// stands for the compute type.
class ProgramFamily {
 public:
  DeviceProgram& get(int64_t key, npu_dtype compute, const std::function<std::string()>& text);

 private:
  std::mutex mutex_;
  std::map<std::pair<int64_t, int>, DeviceProgram*> programs_;
};

// Strides of `tensor` as if it had been expanded to `sizes`.
at::DimVector expanded_strides(const at::Tensor& tensor, at::IntArrayRef sizes);

// Lines, or what stands between commas, with {d} replaced by a dimension's number.
std::string per_dimension(int64_t count, const std::string& text, const std::string& between = "");
std::string replace_all(std::string text, const std::string& from, const std::string& to);

}  // namespace torch_npu
