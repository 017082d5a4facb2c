// What the C++ made from the op table (codegen/pointwise.ops) is written in.
#pragma once
#include "csrc/aten/map.h"
#include "csrc/aten/structured.h"

namespace torch_npu {

// For ops that PyTorch has no structured meta class for: the iterators that its own kernels build.
class PointwiseMeta : public at::TensorIteratorBase {
 protected:
  void unary(const at::Tensor& self) {
    refuse_complex({&self});
    build_borrowing_unary_op(maybe_get_output(0), self);
  }
  void unary_float(const at::Tensor& self) {
    refuse_complex({&self});
    build_borrowing_unary_float_op(maybe_get_output(0), self);
  }
  void unary_bool(const at::Tensor& self);
  void binary(const at::Tensor& a, const at::Tensor& b) {
    refuse_complex({&a, &b});
    build_borrowing_binary_op(maybe_get_output(0), a, b);
  }
  void binary_float(const at::Tensor& a, const at::Tensor& b) {
    refuse_complex({&a, &b});
    build_borrowing_binary_float_op(maybe_get_output(0), a, b);
  }
  void compare(const at::Tensor& a, const at::Tensor& b) {
    refuse_complex({&a, &b});
    build_borrowing_comparison_op(maybe_get_output(0), a, b);
  }
  void ternary(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
    refuse_complex({&a, &b, &c});
    build_ternary_op(maybe_get_output(0), a, b, c);
  }

 private:
  // Some ops have another result type for complex inputs, so these leave before an iterator is built.
  static void refuse_complex(std::initializer_list<const at::Tensor*> tensors);
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

// One call of a table op: picks the program for its type and launches it.
class PointwiseCall {
 public:
  PointwiseCall(at::TensorIteratorBase& iter, const char* label, Numbers numbers = Numbers::kRounded)
      : iter_(iter), label_(label), numbers_(numbers), compute_(iterator_compute_dtype(iter)) {}

  bool has(const TypedKernel& kernel) const { return kernel.has(compute_); }
  // The op's type is not rounded when it is stored: true for all but half precision and narrow integers.
  bool exact() const { return storage_dtype(iter_.common_dtype()) == compute_; }

  npu_scalar param(const at::Scalar& value) const { return scalar_param(value, compute_); }
  npu_scalar param(const at::Scalar& value, npu_dtype type) const { return scalar_param(value, type); }
  template <class T>
  npu_scalar param(const std::optional<T>& value) const {
    return scalar_param(*value, compute_);
  }

  void run(TypedKernel& kernel, std::initializer_list<npu_scalar> params) const {
    launch_map(iter_, kernel.of(compute_), label_, params, numbers_);
  }
  // The CPU computes it, or knows the error.
  [[noreturn]] void refuse() const { throw Unsupported(label_); }

 private:
  at::TensorIteratorBase& iter_;
  const char* label_;
  Numbers numbers_;
  npu_dtype compute_;
};

}  // namespace torch_npu
