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
program softmax(out, x)
each:
  %0 = load x : $t
  %max = fold max %0
each:
  %1 = load x : $t
  %2 = sub %1, %max
  %3 = exp %2
  %sum = fold sum %3
row:
  %scale = reciprocal %sum
each:
  %4 = load x : $t
  %5 = sub %4, %max
  %6 = exp %5
  %7 = mul %6, %scale
  store out, %7
)");

// Where the result has the type that is computed in, it holds the exponentials between the segments.
TypedProgram k_softmax_kept(R"(
program softmax_kept(out, x)
each:
  %0 = load x : $t
  %max = fold max %0
each:
  %1 = load x : $t
  %2 = sub %1, %max
  %3 = exp %2
  store out, %3
  %sum = fold sum %3
row:
  %scale = reciprocal %sum
each:
  %4 = load out : $t
  %5 = mul %4, %scale
  store out, %5
)");

TypedProgram k_log_softmax(R"(
program log_softmax(out, x)
each:
  %0 = load x : $t
  %max = fold max %0
each:
  %1 = load x : $t
  %2 = sub %1, %max
  %3 = exp %2
  %sum = fold sum %3
row:
  %log = log %sum
each:
  %4 = load x : $t
  %5 = sub %4, %max
  %6 = sub %5, %log
  store out, %6
)");

TypedProgram k_softmax_backward(R"(
program softmax_backward(out, grad, y)
each:
  %g = load grad : $t
  %y = load y : $t
  %p = mul %g, %y
  %sum = fold sum %p
each:
  %h = load grad : $t
  %z = load y : $t
  %d = sub %h, %sum
  %r = mul %d, %z
  store out, %r
)");

TypedProgram k_log_softmax_backward(R"(
program log_softmax_backward(out, grad, y)
each:
  %g = load grad : $t
  %sum = fold sum %g
each:
  %h = load grad : $t
  %z = load y : $t
  %e = exp %z
  %p = mul %e, %sum
  %r = sub %h, %p
  store out, %r
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
