// cat, flip and roll: COPY commands between strided boxes, nothing else.
#include <ATen/native/IndexKernel.h>
#include <ATen/ops/cat_meta.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/flip_native.h>
#include <ATen/ops/flip_ops.h>
#include <ATen/ops/roll_ops.h>

#include "csrc/aten/dispatch/complex.h"
#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::concat_cpp {
namespace {

// A box of `out`, given by sizes and an offset, from a box of the same sizes of `in`.
void copy_box(const at::Tensor& out, int64_t out_offset, const at::Tensor& in, int64_t in_offset, at::IntArrayRef sizes,
              const char* label) {
  Nest(NPU_COPY, label, sizes).with(out, out.strides(), out_offset).with(in, in.strides(), in_offset).run();
}

// Complex numbers travel as opaque words only beside their own type.
bool one_command(const at::Tensor& out, const at::Tensor& in) {
  const bool known =
      storage_dtype(out.scalar_type()) != NPU_DTYPE_NONE && storage_dtype(in.scalar_type()) != NPU_DTYPE_NONE;
  return out.dim() <= NPU_MAX_RANK && (known || (out.scalar_type() == in.scalar_type() && in.element_size() <= 8));
}

void launch_cat(at::meta::structured_cat&, const at::Tensor& out, const at::ITensorListRef& tensors, int64_t dim) {
  dim = out.dim() == 0 ? 0 : at::maybe_wrap_dim(dim, out.dim());
  int64_t start = 0;
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.device() == out.device(),
                "Expected all tensors to be on the same device, but found at least two devices, ", out.device(),
                " and ", tensor.device(), "! (aten::cat)");
    if (tensor.numel() == 0) {
      if (tensor.dim() == out.dim()) start += tensor.size(dim);
      continue;
    }
    if (one_command(out, tensor)) {
      copy_box(out, start * out.stride(dim), tensor, 0, tensor.sizes(), "aten::cat");
    } else {
      out.narrow(dim, start, tensor.size(dim)).copy_(tensor);
    }
    start += tensor.size(dim);
  }
}

// PyTorch has turned the strides of the output round.
void launch_flip(at::TensorIterator& iter, const bool) {
  for_each_part(iter.dtype(0), false, [&](Part part) { Nest(NPU_COPY, "aten::flip", iter, part).run(); });
}

// A rolled dimension is two pieces; copies every combination of them.
void roll_pieces(const at::Tensor& out, const at::Tensor& in, at::IntArrayRef shifts, int64_t dim, int64_t out_offset,
                 int64_t in_offset, at::DimVector& sizes) {
  if (dim == in.dim()) {
    return copy_box(out, out_offset, in, in_offset, sizes, "aten::roll");
  }
  const int64_t size = in.size(dim), shift = shifts[dim];
  sizes[dim] = size - shift;
  roll_pieces(out, in, shifts, dim + 1, out_offset + shift * out.stride(dim), in_offset, sizes);
  if (shift > 0) {
    sizes[dim] = shift;
    roll_pieces(out, in, shifts, dim + 1, out_offset, in_offset + (size - shift) * in.stride(dim), sizes);
  }
}

at::Tensor roll_dims(const at::Tensor& self, at::IntArrayRef shifts, at::IntArrayRef dims) {
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  if (dims.empty() && shifts.size() == 1) {
    return roll_dims(self.contiguous().view(-1), shifts, 0).view(self.sizes());
  }
  TORCH_CHECK(shifts.size() == dims.size(), "shifts and dimensions must align. shifts: ", shifts.size(),
              ", dims:", dims.size());
  at::Tensor out = at::empty_like(self, at::MemoryFormat::Contiguous);
  if (self.numel() == 0) {
    return out;
  }
  if (self.dim() == 0) {
    throw Unsupported("aten::roll");
  }
  at::DimVector total(self.dim(), 0);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = at::maybe_wrap_dim(dims[i], self.dim());
    const int64_t size = self.size(dim);
    total[dim] = ((total[dim] + shifts[i]) % size + size) % size;
  }
  at::DimVector sizes(self.sizes());
  if (too_wide(self)) {
    roll_pieces(real_part(out), real_part(self), total, 0, 0, 0, sizes);
    roll_pieces(imag_part(out), imag_part(self), total, 0, 0, 0, sizes);
  } else {
    roll_pieces(out, self, total, 0, 0, 0, sizes);
  }
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<at::meta::structured_cat, launch_cat>(m).functional<at::_ops::cat>().out<at::_ops::cat_out>();
  register_native<at::_ops::flip, at::native::flip>(m);
  register_native<at::_ops::roll, roll_dims>(m);
}

}  // namespace
}  // namespace torch_npu::concat_cpp

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(flip_stub, &torch_npu::concat_cpp::launch_flip)
}  // namespace at::native
