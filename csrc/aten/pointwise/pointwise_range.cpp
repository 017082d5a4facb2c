// Tensors computed from an element's position: arange, linspace, logspace, eye, tril, triu.
#include <ATen/native/DispatchStub.h>
#include <ATen/native/RangeFactories.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/arange_native.h>
#include <ATen/ops/arange_ops.h>
#include <ATen/ops/eye_ops.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/linspace_native.h>
#include <ATen/ops/linspace_ops.h>
#include <ATen/ops/logspace_ops.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/tril_meta.h>
#include <ATen/ops/tril_ops.h>
#include <ATen/ops/triu_meta.h>
#include <ATen/ops/triu_ops.h>

#include <string>

#include "csrc/aten/dispatch/command.h"
#include "csrc/aten/dispatch/complex.h"
#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/pointwise.h"
#include "table/kernels.h"

namespace torch_npu::pointwise_range_cpp {
namespace {

// One MAP over the tensors' own dimensions, outermost first, so that a program can ask for an index.
void launch_by_index(std::initializer_list<const at::Tensor*> tensors, DeviceProgram& program, const char* label,
                     std::initializer_list<npu_scalar> params) {
  const at::Tensor& out = **tensors.begin();
  if (out.numel() == 0) {
    return;
  }
  Command command(NPU_MAP, label, out.sizes());
  for (const at::Tensor* tensor : tensors) command.add(*tensor);
  for (const npu_scalar& param : params) command.param(param);
  command.run(program);
}

// Called by at::native::arange_out, which knows the length and makes a one-dimensional iterator.
void launch_arange(at::TensorIterator& iter, const at::Scalar& start, const at::Scalar&, const at::Scalar& step) {
  const at::Tensor& out = iter.tensor(0);
  const npu_dtype type = storage_dtype(out.scalar_type());
  if (type == NPU_DTYPE_NONE) {
    throw Unsupported("aten::arange");
  }
  if (is_float(type)) {
    return launch_by_index({&out}, table::arange.of(NPU_F64), "aten::arange",
                           {number(start.toDouble()), number(step.toDouble())});
  }
  launch_by_index({&out}, table::arange_int.of(NPU_I64), "aten::arange",
                  {integer(start.toLong()), integer(step.toLong())});
}

// Evenly spaced numbers. Whole ones are truncated first, as PyTorch does.
struct Span {
  double from, to, step;
  Span(const at::Scalar& start, const at::Scalar& end, int64_t steps, npu_dtype type)
      : from(is_float(type) ? start.toDouble() : static_cast<double>(start.toLong())),
        to(is_float(type) ? end.toDouble() : static_cast<double>(end.toLong())),
        step(steps > 1 ? (to - from) / static_cast<double>(steps - 1) : 0) {
    if (steps == 1) {
      to = from;
    }
  }
};

void fill_linspace(const at::Tensor& out, const at::Scalar& start, const at::Scalar& end, int64_t steps) {
  if (out.is_complex()) {
    const auto from = start.toComplexDouble(), to = end.toComplexDouble();
    fill_linspace(real_part(out), from.real(), to.real(), steps);
    return fill_linspace(imag_part(out), from.imag(), to.imag(), steps);
  }
  const npu_dtype type = storage_dtype(out.scalar_type());
  if (type == NPU_DTYPE_NONE || start.isComplex() || end.isComplex()) {
    throw Unsupported("aten::linspace");
  }
  const Span span(start, end, steps, type);
  launch_by_index({&out}, table::linspace.of(NPU_F64), "aten::linspace",
                  {number(span.from), number(span.to), number(span.step), number(static_cast<double>(steps))});
}

void launch_linspace(at::TensorIterator& iter, const at::Scalar& start, const at::Scalar& end, int64_t steps) {
  fill_linspace(iter.tensor(0), start, end, steps);
}

at::Tensor& logspace_out(const at::Scalar& start, const at::Scalar& end, int64_t steps, double base, at::Tensor& out) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.is_complex()) {
    return at::pow_out(out, base, at::linspace_out(out, start, end, steps));
  }
  const npu_dtype type = storage_dtype(out.scalar_type());
  if (type == NPU_DTYPE_NONE || start.isComplex() || end.isComplex()) {
    throw Unsupported("aten::logspace");
  }
  if (out.numel() != steps) {
    out.resize_({steps});
  }
  if (out.dim() != 1) {
    throw Unsupported("aten::logspace");
  }
  const Span span(start, end, steps, type);
  launch_by_index(
      {&out}, table::logspace.of(NPU_F64), "aten::logspace",
      {number(span.from), number(span.to), number(span.step), number(static_cast<double>(steps)), number(base)});
  return out;
}

at::Tensor& arange_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, at::Tensor& out) {
  return at::native::arange_out(start, end, step, out);
}
at::Tensor& linspace_out(const at::Scalar& start, const at::Scalar& end, int64_t steps, at::Tensor& out) {
  return at::native::linspace_out(start, end, steps, out);
}

at::Tensor& eye_m_out(int64_t n, int64_t m, at::Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
  TORCH_CHECK(m >= 0, "m must be greater or equal to 0, got ", m);
  out.resize_({n, m});
  if (out.is_complex()) {
    at::Tensor real = real_part(out);
    imag_part(out).zero_();
    eye_m_out(n, m, real);
    return out;
  }
  const npu_dtype type = storage_dtype(out.scalar_type());
  if (type == NPU_DTYPE_NONE) {
    throw Unsupported("aten::eye");
  }
  launch_by_index({&out}, table::eye.of(compute_dtype(type)), "aten::eye", {});
  return out;
}
at::Tensor& eye_out(int64_t n, at::Tensor& out) {
  return eye_m_out(n, n, out);
}

// The program names the last two dimensions, so there is one for each rank.
ProgramFamily f_tril, f_triu;

std::string triangle_text(bool upper, int64_t rank) {
  return std::string("formula ") + (upper ? "triu" : "tril") + "(out, x; k: i64)\neach:\n  out = load(x, mask index(" +
         std::to_string(rank - 1) + ") - index(" + std::to_string(rank - 2) + (upper ? ") >= k)\n" : ") <= k)\n");
}

template <bool upper, class Meta>
void launch_triangle(Meta& op, const at::Tensor& out, const at::Tensor& self, int64_t k) {
  constexpr const char* label = upper ? "aten::triu" : "aten::tril";
  if (self.is_complex() && out.is_complex()) {
    launch_triangle<upper>(op, real_part(out), real_part(self), k);
    return launch_triangle<upper>(op, imag_part(out), imag_part(self), k);
  }
  const npu_dtype type = storage_dtype(self.scalar_type());
  if (type == NPU_DTYPE_NONE || self.dim() > NPU_MAX_RANK || out.dtype() != self.dtype()) {
    throw Unsupported(label);
  }
  DeviceProgram& program =
      (upper ? f_triu : f_tril).get(self.dim(), compute_dtype(type), [&] { return triangle_text(upper, self.dim()); });
  launch_by_index({&out, &self}, program, label, {integer(k)});
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::arange_start_out, arange_out>(m);
  register_native<at::_ops::linspace_out, linspace_out>(m);
  register_native<at::_ops::logspace_out, logspace_out>(m);
  register_native<at::_ops::eye_out, eye_out>(m);
  register_native<at::_ops::eye_m_out, eye_m_out>(m);
  structured<at::meta::structured_tril, launch_triangle<false, at::meta::structured_tril>>(m)
      .functional<at::_ops::tril>()
      .inplace<at::_ops::tril_>()
      .out<at::_ops::tril_out>();
  structured<at::meta::structured_triu, launch_triangle<true, at::meta::structured_triu>>(m)
      .functional<at::_ops::triu>()
      .inplace<at::_ops::triu_>()
      .out<at::_ops::triu_out>();
}

}  // namespace
}  // namespace torch_npu::pointwise_range_cpp

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(arange_stub, &torch_npu::pointwise_range_cpp::launch_arange)
REGISTER_PRIVATEUSE1_DISPATCH(linspace_stub, &torch_npu::pointwise_range_cpp::launch_linspace)
}  // namespace at::native
