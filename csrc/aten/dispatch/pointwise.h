// What the C++ made from the op table (codegen/pointwise.ops) is written in.
#pragma once
#include "csrc/aten/dispatch/map.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu {

// For ops that PyTorch has no structured meta class for: the iterators that its own kernels build.
class PointwiseMeta : public at::TensorIteratorBase {
 protected:
  void unary(const at::Tensor& self) { build_borrowing_unary_op(maybe_get_output(0), self); }
  void unary_float(const at::Tensor& self) { build_borrowing_unary_float_op(maybe_get_output(0), self); }
  void unary_bool(const at::Tensor& self);
  // abs and angle: the result of a complex number is real.
  void unary_real(const at::Tensor& self) { self.is_complex() ? complex_to_real(self) : unary(self); }
  void unary_float_real(const at::Tensor& self) { self.is_complex() ? complex_to_real(self) : unary_float(self); }
  void binary(const at::Tensor& a, const at::Tensor& b) { build_borrowing_binary_op(maybe_get_output(0), a, b); }
  void binary_float(const at::Tensor& a, const at::Tensor& b) {
    build_borrowing_binary_float_op(maybe_get_output(0), a, b);
  }
  void compare(const at::Tensor& a, const at::Tensor& b) { build_borrowing_comparison_op(maybe_get_output(0), a, b); }
  void ternary(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
    build_ternary_op(maybe_get_output(0), a, b, c);
  }

  // Some ops have another result type for complex inputs, so those without a complex program leave before an iterator
  // is built.
  static void refuse_complex(std::initializer_list<const at::Tensor*> tensors);

 private:
  void complex_to_real(const at::Tensor& self);
};

// Structured meta functions take references where the op's own call has optionals.
template <class Ref, class T>
Ref optional_ref(const std::optional<T>& value) {
  if constexpr (std::is_same_v<T, at::Scalar>) {
    return value ? Ref(*value) : Ref();
  } else {
    return value && value->defined() ? Ref(*value) : Ref();
  }
}

inline bool is_one(const at::Scalar& value) {
  return value.isFloatingPoint() ? value.toDouble() == 1 : value.equal(1);
}

bool same_complex(const at::TensorIteratorBase& iter);
// A real program for both parts of complex tensors of one type.
void launch_parts(const at::TensorIteratorBase& iter, DeviceProgram& program, const char* label);

// One call of a table op: picks the program for its type and launches it.
class PointwiseCall {
 public:
  PointwiseCall(at::TensorIteratorBase& iter, const char* label, Numbers numbers = Numbers::kRounded)
      : iter_(iter), label_(label), numbers_(numbers), compute_(storage_dtype(iter.common_dtype())) {
    if (compute_ != NPU_DTYPE_NONE) {
      compute_ = compute_dtype(compute_);
    } else {
      compute_ = part_dtype(iter.common_dtype());
      complex_ = true;
      if (compute_ == NPU_DTYPE_NONE) {
        refuse();
      }
    }
  }

  bool has(const TypedProgram& program) const { return !complex_ && program.has(compute_); }
  bool has_complex(const TypedProgram& program) const { return complex_ && program.has_complex(); }
  // The op's type is not rounded when it is stored: true for all but half precision and narrow integers.
  bool exact() const { return storage_dtype(iter_.common_dtype()) == compute_; }

  bool is(c10::ScalarType type) const { return iter_.common_dtype() == type; }

  npu_scalar param(const at::Scalar& value) const { return scalar_param(value, compute_); }
  npu_scalar param(const at::Scalar& value, npu_dtype type) const { return scalar_param(value, type); }
  template <class T>
  npu_scalar param(const std::optional<T>& value) const {
    return scalar_param(*value, compute_);
  }
  static npu_scalar real(const at::Scalar& value) { return part(value.toComplexDouble().real()); }
  static npu_scalar imag(const at::Scalar& value) { return part(value.toComplexDouble().imag()); }

  void run(TypedProgram& program, std::initializer_list<npu_scalar> params) const {
    if (complex_) {
      refuse();
    }
    if (converts_like_cast(iter_)) [[likely]] {
      launch_map(iter_, program.of(compute_), label_, params, numbers_);
    } else {
      DeviceProgram& rounded = program.rounded(compute_, storage_dtype(iter_.common_dtype()));
      launch_map_as(c10::ScalarType::Undefined, iter_, rounded, label_, params, numbers_);
    }
  }
  // All tensors are complex and of one type, and a command has room for one more dimension: the two parts.
  bool partwise() const { return complex_ && same_complex(iter_); }
  void run_parts(TypedProgram& program) const { launch_parts(iter_, program.of(compute_), label_); }
  void run_complex(TypedProgram& program, std::initializer_list<npu_scalar> params) const {
    launch_map_as(iter_.common_dtype(), iter_, program.of_complex(compute_), label_, params, numbers_, program.pairs());
  }
  // The CPU computes it, or knows the error.
  [[noreturn]] void refuse() const { throw Unsupported(label_); }

 private:
  static npu_scalar part(double value) {
    npu_scalar out;
    out.f = value;
    return out;
  }

  at::TensorIteratorBase& iter_;
  const char* label_;
  Numbers numbers_;
  npu_dtype compute_;  // of the parts, if the op is complex
  bool complex_ = false;
};

}  // namespace torch_npu
