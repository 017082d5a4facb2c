// What the C++ made from the op table (codegen/pointwise.ops) is written in.
#pragma once
#include "csrc/aten/dispatch/map.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu {

// For ops that PyTorch has no structured meta class for: the iterators that its own kernels build.
class PointwiseMeta : public at::TensorIteratorBase {
 public:
  void unary(const at::Tensor& self);
  void unary_float(const at::Tensor& self);
  void unary_bool(const at::Tensor& self);
  // abs and angle: the result of a complex number is real.
  void unary_real(const at::Tensor& self);
  void unary_float_real(const at::Tensor& self);
  void binary(const at::Tensor& a, const at::Tensor& b);
  void binary_float(const at::Tensor& a, const at::Tensor& b);
  void compare(const at::Tensor& a, const at::Tensor& b);
  void ternary(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c);

  // Some ops have another result type for complex inputs, so those without a complex program leave before an iterator
  // is built.
  static void refuse_complex(std::initializer_list<const at::Tensor*> tensors);

 private:
  void complex_to_real(const at::Tensor& self);
};

// The iterator of any op of the table, in the three forms an op comes in.
class PointwiseIterator final : public PointwiseMeta {
 public:
  PointwiseIterator();  // functional: the result is a new tensor
  enum class Into { kSelf, kOut };
  PointwiseIterator(Into into, const at::Tensor& given);
  ~PointwiseIterator() override;

  void set_output_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options NPU_NAMES_DECL) override;
  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options NPU_NAMES_DECL) override;
  const at::Tensor& maybe_get_output(int64_t) override { return *output_; }
  at::Tensor take_output() { return std::move(made_); }

 private:
  at::Tensor made_;
  const at::Tensor* output_ = &made_;
  Into into_ = Into::kOut;
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
  PointwiseCall(at::TensorIteratorBase& iter, const char* label, Numbers numbers = Numbers::kRounded);

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

  void run(TypedProgram& program, std::initializer_list<npu_scalar> params) const;
  // An op without numbers whose program is always this one.
  void run_only(TypedProgram& program) const;
  // All tensors are complex and of one type, and a command has room for one more dimension: the two parts.
  bool partwise() const;
  void run_parts(TypedProgram& program) const;
  void run_complex(TypedProgram& program, std::initializer_list<npu_scalar> params) const;
  // The CPU computes it, or knows the error.
  [[noreturn]] void refuse() const;

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

// A line of the table, as data. Args: of the functional form.
template <class... Args>
struct PointwiseOp {
  const char* label;                                        // "aten::add"
  void (*meta)(PointwiseIterator& iter, Args... args);      // asks for the output and builds the iterator
  void (*launch)(const PointwiseCall& call, Args... args);  // or null: it is always `program`
  TypedProgram* program;
  Numbers numbers;

  void run(PointwiseIterator& iter, Args... args) const {
    meta(iter, args...);
    const PointwiseCall call(iter, label, numbers);
    launch ? launch(call, args...) : call.run_only(*program);
  }
};

// The meta function of a structured op. PyTorch's class of it adds nothing to the iterator but this function, so it
// works on any iterator.
template <auto Meta>
constexpr auto structured_meta = nullptr;
template <class Class, class... Args, void (Class::*Meta)(Args...)>
constexpr auto structured_meta<Meta> = +[](PointwiseIterator& iter, Args... args) {
  static_assert(std::is_base_of_v<at::TensorIteratorBase, Class> && sizeof(Class) == sizeof(at::TensorIteratorBase));
  (iter.*static_cast<void (at::TensorIteratorBase::*)(Args...)>(Meta))(args...);
};

template <class... Args>
struct FunctionalForm {
  const PointwiseOp<Args...>* op;
  at::Tensor operator()(Args... args) const {
    PointwiseIterator iter;
    op->run(iter, args...);
    return iter.take_output();
  }
};

template <class Self, class... Rest>
struct InplaceForm {
  const PointwiseOp<Self, Rest...>* op;
  at::Tensor& operator()(at::Tensor& self, Rest... rest) const {
    PointwiseIterator iter(PointwiseIterator::Into::kSelf, self);
    op->run(iter, self, rest...);
    return self;
  }
};

template <class... Args>
struct OutForm {
  const PointwiseOp<Args...>* op;
  at::Tensor& operator()(Args... args, at::Tensor& out) const {
    PointwiseIterator iter(PointwiseIterator::Into::kOut, out);
    op->run(iter, args...);
    return out;
  }
};

// A form that the op does not have has no name.
template <class Self, class... Rest>
void register_pointwise(torch::Library&, const PointwiseOp<Self, Rest...>& op, OpName functional, OpName inplace,
                        OpName out) {
  register_signature<at::Tensor(Self, Rest...)>(functional, FunctionalForm<Self, Rest...>{&op});
  if (inplace.name) register_signature<at::Tensor&(at::Tensor&, Rest...)>(inplace, InplaceForm<Self, Rest...>{&op});
  if (out.name) register_signature<at::Tensor&(Self, Rest..., at::Tensor&)>(out, OutForm<Self, Rest...>{&op});
}

}  // namespace torch_npu
