#include "csrc/aten/dispatch/empty.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>

#include <optional>

#include "csrc/core/device/device.h"

namespace torch_npu {

at::Tensor make_empty(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  static c10::Allocator* const allocator = c10::GetAllocator(c10::kPrivateUse1);
  // The allocator allocates on the current device, which nearly always is the right one.
  std::optional<c10::DeviceGuard> guard;
  const c10::Device device = options.device();
  if (device.has_index() && device.index() != current_device()) [[unlikely]] {
    guard.emplace(device);
  }
  const auto dtype = c10::typeMetaToScalarType(options.dtype());
  if (strides.empty()) {
    return at::Tensor(at::detail::empty_generic(sizes, allocator, keys, dtype, options.memory_format_opt()));
  }
  return at::Tensor(at::detail::empty_strided_generic(sizes, strides, allocator, keys, dtype));
}

}  // namespace torch_npu
