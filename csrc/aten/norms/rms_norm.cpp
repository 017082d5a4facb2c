#include "csrc/aten/norms/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/reduction.h"

namespace torch_npu::rms_norm {
namespace {

using at::Tensor;

// With a residual the second pass reads the sum as it was rounded when it was stored, which is what the gradient will
// see.
std::string forward_text(bool residual) {
  const std::string text = R"(
program rms_norm(out, rstd, x, weight$operands; eps, n)
each:
$sum  %q = mul %x, %x
  %s = fold sum %q
row:
  %n = param n : $t
  %m = div %s, %n
  %eps = param eps : $t
  %e = add %m, %eps
  %rstd = rsqrt %e
  store rstd, %rstd
each:
  %again = load x : $t
  %norm = mul %again, %rstd
  %gamma = load weight : $t
  %y = mul %norm, %gamma
  store out, %y
)";
  const std::string sum = residual ? "  %a = load x1 : $t\n  %b = load x2 : $t\n  %x = add %a, %b\n  store x, %x\n"
                                   : "  %x = load x : $t\n";
  return replace_all(replace_all(text, "$operands", residual ? ", x1, x2" : ""), "$sum", sum);
}

std::string backward_text(bool through_sum) {
  return replace_all(R"(
program rms_norm_backward(out, grad, x, rstd, weight$operand; n)
row:
  %rstd = load rstd : $t
each:
  %g = load grad : $t
  %w = load weight : $t
  %x = load x : $t
  %gw = mul %g, %w
  %h = mul %x, %rstd
  %p = mul %gw, %h
  %b = fold sum %p
row:
  %n = param n : $t
  %bm = div %b, %n
each:
  %g2 = load grad : $t
  %w2 = load weight : $t
  %x2 = load x : $t
  %gw2 = mul %g2, %w2
  %h2 = mul %x2, %rstd
  %q = mul %h2, %bm
  %q2 = sub %gw2, %q
  %r = mul %q2, %rstd
)",
                     "$operand", through_sum ? ", grad_sum" : "") +
         (through_sum ? "  %gs = load grad_sum : $t\n  %all = add %r, %gs\n  store out, %all\n" : "  store out, %r\n");
}

const std::string texts[] = {forward_text(false), forward_text(true), backward_text(false), backward_text(true)};
TypedProgram k_forward[] = {TypedProgram(texts[0].c_str()), TypedProgram(texts[1].c_str())};
TypedProgram k_backward[] = {TypedProgram(texts[2].c_str()), TypedProgram(texts[3].c_str())};

TypedProgram k_weight(R"(
program rms_norm_weight_grad(weight, grad, x, rstd)
each:
  %g = load grad : $t
  %x = load x : $t
  %rstd = load rstd : $t
  %h = mul %x, %rstd
  %p = mul %g, %h
  %a = fold sum %p
row:
  store weight, %a
)");

double count_of(const Tensor& x, int64_t dims) {
  return static_cast<double>(c10::multiply_integers(x.sizes().slice(x.dim() - dims)));
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> forward(const char* label, const Tensor& x, const Tensor& residual,
                                           const Tensor& weight, int64_t dims, double eps) {
  at::DimVector shape(x.sizes());
  std::fill(shape.end() - dims, shape.end(), 1);
  const auto type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor out = at::empty(x.sizes(), x.options()), rstd = at::empty(shape, x.options().dtype(type));
  const bool adds = residual.defined();
  const Tensor sum = adds ? at::empty(x.sizes(), x.options()) : x;
  Rows rows(label, x.sizes(), last_dims(x, dims));
  rows.add(out).add(rstd).add(sum).add_or(weight, 1);
  if (adds) rows.add(x).add(residual);
  rows.reduce(k_forward[adds].of(compute_type(x, label)), {number(eps), number(count_of(x, dims))});
  return {out, rstd, sum};
}

std::tuple<Tensor, Tensor> backward(const char* label, const Tensor& grad, const Tensor& grad_sum, const Tensor& sum,
                                    const Tensor& rstd, const Tensor& weight, int64_t dims,
                                    std::array<bool, 2> wanted) {
  const npu_dtype compute = compute_type(sum, label);
  Tensor of_sum, of_weight;
  if (wanted[0]) {
    of_sum = at::empty(sum.sizes(), sum.options());
    Rows rows(label, sum.sizes(), last_dims(sum, dims));
    rows.add(of_sum).add(grad).add(sum).add(rstd).add_or(weight, 1);
    if (grad_sum.defined()) rows.add(grad_sum);
    rows.reduce(k_backward[grad_sum.defined()].of(compute), {number(count_of(sum, dims))});
  }
  if (wanted[1] && weight.defined()) {
    of_weight = at::empty(weight.sizes(), weight.options());
    Rows(label, sum.sizes(), first_dims(sum.dim() - dims))
        .add(of_weight)
        .add(grad)
        .add(sum)
        .add(rstd)
        .reduce(k_weight.of(compute));
  }
  return {of_sum, of_weight};
}

std::tuple<Tensor, Tensor> backward_composition(const Tensor& grad, const Tensor& grad_sum, const Tensor& sum,
                                                const Tensor& rstd, const Tensor& weight, int64_t dims,
                                                std::array<bool, 2> wanted) {
  at::DimVector folded, kept;
  for (int64_t d = 0; d < sum.dim(); ++d) (d < sum.dim() - dims ? kept : folded).push_back(d);
  const auto wide = rstd.scalar_type();
  const Tensor g = grad.to(wide), norm = sum.to(wide) * rstd;
  Tensor of_sum, of_weight;
  if (wanted[0]) {
    const Tensor scaled = weight.defined() ? g * weight : g;
    of_sum = (scaled - norm * (scaled * norm).mean(folded, /*keepdim=*/true)) * rstd;
    if (grad_sum.defined()) of_sum = of_sum + grad_sum;
    of_sum = of_sum.to(sum.scalar_type()).contiguous();
  }
  if (wanted[1] && weight.defined()) {
    const Tensor product = g * norm;
    of_weight = (kept.empty() ? product : product.sum(kept)).to(weight.scalar_type());
  }
  return {of_sum, of_weight};
}

}  // namespace torch_npu::rms_norm
