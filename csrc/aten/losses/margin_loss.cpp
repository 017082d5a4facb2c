// Margin losses over classes. Targets are read on the device: one out of range raises IndexError at the next
// synchronisation.
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/LossMulti.h>
#include <ATen/ops/multi_margin_loss_backward_ops.h>
#include <ATen/ops/multi_margin_loss_ops.h>
#include <ATen/ops/multilabel_margin_loss_backward_ops.h>
#include <ATen/ops/multilabel_margin_loss_forward_ops.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/optional.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::margin_loss_cpp {
namespace {

using at::Tensor;

// The result of a loss per sample, reduced as asked for, in `out`.
void reduce_into(Tensor& out, const Tensor& each, int64_t reduction, bool one_sample) {
  const bool none = reduction == at::Reduction::None && !one_sample;
  const Tensor value = none ? each : reduction == at::Reduction::Mean ? each.mean() : each.sum();
  at::native::resize_output(out, value.sizes());
  out.copy_(value);
}

// ---- one class per sample

// The margin less the lead of the target %c over the class, whether it counts, and what it adds.
constexpr const char* kHinge = R"(
each:
  %c = check_index(target, classes, check)
  %z = x - load_at(row, %c * stride) + margin
  %other = index(1) != %c
  %use = %other and %z > 0
)";
constexpr const char* kSlope = "  %slope = where(%use, where(squared, %z + %z, 1), 0)\n";
constexpr const char* kParameters = "classes: i64, stride: i64, margin, squared: bool";

ProgramFamily f_multi_margin, f_multi_margin_backward;

std::string multi_margin_text() {
  return std::string("formula multi_margin(out, x, row, target: i64, weight; ") + kParameters + ")\n" + kHinge + R"(
  %sum = fold(sum, where(%use, where(squared, %z * %z, %z), 0))
row:
  out = %sum * load_at(weight, check_index(target, classes, check)) / number(classes)
)";
}

std::string multi_margin_backward_text() {
  return std::string("formula multi_margin_backward(out, x, row, target: i64, weight, grad; ") + kParameters +
         ", scale)\n" + kHinge + kSlope + "  %sum = fold(sum, %slope)\n" + kHinge + kSlope +
         "  out = where(%other, %slope, -%sum) * load_at(weight, %c) * scale * grad\n";
}

struct Samples {
  Tensor x, target, weight;
  int64_t count = 0, classes = 0;
};

Samples multi_margin_samples(const Tensor& self, const Tensor& target, const at::Scalar& p, const OptTensor& weight,
                             const char* label) {
  Samples s;
  TORCH_CHECK(p.toLong() == 1 || p.toLong() == 2, "only p == 1 and p == 2 supported");
  at::native::multi_margin_loss_shape_check(s.count, s.classes, self.dim(), self, target, weight);
  check_same_device(label, {&self, &target, weight ? &*weight : nullptr});
  numeric_dtype(self.scalar_type(), label);
  s.x = self.reshape({s.count, s.classes});
  s.target = target.reshape({s.count});
  s.weight = weight && weight->defined() ? weight->contiguous() : at::ones({s.classes}, self.options());
  return s;
}

Tensor& multi_margin_loss_out(const Tensor& self, const Tensor& target, const at::Scalar& p, const at::Scalar& margin,
                              const OptTensor& weight, int64_t reduction, Tensor& out) {
  constexpr const char* label = "aten::multi_margin_loss";
  const Samples s = multi_margin_samples(self, target, p, weight, label);
  const Tensor each = make_empty({s.count}, {}, self.options());
  Nest(NPU_REDUCE, label, {s.count, s.classes}, 1)
      .with(each, {1, 0})
      .with(s.x)
      .with(s.x, {s.x.stride(0), 0})
      .with(s.target, {s.target.stride(0), 0})
      .with(s.weight, {0, 0})
      .integer(s.classes)
      .integer(s.x.stride(1))
      .number(margin.toDouble())
      .integer(p.toLong() == 2)
      .run(f_multi_margin.get(0, compute_dtype(storage_dtype(self.scalar_type())), multi_margin_text));
  reduce_into(out, each, reduction, self.dim() < 2);
  return out;
}

Tensor multi_margin_loss(const Tensor& self, const Tensor& target, const at::Scalar& p, const at::Scalar& margin,
                         const OptTensor& weight, int64_t reduction) {
  Tensor out = make_empty({0}, {}, self.options());
  return multi_margin_loss_out(self, target, p, margin, weight, reduction, out);
}

Tensor& multi_margin_loss_backward_out(const Tensor& grad, const Tensor& self, const Tensor& target,
                                       const at::Scalar& p, const at::Scalar& margin, const OptTensor& weight,
                                       int64_t reduction, Tensor& out) {
  constexpr const char* label = "aten::multi_margin_loss_backward";
  const Samples s = multi_margin_samples(self, target, p, weight, label);
  at::native::resize_output(out, self.sizes());
  const Tensor result = out.is_contiguous() ? out : make_empty(self.sizes(), {}, out.options());
  const double scale = 1.0 / static_cast<double>(s.classes * (reduction == at::Reduction::Mean ? s.count : 1));
  Nest(NPU_REDUCE, label, {s.count, s.classes}, 1)
      .with(result, {s.classes, 1})
      .with(s.x)
      .with(s.x, {s.x.stride(0), 0})
      .with(s.target, {s.target.stride(0), 0})
      .with(s.weight, {0, 0})
      .with(grad, {grad.dim() > 0 ? grad.stride(0) : 0, 0})
      .integer(s.classes)
      .integer(s.x.stride(1))
      .number(margin.toDouble())
      .integer(p.toLong() == 2)
      .number(scale)
      .run(
          f_multi_margin_backward.get(0, compute_dtype(storage_dtype(self.scalar_type())), multi_margin_backward_text));
  if (!result.is_same(out)) out.copy_(result);
  return out;
}

Tensor multi_margin_loss_backward(const Tensor& grad, const Tensor& self, const Tensor& target, const at::Scalar& p,
                                  const at::Scalar& margin, const OptTensor& weight, int64_t reduction) {
  Tensor out = make_empty({0}, {}, self.options());
  return multi_margin_loss_backward_out(grad, self, target, p, margin, weight, reduction, out);
}

// ---- several classes per sample: each row of the target lists them, up to the first -1

// How often each class is listed.
Tensor listed(const Tensor& target, const at::TensorOptions& options) {
  const Tensor in = target.ge(0).to(at::kLong).cumprod(1);
  return at::zeros(target.sizes(), options).scatter_add_(1, target * in, in.to(options.dtype()));
}

// The sum over listed classes j and others d of max(0, 1 - x[j] + x[d]).
TypedProgram k_multilabel(R"(
formula multilabel_margin(out, xj, xd, mj, md; scale)
each:
  %sum = fold(sum, where(md == 0, max(1 - xj + xd, 0) * mj, 0))
row:
  out = %sum * scale
)");

// For class k: what the listed ones j push it down by if it is not listed, less what it pushes the others by if it is.
TypedProgram k_multilabel_backward(R"(
formula multilabel_margin_backward(out, xk, xj, mk, mj, grad; scale)
each:
  %g = where(1 - xj + xk > 0 and mk == 0, mj, 0) - where(1 - xk + xj > 0 and mj == 0, mk, 0)
  %sum = fold(sum, %g)
row:
  out = %sum * scale * grad
)");

struct Labels {
  Tensor x, listed;
  int64_t count = 0, classes = 0;
};

Labels labels_of(const Tensor& self, const Tensor& target, const char* label) {
  Labels s;
  at::native::multilabel_margin_loss_shape_check(s.count, s.classes, self.dim(), self, target);
  check_same_device(label, {&self, &target});
  numeric_dtype(self.scalar_type(), label);
  s.x = self.reshape({s.count, s.classes}).contiguous();
  s.listed = listed(target.reshape({s.count, s.classes}), self.options());
  return s;
}

std::tuple<Tensor&, Tensor&> multilabel_margin_loss_out(const Tensor& self, const Tensor& target, int64_t reduction,
                                                        Tensor& out, Tensor& is_target) {
  constexpr const char* label = "aten::multilabel_margin_loss_forward";
  const Labels s = labels_of(self, target, label);
  const Tensor each = make_empty({s.count}, {}, self.options());
  const int64_t c = s.classes;
  Nest(NPU_REDUCE, label, {s.count, c, c}, 2)
      .with(each, {1, 0, 0})
      .with(s.x, {c, 1, 0})
      .with(s.x, {c, 0, 1})
      .with(s.listed, {c, 1, 0})
      .with(s.listed, {c, 0, 1})
      .number(1.0 / static_cast<double>(c))
      .run(k_multilabel.of(compute_dtype(storage_dtype(self.scalar_type()))));
  reduce_into(out, each, reduction, self.dim() < 2);
  at::native::resize_output(is_target, target.sizes());
  is_target.copy_(s.listed.ne(0).reshape(target.sizes()));
  return {out, is_target};
}

std::tuple<Tensor, Tensor> multilabel_margin_loss(const Tensor& self, const Tensor& target, int64_t reduction) {
  Tensor out = make_empty({0}, {}, self.options()), is_target = make_empty({0}, {}, self.options());
  multilabel_margin_loss_out(self, target, reduction, out, is_target);
  return {out, is_target};
}

Tensor& multilabel_margin_loss_backward_out(const Tensor& grad, const Tensor& self, const Tensor& target,
                                            int64_t reduction, const Tensor&, Tensor& out) {
  constexpr const char* label = "aten::multilabel_margin_loss_backward";
  const Labels s = labels_of(self, target, label);
  at::native::resize_output(out, self.sizes());
  const Tensor result = make_empty({s.count, s.classes}, {}, self.options());
  const int64_t c = s.classes;
  Nest(NPU_REDUCE, label, {s.count, c, c}, 1)
      .with(result, {c, 1, 0})
      .with(s.x, {c, 1, 0})
      .with(s.x, {c, 0, 1})
      .with(s.listed, {c, 1, 0})
      .with(s.listed, {c, 0, 1})
      .with(grad, {grad.dim() > 0 ? grad.stride(0) : 0, 0, 0})
      .number(1.0 / static_cast<double>(c * (reduction == at::Reduction::Mean ? s.count : 1)))
      .run(k_multilabel_backward.of(compute_dtype(storage_dtype(self.scalar_type()))));
  out.copy_(result.reshape(self.sizes()));
  return out;
}

Tensor multilabel_margin_loss_backward(const Tensor& grad, const Tensor& self, const Tensor& target, int64_t reduction,
                                       const Tensor& is_target) {
  Tensor out = make_empty({0}, {}, self.options());
  return multilabel_margin_loss_backward_out(grad, self, target, reduction, is_target, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_native<ops::multi_margin_loss, multi_margin_loss>(m);
  register_native<ops::multi_margin_loss_out, multi_margin_loss_out>(m);
  register_native<ops::multi_margin_loss_backward, multi_margin_loss_backward>(m);
  register_native<ops::multi_margin_loss_backward_grad_input, multi_margin_loss_backward_out>(m);
  register_native<ops::multilabel_margin_loss_forward, multilabel_margin_loss>(m);
  register_native<ops::multilabel_margin_loss_forward_output, multilabel_margin_loss_out>(m);
  register_native<ops::multilabel_margin_loss_backward, multilabel_margin_loss_backward>(m);
  register_native<ops::multilabel_margin_loss_backward_grad_input, multilabel_margin_loss_backward_out>(m);
}

}  // namespace
}  // namespace torch_npu::margin_loss_cpp
