// Special functions that are sums: one REDUCE over the terms. All in double, for the terms differ in size.
#include <ATen/ScalarOps.h>
#include <ATen/ops/igamma_meta.h>
#include <ATen/ops/igamma_ops.h>
#include <ATen/ops/igammac_meta.h>
#include <ATen/ops/igammac_ops.h>
#include <ATen/ops/min.h>
#include <ATen/ops/polygamma_meta.h>
#include <ATen/ops/polygamma_ops.h>
#include <ATen/ops/special_zeta_meta.h>
#include <ATen/ops/special_zeta_ops.h>

#include <cmath>

#include "csrc/aten/dispatch/pointwise.h"
#include "csrc/aten/dispatch/reduction.h"
#include "table/kernels.h"

namespace torch_npu::special_cpp {
namespace {

using at::Tensor;

// The terms are the last dimension of the index space.
Rows terms(const char* label, const Tensor& out, int64_t count) {
  at::DimVector sizes(out.sizes());
  sizes.push_back(count);
  DimMask inner;
  inner[out.dim()] = true;
  return Rows(label, sizes, inner);
}

// As an operand of `terms`: a number stays one.
void add_expanded(Rows& rows, const Tensor& tensor, const Tensor& out) {
  if (tensor.is_cpu() && tensor.dim() == 0) {
    rows.number(tensor.item().toDouble());
  } else {
    rows.reduced(tensor.expand(out.sizes()));
  }
}

void refuse_other_result(const at::TensorIteratorBase& iter, const Tensor& out, const char* label) {
  if (out.scalar_type() != iter.common_dtype()) {
    throw Unsupported(label);  // rounded to the common type first
  }
}

// Hurwitz zeta: the first terms one by one, the rest by Euler and Maclaurin. Its coefficients are B(2j) / (2j)!.
DeviceProgram k_zeta(R"(
formula zeta(out, x, q; factor): f64
each:
  %sum = fold(sum, (q + f64(index(7))) ** -x)
row:
  %w = q + f64(size(7))
  %t = %w ** -x
  # beyond that the rest is nothing, and must not be infinity times nothing
  %s = min(x, 1000)
  %ww = %w * %w
  %p1 = %t * %s / %w
  %r1 = fma(%p1, 0.08333333333333333, fma(%t, 0.5, %t * %w / (%s - 1)))
  %s2 = %s + 1
  %s3 = %s2 + 1
  %p2 = %p1 * (%s2 * %s3 / %ww)
  %s4 = %s3 + 1
  %s5 = %s4 + 1
  %p3 = %p2 * (%s4 * %s5 / %ww)
  %r3 = fma(%p3, 3.306878306878307e-05, fma(%p2, -0.001388888888888889, %r1))
  %s6 = %s5 + 1
  %s7 = %s6 + 1
  %p4 = %p3 * (%s6 * %s7 / %ww)
  %s8 = %s7 + 1
  %s9 = %s8 + 1
  %p5 = %p4 * (%s8 * %s9 / %ww)
  %r5 = fma(%p5, 2.08767569878681e-08, fma(%p4, -8.267195767195768e-07, %r3))
  %sa = %s9 + 1
  %r6 = fma(%p5 * (%sa * (%sa + 1) / %ww), -5.284190138687493e-10, %r5)
  # Poles at q = 0, -1, ...; a negative q has only whole powers.
  %below = q <= 0
  %infinite = inf * factor
  %v1 = where(%below and floor(x) != x, nan, (%sum + %r6) * factor)
  %v3 = where(x == 1, %infinite, where(%below and floor(q) == q, %infinite, %v1))
  out = where(x < 1, nan, %v3)
)");

// One by one until the argument is above ten, so negative ones have to be known here.
void run_zeta(const Tensor& out, const Tensor& x, const Tensor& q, double factor, const char* label) {
  if (out.numel() == 0) {
    return;
  }
  const double lowest = at::min(q).item().toDouble();
  if (lowest < -1e6) {
    throw Unsupported(label);
  }
  Rows rows = terms(label, out, 10 + static_cast<int64_t>(lowest < 0 ? std::ceil(-lowest) : 0));
  rows.indexed().reduced(out);
  add_expanded(rows, x, out);
  add_expanded(rows, q, out);
  rows.reduce(k_zeta, {number(factor)});
}

void launch_zeta(at::meta::structured_special_zeta& op, const Tensor& out, const Tensor& self, const Tensor& other) {
  constexpr const char* label = "aten::special_zeta";
  refuse_other_result(op, out, label);
  run_zeta(out, self, other, 1, label);
}

void launch_polygamma(at::meta::structured_polygamma& op, const Tensor& out, int64_t n, const Tensor& self) {
  constexpr const char* label = "aten::polygamma";
  if (n < 2) {
    return PointwiseCall(op, label).run(n == 0 ? table::polygamma_0 : table::polygamma_1, {});
  }
  refuse_other_result(op, out, label);
  const double factorial = std::tgamma(static_cast<double>(n) + 1);
  run_zeta(out, at::scalar_to_tensor(n + 1), self, n % 2 ? factorial : -factorial, label);
}

// Regularised incomplete gamma functions. With t = x * exp(v) their integrals are those of a smooth bump,
// exp(a v - x (exp(v) - 1)), which the trapezoidal rule over v = exp(u - exp(-u)) sums to 1e-12: upwards from x for the
// upper function if x >= a, downwards for the lower one (of a + 1, and the step to a) otherwise; the other is one minus
// it. For x in [a, 1] the upper function is its power series.
DeviceProgram k_igamma(R"(
formula igamma(out, a, x; upper: bool): f64
each:
  %up = x >= a
  %b = where(%up, a, a + 1)
  %j = f64(index(7))
  %u = fma(%j, 0.1, -3.6)
  %e = exp(-%u)
  %v = exp(%u - %e) / (abs(x - %b) + sqrt(x) + 1)
  %sv = where(%up, 1, -1) * %v
  %bump = exp(%b * %sv - x * expm1(%sv)) * (%v * ((%e + 1) * 0.1))
  %n = %j + 1
  %q = exp(%n * log(x) - lgamma(%n + 1)) / (a + %n)
  %term = where(%up and x <= 1, where(fmod(%n, 2) == 1, -%q, %q), %bump)
  %sum = fold(sum, %term)
row:
  %rup = x >= a
  %al = a * log(x)
  %lga = lgamma(a)
  %front = exp(%al - x - %lga)
  %fa = %front / a
  %small = -expm1(%al - lgamma(a + 1)) - exp(%al - %lga) * %sum
  %u1 = where(%rup, %front * %sum, fma(%fa * x, %sum, %fa))
  %tail = where(%rup and x <= 1, %small, %u1)
  # The ends, as the lower function has them.
  %a0 = a == 0
  %xi = isinf(x)
  %ai = isinf(a)
  %to1 = %a0 or %xi
  %l = where(%to1, 1, 0)
  %v1 = where(x == 0 or %ai or %to1, where(upper, 1 - %l, %l), where(upper == %rup, %tail, 1 - %tail))
  %n3 = not x > 0 and %a0 or %xi and %ai or (x < 0 or a < 0)
  out = where(%n3, nan, %v1)
)");

template <class Meta, bool upper>
void launch_igamma(Meta& op, const Tensor& out, const Tensor& self, const Tensor& other) {
  const char* label = upper ? "aten::igammac" : "aten::igamma";
  refuse_other_result(op, out, label);
  if (!out.is_floating_point()) {
    throw Unsupported(label);  // the meta function takes integers, no kernel of PyTorch's does
  }
  Rows rows = terms(label, out, 96);
  rows.indexed().reduced(out);
  add_expanded(rows, self, out);
  add_expanded(rows, other, out);
  rows.reduce(k_igamma, {integer(upper)});
}

#define NPU_SPECIAL(name, launch)                    \
  structured<at::meta::structured_##name, launch>(m) \
      .functional<at::_ops::name>()                  \
      .inplace<at::_ops::name##_>()                  \
      .out<at::_ops::name##_out>()

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<at::meta::structured_special_zeta, launch_zeta>(m)
      .functional<at::_ops::special_zeta>()
      .out<at::_ops::special_zeta_out>();
  structured<at::meta::structured_polygamma, launch_polygamma>(m)
      .functional<at::_ops::polygamma>()
      .out<at::_ops::polygamma_out>();
  NPU_SPECIAL(igamma, (launch_igamma<at::meta::structured_igamma, false>));
  NPU_SPECIAL(igammac, (launch_igamma<at::meta::structured_igammac, true>));
}

}  // namespace
}  // namespace torch_npu::special_cpp
