// Changing the storage behind a tensor: set_, resize_, what `tensor.data = other` asks, record_stream.
#include <ATen/Context.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/set_native.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "csrc/aten/dispatch/registration.h"
#include "csrc/core/memory/storage.h"

namespace torch_npu {

namespace {

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  const auto old_bytes = static_cast<int64_t>(impl->unsafe_storage().nbytes());
  resize_tensor(impl, size, std::nullopt);
  if (format) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format", *format);
    impl->empty_tensor_restride(*format);
  }
  const auto& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()) [[unlikely]] {
    at::native::fill_resize_deterministic_(self, old_bytes);
  }
  return self;
}

at::Tensor& set_source_storage_offset(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                                      at::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  // An absent stride argument arrives as a null array: contiguous.
  resize_tensor(self.unsafeGetTensorImpl(), size,
                stride.data() != nullptr ? at::OptionalIntArrayRef(stride) : at::OptionalIntArrayRef());
  return self;
}

at::Tensor& set_to_empty(at::Tensor& self) {
  c10::Allocator* allocator = c10::GetAllocator(c10::kPrivateUse1);
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, self.device()), allocator,
                       /*resizable=*/true);
  return set_source_storage_offset(self, std::move(storage), 0, {0}, {});
}

// May `self` become `from` in place? Module.to asks, to move a parameter and keep the object: without it a parameter
// that two modules share would be moved twice and be shared no longer. PyTorch leaves the answer to the device.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto dense = [](const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided && !tensor.is_quantized() && !tensor.is_nested() &&
           (tensor.is_cpu() || tensor.is_privateuseone());
  };
  return (dense(self) && dense(from)) || self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  c10::getDeviceAllocator(c10::kPrivateUse1)->recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_function(m, "aten::resize_", resize_);
  register_function(m, "aten::set_", set_to_empty);
  register_function(m, "aten::set_.source_Storage",
                    static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(at::native::set_));
  register_function(m, "aten::set_.source_Tensor", at::native::set_tensor_);
  register_function(m, "aten::set_.source_Storage_storage_offset", set_source_storage_offset);
  register_function(m, "aten::_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
  register_function(m, "aten::record_stream", record_stream);
}

}  // namespace torch_npu
