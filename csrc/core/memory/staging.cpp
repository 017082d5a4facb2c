#include "csrc/core/memory/staging.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/ops/as_strided_native.h>

#include "csrc/core/device/capture.h"
#include "csrc/core/device/stream.h"
#include "csrc/core/memory/host_allocator.h"
#include "csrc/core/memory/sanitizer_calls.h"

namespace torch_npu {
namespace {

// May the driver use the host memory after the call? Memory pinned by another driver is plain memory for this one.
bool is_pinned(c10::DeviceIndex device, const at::Tensor* tensor, bool non_blocking) {
  return non_blocking && tensor != nullptr && is_pinned_for(tensor->const_data_ptr(), device);
}

// The same; if so, the block is kept alive until the copy is done.
bool keep_pinned(c10::DeviceIndex device, const at::Tensor* tensor, bool non_blocking) {
  if (!is_pinned(device, tensor, non_blocking)) {
    return false;
  }
  const c10::DataPtr& data = tensor->storage().data_ptr();
  return at::getHostAllocator(c10::kPrivateUse1)->record_event(data.get(), data.get_context(), current_stream(device));
}

}  // namespace

int64_t extent(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return 0;
  }
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    last += (tensor.size(d) - 1) * tensor.stride(d);
  }
  return last + 1;
}

void write_bytes(c10::DeviceIndex index, npu_addr dst, const void* src, uint64_t size, const at::Tensor* keep,
                 bool non_blocking) {
  if (size == 0) {
    return;
  }
  const Device& device = torch_npu::device(index);  // throws in a forked child
  npu_stream* stream = current_stream_handle(index);
  if (any_capture() && capture_write(stream, dst, src, size, is_pinned(index, keep, non_blocking))) {
    return;
  }
  const uint32_t flags = keep_pinned(index, keep, non_blocking) ? NPU_COPY_PINNED : 0;
  check(device, device.api->copy_to_device(stream, dst, src, size, flags), "copying from host to device");
}

void read_bytes(c10::DeviceIndex index, void* dst, npu_addr src, uint64_t size, const at::Tensor* keep,
                bool non_blocking) {
  if (size == 0) {
    return;
  }
  const Device& device = torch_npu::device(index);  // throws in a forked child
  npu_stream* stream = current_stream_handle(index);
  if (any_capture() && capture_read(stream, dst, src, size, is_pinned(index, keep, non_blocking))) {
    return;
  }
  const uint32_t flags = keep_pinned(index, keep, non_blocking) ? NPU_COPY_PINNED : 0;
  check(device, device.api->copy_to_host(stream, dst, src, size, flags), "copying from device to host");
  if (flags == 0) {
    check_deferred(device, device.api->stream_synchronize(stream), "copying from device to host");
  }
}

void set_bits_like(const at::Tensor& tensor, const at::Tensor& like) {
  if (like.is_conj() != tensor.is_conj()) {
    tensor._set_conj(like.is_conj());
  }
  if (like.is_neg() != tensor.is_neg()) {
    tensor._set_neg(like.is_neg());
  }
}

namespace {

// `whole`: what lies between the elements is wanted, and not the elements.
at::Tensor read_span(const at::Tensor& tensor, bool whole) {
  const int64_t elements = extent(tensor);
  sanitizer::Elements only;
  if (!whole) only.add(tensor.const_data_ptr(), tensor.sizes(), tensor.strides(), tensor.element_size());
  at::Tensor flat(at::detail::empty_cpu({elements}, tensor.scalar_type()));
  read_bytes(tensor.device().index(), flat.mutable_data_ptr(), address_of(tensor.const_data_ptr()),
             static_cast<uint64_t>(elements) * tensor.element_size());
  at::Tensor host = at::native::as_strided_tensorimpl(flat, tensor.sizes(), tensor.strides());
  set_bits_like(host, tensor);
  return host;
}

}  // namespace

at::Tensor read_to_host(const at::Tensor& tensor) {
  return read_span(tensor, false);
}

void write_from_host(const at::Tensor& tensor, const at::Tensor& host) {
  at::Tensor image;
  if (tensor.is_non_overlapping_and_dense()) {
    image = at::Tensor(at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
    set_bits_like(image, tensor);
  } else {
    image = read_span(tensor, true);  // what lies between the elements must survive
  }
  image.copy_(host);
  sanitizer::Elements only;
  only.add(tensor.const_data_ptr(), tensor.sizes(), tensor.strides(), tensor.element_size());
  write_bytes(tensor.device().index(), address_of(tensor.mutable_data_ptr()), image.const_data_ptr(),
              static_cast<uint64_t>(extent(tensor)) * tensor.element_size());
}

}  // namespace torch_npu
