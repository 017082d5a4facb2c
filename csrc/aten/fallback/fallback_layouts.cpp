#include "csrc/aten/fallback/fallback_layouts.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include "csrc/core/memory/staging.h"

namespace torch_npu {
namespace {

[[noreturn]] void refuse(const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "expected a tensor that npu can hold, strided or sparse, got ",
                              tensor.is_quantized() ? "a quantized one"
                              : tensor.is_nested()  ? "a nested one"
                                                    : c10::str("one of layout ", tensor.layout()));
}

// What would make or use a quantized tensor on the device.
void refuse_quantized(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, c10::toString(op.operator_name()),
                              ": npu cannot hold quantized tensors (of dtype qint8, quint8, ...); keep them on the "
                              "CPU, or use integer tensors with a scale of their own (torch_npu.quantization)");
}
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_quantized>());
}

bool is_compressed(at::Layout layout) {
  return layout == at::kSparseCsr || layout == at::kSparseCsc || layout == at::kSparseBsr || layout == at::kSparseBsc;
}

at::Tensor rebuild(const at::Tensor& tensor, c10::Device device) {
  if (tensor.layout() == at::kSparse) {
    at::Tensor out = at::_sparse_coo_tensor_unsafe(tensor._indices().to(device), tensor._values().to(device),
                                                   tensor.sizes(), tensor.options().device(device));
    return out._coalesced_(tensor.is_coalesced());
  }
  if (is_compressed(tensor.layout())) {
    const bool rows = tensor.layout() == at::kSparseCsr || tensor.layout() == at::kSparseBsr;
    return at::_sparse_compressed_tensor_unsafe((rows ? tensor.crow_indices() : tensor.ccol_indices()).to(device),
                                                (rows ? tensor.col_indices() : tensor.row_indices()).to(device),
                                                tensor.values().to(device), tensor.sizes(),
                                                tensor.options().device(device));
  }
  refuse(tensor);
}

}  // namespace

bool is_plain_layout(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && !tensor.is_quantized() && !tensor.is_nested();
}

c10::DispatchKeySet backend_keys(c10::DispatchKeySet keys) {
  c10::DispatchKey layout = c10::DispatchKey::CPU;
  if (keys.has(c10::DispatchKey::SparseCPU)) {
    layout = c10::DispatchKey::SparseCPU;
  } else if (keys.has(c10::DispatchKey::SparseCsrCPU)) {
    layout = c10::DispatchKey::SparseCsrCPU;
  } else if (keys.has(c10::DispatchKey::QuantizedCPU)) {
    layout = c10::DispatchKey::QuantizedCPU;
  }
  return c10::DispatchKeySet(layout);
}

at::Tensor plain_to_npu(const at::Tensor& tensor, c10::Device device) {
  // A result with gaps or repeats (an expanded one) becomes dense, as clone() would make it.
  const at::Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  at::Tensor out =
      at::empty_strided(dense.sizes(), dense.strides(), dense.options().device(device).pinned_memory(false));
  set_bits_like(out, dense);
  write_bytes(device.index(), address_of(out.mutable_data_ptr()), dense.const_data_ptr(), dense.nbytes());
  return out;
}

at::Tensor layout_to_cpu(const at::Tensor& tensor) {
  return rebuild(tensor, c10::Device(c10::kCPU));
}

at::Tensor layout_to_npu(const at::Tensor& tensor, c10::Device device) {
  return rebuild(tensor, device);
}

void layout_write_back(const at::Tensor& tensor, const at::Tensor& image) {
  const at::Tensor moved =
      is_plain_layout(image) ? plain_to_npu(image, tensor.device()) : rebuild(image, tensor.device());
  // Shares the members; metadata as the op left it.
  if (is_compressed(tensor.layout()) && tensor.layout() == moved.layout()) {
    // shallow_copy_from of this kind of tensor leaves the members behind.
    const auto* from = static_cast<const at::SparseCsrTensorImpl*>(moved.unsafeGetTensorImpl());
    static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl())
        ->set_member_tensors(from->compressed_indices(), from->plain_indices(), from->values(), moved.sizes());
    return;
  }
  tensor.unsafeGetTensorImpl()->shallow_copy_from(moved.getIntrusivePtr());
}

}  // namespace torch_npu
