// What the source of a model compiled ahead of time for npu includes (torch_npu/compile/backend/cpp_wrapper.py).
// PyTorch looks for it below its own folder, so the path is that of its headers for other devices.
#pragma once

// AOTInductor's runtime knows the devices of PyTorch only. It is compiled with its part for devices with memory of
// their own (see cuda.h), and where it names their type, the type is npu's. So the library is told "cuda:1" for npu:1,
// which csrc/aten/compiled/aoti.cpp does.
#define USE_CUDA 1
#define aoti_torch_device_type_cuda aoti_torch_device_type_privateuse1
#include <torch/csrc/inductor/aoti_include/common.h>
#undef aoti_torch_device_type_cuda

#include <initializer_list>
#include <type_traits>

#include "torch_npu_aoti.h"

namespace torch_npu {

template <typename T>
int64_t number(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    const double wide = value;
    int64_t bits;
    static_assert(sizeof(bits) == sizeof(wide));
    __builtin_memcpy(&bits, &wide, sizeof(bits));
    return bits;
  } else {
    return static_cast<int64_t>(value);
  }
}

// Made at its first call, once for all instances of the model.
class Kernel {
 public:
  explicit Kernel(const torch_npu_kernel_spec& spec) { check(torch_npu_kernel_create(&spec, &kernel_)); }
  Kernel(const Kernel&) = delete;
  ~Kernel() { torch_npu_kernel_delete(kernel_); }

  void operator()(std::initializer_list<AtenTensorHandle> tensors, std::initializer_list<int64_t> numbers) const {
    check(torch_npu_kernel_run(kernel_, tensors.begin(), numbers.begin()));
  }

 private:
  torch_npu_kernel* kernel_ = nullptr;
};

class StreamGuard {
 public:
  StreamGuard(void* stream, int32_t device) { check(torch_npu_guard_create(stream, device, &guard_)); }
  StreamGuard(const StreamGuard&) = delete;
  ~StreamGuard() { torch_npu_guard_delete(guard_); }

 private:
  torch_npu_guard* guard_ = nullptr;
};

inline void check_layout(AtenTensorHandle tensor, const char* name, std::initializer_list<int64_t> sizes,
                         std::initializer_list<int64_t> strides) {
  check(torch_npu_check_layout(tensor, name, static_cast<int64_t>(sizes.size()), sizes.begin(), strides.begin()));
}

}  // namespace torch_npu
