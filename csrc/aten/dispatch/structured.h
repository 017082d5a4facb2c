// PyTorch's structured ops on npu. The wheel exports each op's meta function: shapes, promotion, broadcasting, overlap
// checks and error texts. This wraps it in the three forms an op comes in (functional, in-place, out), allocates
// outputs on the device and calls one launch function:
//
//   void launch_add(at::meta::structured_add_Tensor& op, const at::Tensor& out, <the op's own arguments>);
//
//   structured<at::meta::structured_add_Tensor, launch_add>(m)
//       .functional<at::_ops::add_Tensor>().inplace<at::_ops::add__Tensor>().out<at::_ops::add_out>();
#pragma once
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>

#include "csrc/aten/dispatch/empty.h"
#include "csrc/aten/dispatch/registration.h"
#include "csrc/aten/dispatch/same_device.h"

// Before 2.13 output setters carried dimension names.
#if TORCH_NPU_TORCH_MINOR < 13
#define NPU_NAMES_DECL , [[maybe_unused]] at::DimnameList names
#define NPU_NAMES , names
#else
#define NPU_NAMES_DECL
#define NPU_NAMES
#endif

namespace torch_npu {

// Where the result goes; fixes what the meta function's request for an output does.
void check_inplace(const at::Tensor& self, at::IntArrayRef sizes, const at::TensorOptions& options);
void resize_out(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides,
                const at::TensorOptions& options);

template <class Meta, class Self>
class Structured : public Meta {
 public:
  // Commands take any strides, so an output never needs a proxy with the strides that the op would like.
  void set_output_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options NPU_NAMES_DECL) override {
    set_output(index, sizes, strides, options NPU_NAMES);
  }
  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options NPU_NAMES_DECL) override {
    set_output(index, sizes, strides, options NPU_NAMES);
  }

 private:
  void set_output(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                  at::TensorOptions options NPU_NAMES_DECL) {
    static_cast<Self*>(this)->prepare(sizes, strides, options);
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>) {
      Meta::set_output_raw_strided(index, sizes, strides, options NPU_NAMES);
    }
  }
};

template <class Meta>
class Functional final : public Structured<Meta, Functional<Meta>> {
 public:
  void prepare(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
    output = make_empty(sizes, strides, options);
  }
  const at::Tensor& maybe_get_output(int64_t) override { return output; }
  at::Tensor output;
};

template <class Meta>
class Inplace final : public Structured<Meta, Inplace<Meta>> {
 public:
  explicit Inplace(const at::Tensor& self) : output(self) {}
  void prepare(at::IntArrayRef sizes, at::IntArrayRef, const at::TensorOptions& options) {
    check_inplace(output, sizes, options);
  }
  const at::Tensor& maybe_get_output(int64_t) override { return output; }
  const at::Tensor& output;
};

template <class Meta>
class Out final : public Structured<Meta, Out<Meta>> {
 public:
  explicit Out(const at::Tensor& out) : output(out) {}
  void prepare(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
    resize_out(output, sizes, strides, options);
  }
  const at::Tensor& maybe_get_output(int64_t) override { return output; }
  const at::Tensor& output;
};

inline const at::Tensor* tensor_or_null(const at::Tensor& tensor) {
  return &tensor;
}
template <class T>
const at::Tensor* tensor_or_null(const T&) {
  return nullptr;
}

// TensorIterator checks devices itself (and lets 0-d CPU tensors pass); other ops need the check that PyTorch generates
// for its own backends.
template <class Meta, class... Args>
void check_devices(const char* op, const Args&... args) {
  if constexpr (!std::is_base_of_v<at::TensorIteratorBase, Meta>) {
    check_same_device(op, {tensor_or_null(args)...});
  }
}

template <class Meta, auto Launch, class Op, class Schema>
struct StructuredCalls;

template <class Meta, auto Launch, class Op, class R, class... Args>
struct StructuredCalls<Meta, Launch, Op, R(Args...)> {
  static at::Tensor functional(no_symint<Args>... args) {
    check_devices<Meta>(Op::name, args...);
    Functional<Meta> op;
    op.meta(args...);
    Launch(op, op.output, args...);
    return std::move(op.output);
  }

  static at::Tensor& inplace(no_symint<Args>... args) {
    check_devices<Meta>(Op::name, args...);
    auto& self = std::get<0>(std::tie(args...));
    Inplace<Meta> op(self);
    op.meta(args...);
    Launch(op, op.output, args...);
    return self;
  }

  // The schema's last argument is the output.
  static at::Tensor& out(no_symint<Args>... args) {
    check_devices<Meta>(Op::name, args...);
    auto all = std::tie(args...);
    return out_impl(all, std::make_index_sequence<sizeof...(Args) - 1>());
  }

 private:
  template <class Tuple, size_t... I>
  static at::Tensor& out_impl(Tuple& all, std::index_sequence<I...>) {
    at::Tensor& result = std::get<sizeof...(I)>(all);
    Out<Meta> op(result);
    op.meta(std::get<I>(all)...);
    Launch(op, op.output, std::get<I>(all)...);
    return result;
  }
};

template <class Meta, auto Launch>
class structured {
 public:
  explicit structured(torch::Library& m) : m_(m) {}
  template <class Op>
  structured& functional() {
    register_native<Op, StructuredCalls<Meta, Launch, Op, typename Op::schema>::functional>(m_);
    return *this;
  }
  template <class Op>
  structured& inplace() {
    register_native<Op, StructuredCalls<Meta, Launch, Op, typename Op::schema>::inplace>(m_);
    return *this;
  }
  template <class Op>
  structured& out() {
    register_native<Op, StructuredCalls<Meta, Launch, Op, typename Op::schema>::out>(m_);
    return *this;
  }

 private:
  torch::Library& m_;
};

}  // namespace torch_npu
