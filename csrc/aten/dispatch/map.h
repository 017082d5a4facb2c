// From a TensorIterator to one MAP or REDUCE command. Operand numbers in the program are the iterator's: outputs first,
// then inputs.
#pragma once
#include <ATen/TensorIterator.h>

#include <array>
#include <atomic>
#include <initializer_list>

#include "csrc/aten/dispatch/types.h"
#include "csrc/core/launch/launch.h"

namespace torch_npu {

// One program in up to eight versions, one per compute type: `$t` in the text stands for that type. The text may differ
// for floats, integers, bool and complex numbers; a kind that has none is null. In a complex program a tensor is two
// operands, its real and its imaginary parts, if its bit in `pairs` is set (tensors in the iterator's order).
class TypedKernel {
 public:
  explicit constexpr TypedKernel(const char* text) : texts_{text, text, text, nullptr} {}
  constexpr TypedKernel(const char* floats, const char* integers, const char* booleans, const char* complexes = nullptr,
                        uint32_t pairs = 0)
      : texts_{floats, integers, booleans, complexes}, pairs_(pairs) {}

  bool has(npu_dtype compute) const { return text(compute) != nullptr; }
  // Throws Unsupported if there is no text for this type.
  Kernel& of(npu_dtype compute) {
    Kernel* kernel = kernels_[compute].load(std::memory_order_acquire);
    return kernel ? *kernel : make(compute, text(compute), kernels_[compute]);
  }

  bool has_complex() const { return texts_[3] != nullptr; }
  uint32_t pairs() const { return pairs_; }
  // `part` is the type of the two parts.
  Kernel& of_complex(npu_dtype part) {
    auto& slot = complex_kernels_[part == NPU_F64];
    Kernel* kernel = slot.load(std::memory_order_acquire);
    return kernel ? *kernel : make(part, texts_[3], slot);
  }
  // The same with every value rounded to `storage` when it is loaded and before it is stored.
  Kernel& rounded(npu_dtype compute, npu_dtype storage);

 private:
  const char* text(npu_dtype compute) const { return texts_[is_float(compute) ? 0 : compute == NPU_BOOL ? 2 : 1]; }
  static Kernel& make(npu_dtype compute, const char* text, std::atomic<Kernel*>& slot);
  const char* texts_[4];
  uint32_t pairs_ = 0;
  std::array<std::atomic<Kernel*>, NPU_DTYPE_COUNT> kernels_{};
  std::array<std::atomic<Kernel*>, 2> complex_kernels_{};
};

// A text whose `$t` was replaced. Throws Unsupported if it is no valid program for integers or bool, which not every
// instruction takes: the CPU computes the op then, or knows the error.
npu::Program parse_for(npu_dtype compute, const std::string& text);

// How a number (a 0-d CPU tensor) meets the other operands.
enum class Numbers {
  kCompute,  // in the precision of the computation, as PyTorch's arithmetic does
  kRounded   // rounded to the common type first, as PyTorch's comparisons do
};

// Loads and stores convert as PyTorch does, which rounds to the common type in between: false for an int64 beside a
// half.
bool converts_like_cast(const at::TensorIteratorBase& iter);

void launch_map(at::TensorIteratorBase& iter, Kernel& kernel, const char* label,
                std::initializer_list<npu_scalar> params = {}, Numbers numbers = Numbers::kCompute);

// For iterators without a common type: `common` is the type that PyTorch would convert inputs to, or Undefined where
// each is read in its own. `pairs`: see TypedKernel.
void launch_map_as(c10::ScalarType common, at::TensorIteratorBase& iter, Kernel& kernel, const char* label,
                   std::initializer_list<npu_scalar> params = {}, Numbers numbers = Numbers::kRounded,
                   uint32_t pairs = 0);

// The same with the program for `common`, complex or not.
void launch_map_as(c10::ScalarType common, at::TensorIteratorBase& iter, TypedKernel& kernel, const char* label,
                   std::initializer_list<npu_scalar> params = {}, Numbers numbers = Numbers::kRounded);

// The iterator is a reduction (config is_reduction): dimensions where output 0 has stride 0 are folded.
void launch_reduce(at::TensorIteratorBase& iter, Kernel& kernel, const char* label,
                   std::initializer_list<npu_scalar> params = {});

}  // namespace torch_npu
