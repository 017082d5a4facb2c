// Copies within one device.
#pragma once
#include <ATen/core/Tensor.h>

namespace torch_npu {

// True if the device's driver says that it has the COPY command. Whether it takes a given copy shows at submit.
bool has_copy_command(c10::DeviceIndex device);

// dst <- src: same device, same sizes, no partial overlap; any strides, dtypes, conj and neg bits. One command in
// nearly every case; where the driver has none for it, through the CPU, counted as a fallback of aten::copy_.
void copy_on_device(const at::Tensor& dst, const at::Tensor& src);

}  // namespace torch_npu
