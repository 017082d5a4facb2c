// An op without an npu kernel runs on the CPU: arguments go there, the op runs, what it wrote and what it returns come
// back. Done here rather than by PyTorch's cpu_fallback, which takes the device of the result from the first tensor
// (wrong for `1 - x`), copies each argument for itself (arguments that share memory no longer do), knows no
// generators, and fakes views.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <unordered_map>

#include "csrc/aten/dispatch/registration.h"
#include "csrc/aten/fallback/fallback.h"
#include "csrc/aten/fallback/fallback_layouts.h"
#include "csrc/aten/fallback/fallback_random.h"
#include "csrc/core/device/device.h"
#include "csrc/core/memory/staging.h"
#include "csrc/core/memory/staging_memory.h"
#include "csrc/core/memory/storage.h"
#include "csrc/core/observe/debug.h"
#include "csrc/core/observe/sanitizer/sanitizer.h"

namespace torch_npu {
namespace {

using TensorRefs = std::vector<const at::Tensor*>;

// Ops whose CPU tensors of one or more dimensions are meant: indices that PyTorch takes from either device, and
// lengths, offsets and scalar lists that live on the host by definition.
bool takes_cpu_tensors(std::string_view name) {
  for (std::string_view prefix :
       {"aten::index", "aten::_index_put_impl", "aten::_unsafe_index", "aten::_nested", "aten::_foreach",
        "aten::_fused", "aten::_pack_padded_sequence", "aten::_pad_packed_sequence", "aten::_ctc_loss",
        "aten::histogramdd", "aten::_histogramdd", "aten::repeat_interleave"}) {
    if (name.starts_with(prefix)) {
      // index_add, index_select and friends are kernels over one device; plain indexing is not.
      if (prefix == "aten::index") {
        return name == "aten::index" || name == "aten::index_put" || name == "aten::index_put_";
      }
      return true;
    }
  }
  return false;
}

// Batch norm updates its running statistics while training, which its schema does not say.
bool updates_unannounced(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values, size_t argument) {
  const std::string& op = schema.name();
  if (op != "aten::native_batch_norm" && op != "aten::batch_norm_update_stats") return false;
  const std::string& name = schema.arguments()[argument].name();
  if (name != "running_mean" && name != "running_var") return false;
  const std::optional<int> training = schema.argumentIndexWithName("training");
  return !training || values[*training].toBool();
}

// The arguments of one call: the originals, and their images on the host. Tensors that share a storage on the device
// share one on the host, with the same strides, so aliasing between arguments is what it was.
class HostCall {
 public:
  HostCall(const c10::OperatorHandle& op, torch::jit::Stack* stack)
      : op_(op),
        schema_(op.schema()),
        stack_(stack),
        begin_(stack->size() - schema_.arguments().size()),
        originals_(stack->begin() + static_cast<int64_t>(begin_), stack->end()) {}

  void run() {
    // Nothing in here records gradients: not the kernel, nor the copies around it.
    at::AutoDispatchBelowADInplaceOrView below;
    refuse_views();
    find_device();
    const std::string name = c10::toString(schema_.operator_name());
    fallback::check(name);
    const debug::FallbackScope logged(name);
    bring_tensors();
    replace_arguments();
    call();  // may refuse its arguments, in PyTorch's words
    fallback::note(name);
    write_back();
    replace_returns();
  }

 private:
  struct Group {
    int64_t low = std::numeric_limits<int64_t>::max();  // bytes in the storage
    int64_t high = 0;
    c10::Storage host;
  };

  template <class F>
  void for_each_tensor(const F& visit) const {
    for (size_t i = 0; i < originals_.size(); ++i) {
      const c10::IValue& value = originals_[i];
      if (value.isTensor()) {
        visit(i, value.toTensor());
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) visit(i, tensor);
      } else if (value.isOptionalTensorList()) {
        for (const auto& tensor : value.toOptionalTensorVector()) {
          if (tensor) visit(i, *tensor);
        }
      }
    }
  }

  bool is_written(size_t argument) const {
    const c10::AliasInfo* alias = schema_.arguments()[argument].alias_info();
    return (alias != nullptr && alias->isWrite()) || updates_unannounced(schema_, originals_, argument);
  }

  void refuse_views() const {
    for (const c10::Argument& result : schema_.returns()) {
      const c10::AliasInfo* alias = result.alias_info();
      TORCH_CHECK_NOT_IMPLEMENTED(
          alias == nullptr || alias->isWrite(), schema_.operator_name(),
          " is a view op that has no npu kernel; it cannot run on the CPU, because a view shares "
          "memory and a copy does not. Use its _copy form or clone().");
    }
  }

  // Where results go: the device= argument, else the device of the npu tensors, which must be one.
  void find_device() {
    std::optional<c10::Device> npu, cpu;
    for_each_tensor([&](size_t i, const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      const c10::Device device = tensor.device();
      if (device.is_privateuseone()) {
        if (npu && *npu != device) refuse_devices(*npu, device);
        npu = device;
      } else if (tensor.dim() > 0 || is_written(i)) {
        if (!cpu) cpu = device;
      }
    });
    if (npu && cpu && !takes_cpu_tensors(schema_.name())) refuse_devices(*npu, *cpu);
    target_ = npu ? npu : cpu;
    for (const c10::IValue& value : originals_) {
      if (value.isDevice()) target_ = value.toDevice();
    }
    if (!target_) target_ = c10::Device(c10::kPrivateUse1);
    if (target_->is_privateuseone() && !target_->has_index()) target_->set_index(current_device());
  }

  [[noreturn]] void refuse_devices(c10::Device a, c10::Device b) const {
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", a, " and ", b,
                "! (when calling ", schema_.operator_name(), ")");
  }

  void bring_tensors() {
    std::unordered_map<c10::StorageImpl*, Group> groups;
    TensorRefs refs;
    std::vector<at::Tensor> owned;
    for_each_tensor([&](size_t, const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.is_privateuseone() || images_.count(tensor.unsafeGetTensorImpl())) return;
      owned.push_back(tensor);
      images_.emplace(tensor.unsafeGetTensorImpl(), at::Tensor());
      if (!is_plain_layout(tensor)) return;
      const auto item = static_cast<int64_t>(tensor.element_size());
      Group& group = groups[tensor.storage().unsafeGetStorageImpl()];
      if (tensor.numel() == 0) return;  // its offset may lie anywhere, also outside of the storage
      // Aligned to the largest element, so that every view of the image is aligned as on the device.
      group.low = std::min(group.low, tensor.storage_offset() * item / 16 * 16);
      group.high = std::max(group.high, (tensor.storage_offset() + extent(tensor)) * item);
    });
    for (auto& [storage, group] : groups) {
      const int64_t bytes = std::max<int64_t>(group.high - group.low, 0);
      group.host = c10::Storage(c10::Storage::use_byte_size_t(), bytes, staging_allocator(), true);
      if (bytes > 0 && storage->data() != nullptr) {
        sanitizer::Elements read;
        if (sanitizer::is_on()) add_elements_read(read, storage);
        read_bytes(storage->device().index(), group.host.mutable_data(),
                   address_of(static_cast<const char*>(storage->data()) + group.low), bytes);
      }
    }
    for (const at::Tensor& tensor : owned) {
      at::Tensor& image = images_[tensor.unsafeGetTensorImpl()];
      if (!is_plain_layout(tensor)) {
        image = layout_to_cpu(tensor);
        // Some CPU kernels keep what the gradient needs only if there will be one.
        if (tensor.requires_grad()) image.set_requires_grad(true);
        continue;
      }
      const Group& group = groups[tensor.storage().unsafeGetStorageImpl()];
      image = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(group.host),
                                                       c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
      auto* impl = image.unsafeGetTensorImpl();
      const auto item = static_cast<int64_t>(tensor.element_size());
      const int64_t offset = tensor.numel() == 0 ? 0 : (tensor.storage_offset() * item - group.low) / item;
      impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), offset);
      if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
      set_bits_like(image, tensor);
      if (tensor.requires_grad()) image.set_requires_grad(true);
    }
  }

  // What the op surely uses of a storage: arguments that it does not write. Of the others it may only want the shape.
  void add_elements_read(sanitizer::Elements& read, const c10::StorageImpl* storage) const {
    for_each_tensor([&](size_t argument, const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.is_privateuseone() || !is_plain_layout(tensor) || is_written(argument)) return;
      if (tensor.storage().unsafeGetStorageImpl() != storage) return;
      read.add(tensor.const_data_ptr(), tensor.sizes(), tensor.strides(), tensor.element_size());
    });
  }

  const at::Tensor& image_of(const at::Tensor& tensor) const {
    auto it = images_.find(tensor.unsafeGetTensorImpl());
    return it == images_.end() ? tensor : it->second;
  }

  void replace_arguments() {
    bool has_generator = false;
    for (size_t i = 0; i < originals_.size(); ++i) {
      const c10::IValue& value = originals_[i];
      c10::IValue& slot = (*stack_)[begin_ + i];
      const c10::Argument& argument = schema_.arguments()[i];
      if (value.isTensor()) {
        if (value.toTensor().defined()) slot = image_of(value.toTensor());
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> images;
        for (const at::Tensor& tensor : value.toTensorVector()) {
          images.push_back(tensor.defined() ? image_of(tensor) : tensor);
        }
        slot = images;
      } else if (value.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> images;
        for (const auto& tensor : value.toOptionalTensorVector()) {
          images.push_back(tensor && tensor->defined() ? std::optional(image_of(*tensor)) : tensor);
        }
        slot = images;
      } else if (value.isDevice()) {
        slot = c10::Device(c10::kCPU);
      } else if (argument.name() == "pin_memory" && value.isBool()) {
        TORCH_CHECK(!value.toBool() || target_->is_cpu(), "expected a CPU tensor for pin_memory=True, got device ",
                    *target_);
      } else if (argument.type()->str().find("Generator") != std::string::npos) {
        has_generator = true;
        slot = host_generator(value);
      }
    }
    swap_default_ = !has_generator && target_->is_privateuseone() && op_.hasTag(at::Tag::nondeterministic_seeded);
  }

  c10::IValue host_generator(const c10::IValue& value) const {
    if (!target_->is_privateuseone()) return value;
    std::optional<at::Generator> generator;
    if (value.isGenerator()) {
      generator = value.toGenerator();
      TORCH_CHECK(!generator->defined() || generator->device().is_privateuseone(), "Expected a '", target_->type(),
                  "' device type for generator but found '", generator->device().type(), "'");
    }
    return cpu_generator_for(generator, *target_);
  }

  void call() {
    // The backend keys of the images; everything above them (autograd, autocast, ...) has had its turn.
    c10::DispatchKeySet keys;
    for (const c10::IValue& value : torch::jit::last(stack_, originals_.size())) {
      const auto add = [&](const at::Tensor& tensor) {
        if (tensor.defined()) keys = keys | tensor.key_set();
      };
      if (value.isTensor()) {
        add(value.toTensor());
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
      } else if (value.isOptionalTensorList()) {
        for (const auto& tensor : value.toOptionalTensorVector()) {
          if (tensor) add(*tensor);
        }
      }
    }
    keys = backend_keys(keys);
    std::optional<DefaultGeneratorSwap> swap;
    if (swap_default_) {
      swap.emplace(cpu_generator_for(std::nullopt, *target_));
    }
    op_.redispatchBoxed(keys, stack_);
  }

  void write_back() const {
    for_each_tensor([&](size_t argument, const at::Tensor& tensor) {
      if (!tensor.defined() || !is_written(argument)) return;
      const auto it = images_.find(tensor.unsafeGetTensorImpl());
      if (it == images_.end()) return;
      const at::Tensor& image = it->second;
      if (!is_plain_layout(tensor) || !is_plain_layout(image)) {
        layout_write_back(tensor, image);
        return;
      }
      // The op may have resized an out= argument; it has warned if it should.
      resize_tensor(tensor.unsafeGetTensorImpl(), image.sizes(), image.strides());
      if (tensor.numel() > 0) tensor.copy_(image);
    });
  }

  void replace_returns() {
    const size_t count = schema_.returns().size();
    const size_t first = stack_->size() - count;
    for (size_t i = 0; i < count; ++i) {
      c10::IValue& slot = (*stack_)[first + i];
      const c10::AliasInfo* alias = schema_.returns()[i].alias_info();
      if (alias != nullptr) {
        slot = aliased_argument(*alias, slot);
      } else if (slot.isTensor()) {
        slot = result(slot.toTensor());
      } else if (slot.isTensorList()) {
        c10::List<at::Tensor> results;
        for (const at::Tensor& tensor : slot.toTensorVector()) results.push_back(result(tensor));
        slot = results;
      }
    }
  }

  // In-place and out= ops return the argument itself.
  c10::IValue aliased_argument(const c10::AliasInfo& alias, const c10::IValue& returned) const {
    for (size_t i = 0; i < originals_.size(); ++i) {
      const c10::AliasInfo* other = schema_.arguments()[i].alias_info();
      if (other != nullptr && *other == alias) return originals_[i];
    }
    return returned;
  }

  at::Tensor result(const at::Tensor& tensor) const {
    if (!tensor.defined() || target_->is_cpu()) return tensor;
    for (const auto& [original, image] : images_) {
      if (image.is_same(tensor)) {
        return at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(original));
      }
    }
    return is_plain_layout(tensor) ? plain_to_npu(tensor, *target_) : layout_to_npu(tensor, *target_);
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  torch::jit::Stack* stack_;
  size_t begin_;
  std::vector<c10::IValue> originals_;
  std::unordered_map<c10::TensorImpl*, at::Tensor> images_;
  std::optional<c10::Device> target_;
  bool swap_default_ = false;
};

}  // namespace

void cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  HostCall(op, stack).run();
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
}
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
}
// PyTorch's default for a structured op comes before the fallback. It makes a result of the layout of the input and
// calls the out= form, which compressed layouts do not have; so the ops that the CPU has for them are named one by one.
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (op && name.name.starts_with("aten::") && op->hasKernelForDispatchKey(c10::DispatchKey::SparseCsrCPU) &&
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional)) {
      m.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
    }
  }
}

}  // namespace torch_npu
