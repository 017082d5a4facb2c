// From a TensorIterator to one MAP or REDUCE command. Operand numbers in the program are the iterator's: outputs first,
// then inputs.
#pragma once
#include <ATen/TensorIterator.h>

#include <array>
#include <atomic>
#include <initializer_list>
#include <string>
#include <utility>

#include "csrc/aten/dispatch/types.h"
#include "csrc/core/launch/launch.h"

namespace torch_npu {

// One program in up to eight versions, one per compute type: `$t` in the text stands for that type, which is also the
// one that a formula (support/program/formula.h) has where it names none. The text may differ
// for floats, integers, bool and complex numbers; a kind that has none is null. In a complex program a tensor is two
// operands, its real and its imaginary parts, if its bit in `pairs` is set (tensors in the iterator's order).
class TypedProgram {
 public:
  explicit constexpr TypedProgram(const char* text) : texts_{text, text, text, nullptr} {}
  constexpr TypedProgram(const char* floats, const char* integers, const char* booleans,
                         const char* complexes = nullptr, uint32_t pairs = 0)
      : texts_{floats, integers, booleans, complexes}, pairs_(pairs) {}
  explicit TypedProgram(std::string text) : TypedProgram(kept(std::move(text))) {}

  bool has(npu_dtype compute) const { return text(compute) != nullptr; }
  // Throws Unsupported if there is no text for this type.
  DeviceProgram& of(npu_dtype compute) {
    DeviceProgram* program = programs_[compute].load(std::memory_order_acquire);
    return program ? *program : make(compute, text(compute), programs_[compute]);
  }

  bool has_complex() const { return texts_[3] != nullptr; }
  uint32_t pairs() const { return pairs_; }
  // `part` is the type of the two parts.
  DeviceProgram& of_complex(npu_dtype part) {
    auto& slot = complex_programs_[part == NPU_F64];
    DeviceProgram* program = slot.load(std::memory_order_acquire);
    return program ? *program : make(part, texts_[3], slot);
  }
  // The same with every value rounded to `storage` when it is loaded and before it is stored.
  DeviceProgram& rounded(npu_dtype compute, npu_dtype storage);

 private:
  const char* text(npu_dtype compute) const { return texts_[is_float(compute) ? 0 : compute == NPU_BOOL ? 2 : 1]; }
  static const char* kept(std::string text);  // for the life of the process, as programs are
  static DeviceProgram& make(npu_dtype compute, const char* text, std::atomic<DeviceProgram*>& slot);
  const char* texts_[4];
  uint32_t pairs_ = 0;
  std::array<std::atomic<DeviceProgram*>, NPU_DTYPE_COUNT> programs_{};
  std::array<std::atomic<DeviceProgram*>, 2> complex_programs_{};
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

void launch_map(at::TensorIteratorBase& iter, DeviceProgram& program, const char* label,
                std::initializer_list<npu_scalar> params = {}, Numbers numbers = Numbers::kCompute);

// For iterators without a common type: `common` is the type that PyTorch would convert inputs to, or Undefined where
// each is read in its own. `pairs`: see TypedProgram.
void launch_map_as(c10::ScalarType common, at::TensorIteratorBase& iter, DeviceProgram& program, const char* label,
                   std::initializer_list<npu_scalar> params = {}, Numbers numbers = Numbers::kRounded,
                   uint32_t pairs = 0);

// The same with the program for `common`, complex or not.
void launch_map_as(c10::ScalarType common, at::TensorIteratorBase& iter, TypedProgram& program, const char* label,
                   std::initializer_list<npu_scalar> params = {}, Numbers numbers = Numbers::kRounded);

// The iterator is a reduction (config is_reduction): dimensions where output 0 has stride 0 are folded.
void launch_reduce(at::TensorIteratorBase& iter, DeviceProgram& program, const char* label,
                   std::initializer_list<npu_scalar> params = {});

}  // namespace torch_npu
