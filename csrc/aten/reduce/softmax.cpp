// The softmax family: one REDUCE with several segments over the same rows.
#include <ATen/ops/_log_softmax_backward_data_meta.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_meta.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_backward_data_meta.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_meta.h>
#include <ATen/ops/_softmax_ops.h>

#include "csrc/aten/dispatch/reduction.h"

namespace torch_npu::softmax_cpp {
namespace {

using at::Tensor;

TypedProgram k_softmax(R"(
formula softmax(out, x)
each:
  %max = fold(max, x)
each:
  %sum = fold(sum, exp(x - %max))
row:
  %scale = reciprocal(%sum)
each:
  out = exp(x - %max) * %scale
)");

// Where the result has the type that is computed in, it holds the exponentials between the segments.
TypedProgram k_softmax_kept(R"(
formula softmax_kept(out, x)
each:
  %max = fold(max, x)
each:
  %3 = exp(x - %max)
  out = %3
  %sum = fold(sum, %3)
row:
  %scale = reciprocal(%sum)
each:
  out = out * %scale
)");

TypedProgram k_log_softmax(R"(
formula log_softmax(out, x)
each:
  %max = fold(max, x)
each:
  %sum = fold(sum, exp(x - %max))
row:
  %log = log(%sum)
each:
  out = x - %max - %log
)");

TypedProgram k_softmax_backward(R"(
formula softmax_backward(out, grad, y)
each:
  %sum = fold(sum, grad * y)
each:
  out = (grad - %sum) * y
)");

TypedProgram k_log_softmax_backward(R"(
formula log_softmax_backward(out, grad, y)
each:
  %sum = fold(sum, grad)
each:
  out = grad - exp(y) * %sum
)");

template <TypedProgram& program>
void launch_forward(at::impl::MetaBase&, const Tensor& out, const Tensor& self, int64_t dim, bool) {
  const char* label = &program == &k_softmax ? "aten::_softmax" : "aten::_log_softmax";
  const bool kept = &program == &k_softmax && !at::isReducedFloatingType(out.scalar_type());
  Rows(label, self.sizes(), one_dim(self, dim))
      .add(out)
      .add(self)
      .reduce((kept ? k_softmax_kept : program).of(compute_type(out, label)));
}

template <TypedProgram& program>
void launch_backward(at::impl::MetaBase&, const Tensor& grad_input, const Tensor& grad, const Tensor& output,
                     int64_t dim, at::ScalarType) {
  const char* label =
      &program == &k_softmax_backward ? "aten::_softmax_backward_data" : "aten::_log_softmax_backward_data";
  Rows(label, grad.sizes(), one_dim(grad, dim))
      .add(grad_input)
      .add(grad)
      .add(output)
      .reduce(program.of(compute_type(grad, label)));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace meta = at::meta;
  namespace ops = at::_ops;
  structured<meta::structured__softmax, launch_forward<k_softmax>>(m)
      .functional<ops::_softmax>()
      .out<ops::_softmax_out>();
  structured<meta::structured__log_softmax, launch_forward<k_log_softmax>>(m)
      .functional<ops::_log_softmax>()
      .out<ops::_log_softmax_out>();
  structured<meta::structured__softmax_backward_data, launch_backward<k_softmax_backward>>(m)
      .functional<ops::_softmax_backward_data>()
      .out<ops::_softmax_backward_data_out>();
  structured<meta::structured__log_softmax_backward_data, launch_backward<k_log_softmax_backward>>(m)
      .functional<ops::_log_softmax_backward_data>()
      .out<ops::_log_softmax_backward_data_out>();
}

}  // namespace
}  // namespace torch_npu::softmax_cpp
