// Autograd and autocast of the ops that custom_op.h defines: boxed, so that they are compiled once and not per op.
#include "csrc/aten/dispatch/custom_op.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <mutex>
#include <type_traits>

namespace torch_npu {

using at::Tensor;
using torch::autograd::variable_list;
using torch::jit::Stack;

struct CustomNode final : torch::autograd::Node {
  struct Kept {
    bool is_result;
    size_t place;
    torch::autograd::SavedVariable variable;
  };
  const CustomGradient* gradient = nullptr;
  std::string label;
  std::vector<c10::IValue> values;  // the arguments, None in the place of tensors
  std::vector<size_t> edges;        // the argument behind each edge
  std::vector<Kept> kept;
  size_t results = 0;

  std::string name() const override { return label; }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list out(edges.size());
    BackwardCall call;
    call.grads_.resize(results);
    bool any = false;
    for (size_t result = 0, next = 0; result < results; ++result) {
      if (!(gradient->results >> result & 1)) continue;
      call.grads_[result] = std::move(grads.at(next++));
      any |= call.grads_[result].defined();
    }
    if (!any) return out;
    call.arguments_.resize(values.size());
    call.results_.resize(results);
    call.given_.resize(values.size());
    call.values_ = &values;
    for (const Kept& one : kept) {
      (one.is_result ? call.results_ : call.arguments_)[one.place] = one.variable.unpack(getptr());
    }
    for (size_t i = 0; i < edges.size(); ++i) {
      if (task_should_compute_output(i)) call.wanted_ |= places(edges[i]);
    }
    gradient->run(call);
    for (size_t i = 0; i < edges.size(); ++i) out[i] = std::move(call.given_[edges[i]]);
    return out;
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Kept& one : kept) one.variable.reset_data();
  }
};

namespace {

// torch 2.13 counts references inside of the node, earlier ones beside it.
using NodePointer = decltype(torch::autograd::Edge::function);
template <class T, class Pointer = NodePointer>
auto make_node() {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>) {
    return std::shared_ptr<T>(new T(), [](auto* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<T>();
  }
}

// npu::npu_add_rms_norm: NpuAddRmsNormBackward.
std::string node_name(const std::string& op) {
  std::string name;
  bool capital = true;
  for (const char c : op.substr(op.rfind(':') + 1)) {
    if (c != '_') name += capital ? static_cast<char>(std::toupper(c)) : c;
    capital = c == '_';
  }
  return name + "Backward";
}

class AutogradKernel final : public c10::OperatorKernel {
 public:
  explicit AutogradKernel(CustomOptions options) : options_(std::move(options)) {
    for (const GradientOf& one : options_.gradient.of) differentiable_ |= places(one.argument);
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    const size_t count = op.schema().arguments().size();
    const auto arguments = at::ArrayRef<c10::IValue>(*stack).slice(stack->size() - count);
    const bool recording = c10::GradMode::is_enabled();
    Places wanted = 0;
    bool tangents = false;
    for (size_t i = 0; i < count; ++i) {
      if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
      const Tensor& tensor = arguments[i].toTensor();
      if (recording && tensor.requires_grad()) wanted |= places(i);
      tangents |= tensor._fw_grad(/*level=*/0).defined();
    }
    const bool own = options_.gradient.run != nullptr;
    if (in_functorch() || tangents || (wanted && !own && !options_.constant)) {
      // The CPU's kernel is the composition, and its ops know what to do with tensors of any kind.
      return op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    }
    wanted &= differentiable_;
    if (!wanted) return below(op, keys, stack);

    auto node = make_node<CustomNode>();
    Places kept_results = 0;
    prepare(*node, op, arguments, wanted, kept_results);
    below(op, keys, stack);
    const auto results = at::ArrayRef<c10::IValue>(*stack).slice(stack->size() - node->results);
    for (size_t i = 0; i < results.size(); ++i) {
      const bool differentiable = options_.gradient.results >> i & 1;
      if (differentiable) torch::autograd::set_history(results[i].toTensor(), node);
      if (kept_results >> i & 1) keep(*node, true, i, results[i].toTensor(), differentiable);
    }
  }

 private:
  static void below(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    at::AutoDispatchBelowADInplaceOrView guard;
    op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
  }

  static void keep(CustomNode& node, bool is_result, size_t place, const Tensor& tensor, bool own_result) {
    node.kept.push_back({is_result, place, torch::autograd::SavedVariable(tensor, own_result)});
  }

  void prepare(CustomNode& node, const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments, Places wanted,
               Places& kept_results) const {
    node.gradient = &options_.gradient;
    node.label = node_name(op.schema().name());
    node.results = op.schema().returns().size();
    Places kept = 0;
    for (const GradientOf& one : options_.gradient.of) {
      if (!(wanted & places(one.argument))) continue;
      kept |= one.arguments;
      kept_results |= one.results;
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!arguments[i].isTensor()) {
        node.values.push_back(arguments[i]);
        continue;
      }
      node.values.emplace_back();
      const Tensor& tensor = arguments[i].toTensor();
      if (!tensor.defined()) continue;
      if (kept >> i & 1) keep(node, false, i, tensor, false);
      if (wanted >> i & 1) {
        node.edges.push_back(i);
        node.add_next_edge(torch::autograd::impl::gradient_edge(tensor));
      }
    }
  }

  CustomOptions options_;
  Places differentiable_ = 0;
};

class AutocastKernel final : public c10::OperatorKernel {
 public:
  AutocastKernel(c10::DeviceType device, Places arguments) : device_(device), arguments_(arguments) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    c10::impl::ExcludeDispatchKeyGuard no_autocast(at::autocast::get_autocast_dispatch_key_from_device_type(device_));
    const auto type = at::autocast::get_autocast_dtype(device_);
    const size_t count = op.schema().arguments().size();
    for (size_t i = 0; i < count; ++i) {
      c10::IValue& value = (*stack)[stack->size() - count + i];
      if (arguments_ >> i & 1 && value.isTensor()) {
        value = at::autocast::cached_cast(type, value.toTensor(), device_);
      }
    }
    op.callBoxed(stack);
  }

 private:
  c10::DeviceType device_;
  Places arguments_;
};

}  // namespace

void register_boxed(torch::Library& m, const std::string& name, CustomOptions options) {
  const auto boxed = [&](c10::DispatchKey key, auto kernel) {
    m.impl(name.c_str(), torch::dispatch(key, torch::CppFunction::makeFromBoxedFunctor(std::move(kernel))));
  };
  if (const Places cast = options.lower_precision) {
    boxed(c10::DispatchKey::AutocastPrivateUse1, std::make_unique<AutocastKernel>(c10::kPrivateUse1, cast));
    boxed(c10::DispatchKey::AutocastCPU, std::make_unique<AutocastKernel>(c10::kCPU, cast));
  }
  boxed(c10::DispatchKey::Autograd, std::make_unique<AutogradKernel>(std::move(options)));
}

}  // namespace torch_npu
