// What the ops of torch.ops.npu share. Each has a command or two of its own (PrivateUse1), a composition of PyTorch's
// ops that says what it means (every other device, and drivers without the command), a shape function (Meta) and a
// gradient.
#pragma once
#include <ATen/FuncTorchTLS.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "csrc/aten/same_device.h"
#include "csrc/core/launch.h"

namespace torch_npu {

// An op of this library by its name, to be kept in a static: static const auto op = npu_op<Signature>("npu::name").
template <class Signature>
auto npu_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// The kernel, or the composition where the driver does not take a command.
template <auto Native, auto Composition>
struct Either;
template <class R, class... Args, R (*Native)(Args...), R (*Composition)(Args...)>
struct Either<Native, Composition> {
  static R call(Args... args) {
    try {
      return Native(args...);
    } catch (const Unsupported&) {
      return Composition(args...);
    }
  }
};

// torch.func's transforms take no C++ autograd function: they are given the composition, which they can take apart.
inline bool in_functorch() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

inline bool wants_grad(const at::Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad();
}

inline at::Tensor given(const std::optional<at::Tensor>& tensor) {
  return tensor.value_or(at::Tensor());
}

inline void check_floating(const char* op, const char* name, const at::Tensor& tensor) {
  TORCH_CHECK_TYPE(at::isFloatingType(tensor.scalar_type()), op, ": expected ", name, " of a floating type, got ",
                   tensor.scalar_type());
}

inline void check_same_type(const char* op, const char* name, const at::Tensor& tensor, const char* of_name,
                            const at::Tensor& of) {
  TORCH_CHECK_TYPE(tensor.scalar_type() == of.scalar_type(), op, ": expected ", name, " of the type of ", of_name, ", ",
                   of.scalar_type(), ", got ", tensor.scalar_type());
}

}  // namespace torch_npu
