#include "csrc/core/observe/sanitizer/ops.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <vector>

#include "csrc/core/device/device.h"

namespace torch_npu::sanitizer {
namespace {

std::vector<const char*>& stack() {
  static thread_local std::vector<const char*> stack;
  return stack;
}

struct Context final : at::ObserverContext {
  size_t depth;
  explicit Context(size_t depth) : depth(depth) {}
};

// Ops that look at a tensor's shape, or at where it lies, and not at its data.
bool touches_no_data(std::string_view op) {
  return op.starts_with("aten::empty") || op.starts_with("aten::new_") || op.ends_with("_like") ||
         op.starts_with("aten::is_") || op == "aten::resize_" || op.starts_with("aten::set_") ||
         op == "aten::record_stream" || op.starts_with("aten::_has_");
}

// tolist() and printing begin with it, and then read the data past PyTorch's ops.
bool precedes_a_look(std::string_view op) {
  return op == "aten::resolve_conj";
}

template <class Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  }
}

// Asked for its sizes, it would throw.
bool has_no_plain_shape(const at::Tensor& tensor) {
  return tensor.is_nested() || tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

void look_at_host(const at::RecordFunction& op) {
  const auto name = op.operator_name();
  if (!name || touches_no_data(name->name)) return;
  const auto handle = c10::Dispatcher::singleton().findSchema(*name);
  if (!handle) return;
  const auto& arguments = handle->schema().arguments();
  const auto inputs = op.inputs();
  if (inputs.size() != arguments.size()) return;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const c10::AliasInfo* alias = arguments[k].alias_info();
    if (alias && !alias->isWrite() && !precedes_a_look(name->name)) return;  // a view
    bool on_device = false;
    each_tensor(inputs[k], [&](const at::Tensor& tensor) { on_device |= tensor.is_privateuseone(); });
    if (on_device) return;  // what it does with the host's memory is a copy, which the driver is asked for
  }
  for (size_t k = 0; k < inputs.size(); ++k) {
    const c10::AliasInfo* alias = arguments[k].alias_info();
    const bool writes = alias && alias->isWrite();
    each_tensor(inputs[k], [&](const at::Tensor& tensor) {
      if (!tensor.is_cpu() || has_no_plain_shape(tensor) || !tensor.has_storage() || tensor.numel() == 0) return;
      uint64_t last = 0;
      for (int64_t d = 0; d < tensor.dim(); ++d) last += static_cast<uint64_t>((tensor.size(d) - 1) * tensor.stride(d));
      host_uses(name->name, tensor.const_data_ptr(), (last + 1) * tensor.element_size(), writes);
    });
  }
}

std::unique_ptr<at::ObserverContext> op_begins(const at::RecordFunction& op) {
  if (is_in_bad_fork()) return nullptr;  // what is known is of the parent, and locks may be held for ever
  auto& ops = stack();
  ops.push_back(op.name());
  try {
    if (has_pinned_copies()) look_at_host(op);
  } catch (const std::exception&) {
    // Arguments that cannot be looked at. The op still has to leave the stack when it ends.
  }
  return std::make_unique<Context>(ops.size());
}

void op_ends(const at::RecordFunction&, at::ObserverContext* context) {
  if (!context) return;
  auto& ops = stack();
  const size_t depth = static_cast<Context*>(context)->depth;
  if (ops.size() >= depth) ops.resize(depth - 1);  // ops inside that ended elsewhere too
}

at::CallbackHandle g_callback = at::INVALID_CALLBACK_HANDLE;

}  // namespace

void watch_ops(bool on) {
  if (on) {
    g_callback = at::addGlobalCallback(
        at::RecordFunctionCallback(op_begins, op_ends).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  } else {
    at::removeCallback(g_callback);
  }
}

std::string current_op() {
  return stack().empty() ? "" : stack().front();
}

}  // namespace torch_npu::sanitizer
