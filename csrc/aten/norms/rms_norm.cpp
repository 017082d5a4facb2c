#include "csrc/aten/norms/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "csrc/aten/dispatch/reduction.h"

namespace torch_npu::rms_norm {
namespace {

using at::Tensor;

// With a residual the second pass reads the sum as it was rounded when it was stored, which is what the gradient will
// see.
TypedProgram k_forward[] = {TypedProgram(R"(
formula rms_norm(out, rstd, x, weight; eps, n)
each:
  %s = fold(sum, x * x)
row:
  %rstd = rsqrt(%s / n + eps)
  rstd = %rstd
each:
  out = x * %rstd * weight
)"),
                            TypedProgram(R"(
formula rms_norm(out, rstd, x, weight, x1, x2; eps, n)
each:
  %x = x1 + x2
  x = %x
  %s = fold(sum, %x * %x)
row:
  %rstd = rsqrt(%s / n + eps)
  rstd = %rstd
each:
  out = x * %rstd * weight
)")};

// The second one adds what reached the sum of input and residual.
std::string backward_text(const char* operand, const char* more) {
  return std::string("formula rms_norm_backward(out, grad, x, rstd, weight") + operand + R"(; n)
row:
  %rstd = rstd
each:
  %b = fold(sum, grad * weight * (x * %rstd))
row:
  %m = %b / n
each:
  out = (grad * weight - x * %rstd * %m) * %rstd)" +
         more + "\n";
}
TypedProgram k_backward[] = {TypedProgram(backward_text("", "")),
                             TypedProgram(backward_text(", grad_sum", " + grad_sum"))};

TypedProgram k_weight(R"(
formula rms_norm_weight_grad(weight, grad, x, rstd)
each:
  %a = fold(sum, grad * (x * rstd))
row:
  weight = %a
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
