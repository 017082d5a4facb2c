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

// %z{s}, the margin less the lead of the target %c{s} over class %i{s}, and whether it counts.
std::string hinge_lines(const char* suffix) {
  return replace_all(R"(
  %t{s} = load target : i64
  %n{s} = param classes : i64
  %c{s} = check_index %t{s}, %n{s}, check
  %stride{s} = param stride : i64
  %ca{s} = mul %c{s}, %stride{s}
  %xt{s} = load_at row, %ca{s} : $t
  %x{s} = load x : $t
  %m{s} = param margin : $t
  %d{s} = sub %x{s}, %xt{s}
  %z{s} = add %d{s}, %m{s}
  %zero{s} = const 0 : $t
  %i{s} = index 1
  %other{s} = ne %i{s}, %c{s}
  %positive{s} = gt %z{s}, %zero{s}
  %use{s} = and %other{s}, %positive{s}
  %squared{s} = param squared : bool
)",
                     "{s}", suffix);
}

// The derivative of the hinge.
std::string slope_lines(const char* suffix) {
  return hinge_lines(suffix) + replace_all(R"(
  %zz{s} = add %z{s}, %z{s}
  %one{s} = const 1 : $t
  %h{s} = where %squared{s}, %zz{s}, %one{s}
  %v{s} = where %use{s}, %h{s}, %zero{s}
)",
                                           "{s}", suffix);
}

ProgramFamily f_multi_margin, f_multi_margin_backward;

std::string multi_margin_text() {
  return "program multi_margin(out, x, row, target, weight; classes, stride, margin, squared)\neach:\n" +
         hinge_lines("") + R"(
  %zz = mul %z, %z
  %h = where %squared, %zz, %z
  %v = where %use, %h, %zero
  %sum = fold sum %v
row:
  %tr = load target : i64
  %nr = param classes : i64
  %cr = check_index %tr, %nr, check
  %w = load_at weight, %cr : $t
  %sw = mul %sum, %w
  %nf = cast %nr : $t
  %loss = div %sw, %nf
  store out, %loss
)";
}

std::string multi_margin_backward_text() {
  return "program multi_margin_backward(out, x, row, target, weight, grad; classes, stride, margin, squared, scale)\n"
         "each:\n" +
         slope_lines("") + "  %sum = fold sum %v\neach:\n" + slope_lines("b") + R"(
  %minus = neg %sum
  %g = where %otherb, %vb, %minus
  %w = load_at weight, %cb : $t
  %gw = mul %g, %w
  %scale = param scale : $t
  %gs = mul %gw, %scale
  %grad = load grad : $t
  %r = mul %gs, %grad
  store out, %r
)";
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
program multilabel_margin(out, xj, xd, mj, md; scale)
each:
  %xj = load xj : $t
  %xd = load xd : $t
  %mj = load mj : $t
  %md = load md : $t
  %one = const 1 : $t
  %zero = const 0 : $t
  %a = sub %one, %xj
  %z = add %a, %xd
  %h = max %z, %zero
  %free = eq %md, %zero
  %v = mul %h, %mj
  %u = where %free, %v, %zero
  %sum = fold sum %u
row:
  %scale = param scale : $t
  %r = mul %sum, %scale
  store out, %r
)");

// For class k: what the listed ones j push it down by if it is not listed, less what it pushes the others by if it is.
TypedProgram k_multilabel_backward(R"(
program multilabel_margin_backward(out, xk, xj, mk, mj, grad; scale)
each:
  %xk = load xk : $t
  %xj = load xj : $t
  %mk = load mk : $t
  %mj = load mj : $t
  %one = const 1 : $t
  %zero = const 0 : $t
  %a = sub %one, %xj
  %z1 = add %a, %xk
  %b = sub %one, %xk
  %z2 = add %b, %xj
  %p1 = gt %z1, %zero
  %p2 = gt %z2, %zero
  %free_k = eq %mk, %zero
  %free_j = eq %mj, %zero
  %u1 = and %p1, %free_k
  %u2 = and %p2, %free_j
  %g1 = where %u1, %mj, %zero
  %g2 = where %u2, %mk, %zero
  %g = sub %g1, %g2
  %sum = fold sum %g
row:
  %scale = param scale : $t
  %grad = load grad : $t
  %s = mul %sum, %scale
  %r = mul %s, %grad
  store out, %r
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
