// Moving bytes between host and device. No types, no strides: those are the callers' business (copy.cpp, fallback.cpp).
#pragma once
#include <ATen/core/Tensor.h>

#include "csrc/core/device/device.h"

namespace torch_npu {

inline npu_addr address_of(const void* device_pointer) {
  return reinterpret_cast<npu_addr>(device_pointer);
}

// Elements from the first to the last that the tensor touches, gaps included; 0 for an empty tensor.
int64_t extent(const at::Tensor& tensor);

// On the current stream of npu:`device`. `keep` is the CPU tensor behind the host pointer: if it is pinned and
// `non_blocking`, the call does not wait and the pinned block is kept until the copy is done; else the host memory is
// free (or filled) on return. A blocking read also reports earlier asynchronous failures of the stream.
void write_bytes(c10::DeviceIndex device, npu_addr dst, const void* src, uint64_t size,
                 const at::Tensor* keep = nullptr, bool non_blocking = false);
void read_bytes(c10::DeviceIndex device, void* dst, npu_addr src, uint64_t size, const at::Tensor* keep = nullptr,
                bool non_blocking = false);

// A CPU tensor with the sizes, strides, dtype and conj and neg bits of the npu tensor, and its data.
at::Tensor read_to_host(const at::Tensor& tensor);
// The reverse: `host` (CPU, any strides and dtype, same sizes) into the npu tensor. Does without any command.
void write_from_host(const at::Tensor& tensor, const at::Tensor& host);

// Sets the bits as they are in `like`, without touching data.
void set_bits_like(const at::Tensor& tensor, const at::Tensor& like);

}  // namespace torch_npu
