// New tensors. Everything that makes a tensor on the device ends in one of these; they cost what the CPU's cost: one
// allocation and one TensorImpl.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/Allocator.h>
#include <c10/util/Optional.h>

#include "csrc/core/device/device.h"

namespace torch_npu::factories_cpp {
namespace {

// The allocator serves the current device, so a factory for another one changes it for the moment of the call.
class OnDevice {
 public:
  explicit OnDevice(std::optional<c10::Device> device) {
    const c10::DeviceIndex index = device ? device->index() : -1;
    if (index >= 0 && index != current_device()) {
      previous_ = exchange_current_device(index);
    }
  }
  ~OnDevice() {
    if (previous_ >= 0) {
      exchange_current_device(previous_);
    }
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  c10::DeviceIndex previous_ = -1;
};

void check_options(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "expected a CPU tensor for pin_memory=True, got device npu");
  TORCH_CHECK(layout.value_or(c10::kStrided) == c10::kStrided, "expected layout torch.strided for an npu tensor, got ",
              layout.value_or(c10::kStrided));
}

bool fills_new_memory() {
  const auto& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory,
                 std::optional<at::MemoryFormat> memory_format) {
  check_options(layout, pin_memory);
  OnDevice guard(device);
  at::Tensor result(at::detail::empty_generic(size, c10::GetAllocator(c10::kPrivateUse1), kKeys,
                                              c10::dtype_or_default(dtype), memory_format));
  if (fills_new_memory()) [[unlikely]] {
    at::native::fill_empty_deterministic_(result);
  }
  return result;
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  OnDevice guard(device);
  at::Tensor result(at::detail::empty_strided_generic(size, stride, c10::GetAllocator(c10::kPrivateUse1), kKeys,
                                                      c10::dtype_or_default(dtype)));
  if (fills_new_memory()) [[unlikely]] {
    at::native::fill_empty_deterministic_(result);
  }
  return result;
}

// A tensor of zeros without memory. Autograd and forward-mode differentiation make and consume them.
at::Tensor efficient_zero_tensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                                 std::optional<at::Device> device, std::optional<bool>) {
  c10::Device where = device.value_or(c10::Device(c10::kPrivateUse1));
  if (!where.has_index()) {
    where.set_index(current_device());
  }
  at::native::ZeroTensorAllocator allocator(where);
  return at::Tensor(at::detail::empty_generic(size, &allocator,
                                              kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
                                              c10::dtype_or_default(dtype), std::nullopt));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(efficient_zero_tensor));
}

}  // namespace torch_npu::factories_cpp
