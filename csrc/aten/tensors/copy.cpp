// copy_ between any two tensors of which at least one is on npu, and reading one element.
//
// PyTorch's copy_ hands every such pair to _copy_from. The rule for pairs of devices: data crosses between host and
// device as plain bytes, in one piece; strides and types are converted on the side where that is cheaper.
#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/_copy_from.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include "csrc/aten/dispatch/registration.h"
#include "csrc/aten/tensors/copy_device.h"
#include "csrc/core/memory/staging.h"
#include "csrc/core/memory/storage.h"

namespace torch_npu {
namespace {

// The same bytes in the same order: one plain copy does it.
bool is_plain(const at::Tensor& dst, const at::Tensor& src) {
  return dst.scalar_type() == src.scalar_type() && dst.is_conj() == src.is_conj() && dst.is_neg() == src.is_neg() &&
         ((dst.is_contiguous() && src.is_contiguous()) ||
          (dst.strides() == src.strides() && dst.is_non_overlapping_and_dense()));
}

bool is_convertible(const at::Tensor& a, const at::Tensor& b) {
  const auto plain = [](at::ScalarType t) {
    return !at::isComplexType(t) && !at::isBitsType(t) && !at::isFloat8Type(t);
  };
  return plain(a.scalar_type()) && plain(b.scalar_type());
}

at::Tensor contiguous_temporary(const at::Tensor& like, at::ScalarType dtype, c10::Device device) {
  at::Tensor out = at::empty(like.sizes(), at::TensorOptions().dtype(dtype).device(device));
  set_bits_like(out, like);
  return out;
}

void host_to_device(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  const c10::DeviceIndex device = dst.device().index();
  if (is_plain(dst, src)) {
    write_bytes(device, address_of(dst.mutable_data_ptr()), src.const_data_ptr(), dst.nbytes(), &src, non_blocking);
    return;
  }
  // Widening on the device moves fewer bytes; so does sending only the elements of a destination with gaps.
  const bool widens = dst.element_size() > src.element_size() && is_convertible(dst, src);
  if (has_copy_command(device) && (widens || !dst.is_non_overlapping_and_dense())) {
    at::Tensor sent = contiguous_temporary(src, widens ? src.scalar_type() : dst.scalar_type(), dst.device());
    if (!widens) {
      set_bits_like(sent, dst);
    }
    if (is_plain(sent, src)) {
      host_to_device(sent, src, non_blocking);
    } else {
      write_from_host(sent, src);
    }
    copy_on_device(dst, sent);
    return;
  }
  write_from_host(dst, src);
}

// On the device, an equal tensor that is cheap to read: no large gaps, and no wider than `dtype` if that can be had.
at::Tensor compacted(const at::Tensor& src, at::ScalarType dtype) {
  if (!has_copy_command(src.device().index())) {
    return src;
  }
  const bool has_gaps = extent(src) > 2 * src.numel();
  const bool narrows = static_cast<int64_t>(c10::elementSize(dtype)) < src.element_size() &&
                       !at::isComplexType(src.scalar_type()) && !at::isComplexType(dtype) && !at::isBitsType(dtype) &&
                       !at::isFloat8Type(dtype);
  if (!has_gaps && !narrows) {
    return src;
  }
  at::Tensor compact = contiguous_temporary(src, narrows ? dtype : src.scalar_type(), src.device());
  copy_on_device(compact, src);
  return compact;
}

void device_to_host(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  if (is_plain(dst, src)) {
    read_bytes(src.device().index(), dst.mutable_data_ptr(), address_of(src.const_data_ptr()), dst.nbytes(), &dst,
               non_blocking);
    return;
  }
  at::Tensor image = read_to_host(compacted(src, dst.scalar_type()));
  dst.copy_(image);
}

// Through the host, also between devices of one driver: the contract has no copy between devices.
void across_devices(const at::Tensor& dst, const at::Tensor& src) {
  host_to_device(dst, read_to_host(compacted(src, dst.scalar_type())), false);
}

void copy_same_size(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  if (dst.is_cpu()) {
    device_to_host(dst, src, non_blocking);
  } else if (src.is_cpu()) {
    host_to_device(dst, src, non_blocking);
  } else if (dst.device() == src.device()) {
    if (is_plain(dst, src) && dst.strides() != src.strides()) {
      // Contiguous both, but with free strides of dimensions of size one.
      copy_on_device(dst.view({-1}), src.view({-1}));
    } else {
      copy_on_device(dst, src);
    }
  } else {
    across_devices(dst, src);
  }
}

bool is_same_data(const at::Tensor& a, const at::Tensor& b) {
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset() && a.strides() == b.strides() &&
         a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() &&
         a.is_neg() == b.is_neg();
}

bool is_ours_or_cpu(const at::Tensor& tensor) {
  return tensor.is_privateuseone() || tensor.is_cpu();
}

at::Tensor copy_from(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  if (dst.is_same(src)) {
    return dst;
  }
  TORCH_CHECK(is_ours_or_cpu(dst) && is_ours_or_cpu(src), "expected to copy between npu and cpu, got ", src.device(),
              " to ", dst.device(), ": copy to the cpu first");
  TORCH_CHECK(!dst.is_quantized() && !src.is_quantized(),
              "expected plain tensors, got a quantized one: npu has no quantized tensors, use dequantize()");
  at::Tensor source = src;
  if (src.sizes() != dst.sizes()) {
    const auto shape = at::infer_size_dimvector(dst.sizes(), src.sizes());
    TORCH_CHECK(dst.sizes() == at::IntArrayRef(shape), "output with shape ", dst.sizes(),
                " doesn't match the broadcast shape ", at::IntArrayRef(shape));
    source = src.expand(dst.sizes());
  }
  if (dst.numel() == 0 || is_same_data(dst, source)) {
    return dst;
  }
  at::assert_no_internal_overlap(dst);
  if (dst.is_alias_of(source)) {
    at::assert_no_partial_overlap(dst, source);
    // Overlap that is too hard to decide (interleaved views). A command may not see it.
    source = source.clone();
  }
  if (source.is_complex() && !dst.is_complex() && dst.scalar_type() != at::kBool) {
    TORCH_WARN_ONCE("Casting complex values to real discards the imaginary part");
  }
  copy_same_size(dst, source, non_blocking);
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& src, const at::Tensor& dst) {
  if (src.sizes() != dst.sizes()) {
    dst.resize_(src.sizes());
  }
  return copy_from(src, dst, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  alignas(16) char bytes[16];
  read_bytes(self.device().index(), bytes, address_of(self.const_data_ptr()), self.element_size());
  at::Scalar result;
  AT_DISPATCH_V2(self.scalar_type(), "_local_scalar_dense_npu",
                 AT_WRAP([&] { result = at::Scalar(*reinterpret_cast<const scalar_t*>(bytes)); }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), at::kComplexHalf, at::kHalf, at::kBool, at::kBFloat16,
                 AT_EXPAND(AT_FLOAT8_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
  return result;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_function(m, "aten::_copy_from", copy_from);
  register_function(m, "aten::_copy_from_and_resize", copy_from_and_resize);
  register_function(m, "aten::_local_scalar_dense", local_scalar_dense);
}

// Tensors arrive with their bits. Resolving them first, the default, would copy, and so never end.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace torch_npu
