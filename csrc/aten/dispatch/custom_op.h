// How an op of torch.ops.npu is made: define() takes its schema, a command or two of its own (PrivateUse1), a
// composition of PyTorch's ops that says what it means (every other device, drivers without the command, torch.func,
// forward-mode derivatives), a shape function (Meta), and how it is differentiated and cast.
#pragma once
#include <ATen/FuncTorchTLS.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>
#include <vector>

#include "csrc/aten/dispatch/optional.h"
#include "csrc/aten/dispatch/same_device.h"
#include "csrc/core/launch/launch.h"

namespace torch_npu {

// An op of this library by its name, to be kept in a static: static const auto op = npu_op<Signature>("npu::name").
template <class Signature>
auto npu_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// Arguments or results of a schema, by their places: places(0, 2) is the first and the third.
using Places = uint32_t;
template <class... Place>
constexpr Places places(Place... place) {
  return ((Places{1} << place) | ... | Places{0});
}

// A call of an op whose gradient is asked for.
class BackwardCall {
 public:
  // What reached a result; undefined if nothing did.
  const at::Tensor& grad(size_t result) const { return grads_.at(result); }
  // Undefined if it was None, or if no gradient that is asked for needs it.
  const at::Tensor& argument(size_t place) const { return arguments_.at(place); }
  const at::Tensor& result(size_t place) const { return results_.at(place); }
  // An argument that is no tensor.
  template <class T>
  T value(size_t place) const {
    return values_->at(place).template to<T>();
  }
  bool wants(size_t place) const { return wanted_ >> place & 1; }
  void give(size_t place, at::Tensor grad) { given_.at(place) = std::move(grad); }

 private:
  friend struct CustomNode;
  std::vector<at::Tensor> grads_, arguments_, results_, given_;
  const std::vector<c10::IValue>* values_ = nullptr;
  Places wanted_ = 0;
};

// The gradient of one argument, and the arguments and results that it is computed from. Nothing else is kept.
struct GradientOf {
  int argument;
  Places arguments = 0, results = 0;
};

struct CustomGradient {
  // Calls give() for the arguments that are wanted. To be differentiable itself it calls ops that are, as those of
  // define() without a gradient of their own are: through the composition.
  void (*run)(BackwardCall& call) = nullptr;
  std::vector<GradientOf> of;
  Places results = places(0);  // the differentiable ones
};

struct CustomOptions {
  CustomGradient gradient = {};
  Places lower_precision = 0;  // arguments that autocast casts
  bool constant = false;       // no gradient: integers and the like
};

// custom_op.cpp: the keys that are the same code for every op.
void register_boxed(torch::Library& m, const std::string& name, CustomOptions options);

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

template <auto Native, auto Composition, class Meta>
void define(torch::Library& m, const std::string& schema, Meta* meta, CustomOptions options = {}) {
  const std::string name = schema.substr(0, schema.find('('));
  m.def(schema.c_str());
  m.impl(name.c_str(), torch::dispatch(c10::DispatchKey::PrivateUse1, Either<Native, Composition>::call));
  m.impl(name.c_str(), torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, Composition));
  m.impl(name.c_str(), torch::dispatch(c10::DispatchKey::FuncTorchBatched, Composition));
  m.impl(name.c_str(), torch::dispatch(c10::DispatchKey::Meta, meta));
  register_boxed(m, name, std::move(options));
}

inline bool in_functorch() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

inline void check_floating(const char* op, const char* name, const at::Tensor& tensor) {
  TORCH_CHECK_TYPE(tensor.defined(), op, ": expected ", name, " to be a tensor, got None");
  TORCH_CHECK_TYPE(at::isFloatingType(tensor.scalar_type()), op, ": expected ", name, " of a floating type, got ",
                   tensor.scalar_type());
}

inline void check_same_type(const char* op, const char* name, const at::Tensor& tensor, const char* of_name,
                            const at::Tensor& of) {
  TORCH_CHECK_TYPE(tensor.scalar_type() == of.scalar_type(), op, ": expected ", name, " of the type of ", of_name, ", ",
                   of.scalar_type(), ", got ", tensor.scalar_type());
}

}  // namespace torch_npu
