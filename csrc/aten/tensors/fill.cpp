// fill_ and zero_: one COPY with an immediate operand, which carries the bits of the element whatever its type.
#include <ATen/ScalarOps.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zero_ops.h>

#include <cstring>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/registration.h"

namespace torch_npu::fill_cpp {
namespace {

void fill_bits(const at::Tensor& self, uint64_t bits, const char* label) {
  const npu_dtype type = bits_dtype(self.element_size(), label);
  if (self.is_non_overlapping_and_dense()) {
    Command command(NPU_COPY, label, {self.numel()});
    command.set_device(self.device().index());
    command.add(self.data_ptr(), type).stride[0] = 1;
    command.immediate(type, bits);
    return command.run();
  }
  // Dimensions come out sorted and merged; what is left beyond eight of them is for the fallback.
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)
                  .check_all_same_dtype(false)
                  .add_output(self)
                  .resize_outputs(false)
                  .build();
  Command command(NPU_COPY, label, iter);
  command.add(iter, 0, type);
  command.immediate(type, bits);
  command.run();
}

at::Tensor& fill_scalar(at::Tensor& self, const at::Scalar& value) {
  if (self.numel() == 0) {
    return self;
  }
  // Conversion and its overflow error are PyTorch's own.
  const at::Tensor number = at::detail::scalar_tensor_static(value, self.scalar_type(), at::kCPU);
  if (self.element_size() > 8) {  // complex128: two doubles
    at::Tensor parts = at::view_as_real(self);
    const double* values = static_cast<const double*>(number.const_data_ptr());
    for (int64_t i = 0; i < 2; ++i) {
      uint64_t bits;
      std::memcpy(&bits, values + i, sizeof(bits));
      fill_bits(parts.select(-1, i), bits, "aten::fill_");
    }
    return self;
  }
  uint64_t bits = 0;
  std::memcpy(&bits, number.const_data_ptr(), self.element_size());
  fill_bits(self, bits, "aten::fill_");
  return self;
}

at::Tensor& fill_tensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.dim(),
              " dimensions.");
  if (value.device() != self.device()) {
    return fill_scalar(self, value.item());
  }
  // The source may be an element of self: copy_ sees partial overlap, so detach it first.
  return self.copy_(value.clone());
}

at::Tensor& zero(at::Tensor& self) {
  if (self.numel() == 0) {
    return self;
  }
  if (self.element_size() > 8) {
    fill_bits(at::view_as_real(self), 0, "aten::zero_");
  } else {
    fill_bits(self, 0, "aten::zero_");
  }
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::fill__Scalar, fill_scalar>(m);
  register_native<at::_ops::fill__Tensor, fill_tensor>(m);
  register_native<at::_ops::zero_, zero>(m);
}

}  // namespace
}  // namespace torch_npu::fill_cpp
