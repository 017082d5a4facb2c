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
program zeta(out, x, q; factor)
each:
  %x = load x : f64
  %q = load q : f64
  %i = index 7
  %k = cast %i : f64
  %a = add %q, %k
  %m = neg %x
  %term = pow %a, %m
  %sum = fold sum %term
row:
  %xr = load x : f64
  %qr = load q : f64
  %n = size 7
  %nf = cast %n : f64
  %w = add %qr, %nf
  %mr = neg %xr
  %t = pow %w, %mr
  %one = const 1 : f64
  %half = const 0.5 : f64
  %thousand = const 1000 : f64
  %s = min %xr, %thousand                 # beyond that the rest is nothing, and must not be infinity times nothing
  %s1 = sub %s, %one
  %tw = mul %t, %w
  %integral = div %tw, %s1
  %r0 = fma %t, %half, %integral
  %ww = mul %w, %w
  %p = mul %t, %s
  %p1 = div %p, %w
  %c1 = const 0.08333333333333333 : f64
  %r1 = fma %p1, %c1, %r0
  %s2 = add %s, %one
  %s3 = add %s2, %one
  %f2 = mul %s2, %s3
  %g2 = div %f2, %ww
  %p2 = mul %p1, %g2
  %c2 = const -0.001388888888888889 : f64
  %r2 = fma %p2, %c2, %r1
  %s4 = add %s3, %one
  %s5 = add %s4, %one
  %f3 = mul %s4, %s5
  %g3 = div %f3, %ww
  %p3 = mul %p2, %g3
  %c3 = const 3.306878306878307e-05 : f64
  %r3 = fma %p3, %c3, %r2
  %s6 = add %s5, %one
  %s7 = add %s6, %one
  %f4 = mul %s6, %s7
  %g4 = div %f4, %ww
  %p4 = mul %p3, %g4
  %c4 = const -8.267195767195768e-07 : f64
  %r4 = fma %p4, %c4, %r3
  %s8 = add %s7, %one
  %s9 = add %s8, %one
  %f5 = mul %s8, %s9
  %g5 = div %f5, %ww
  %p5 = mul %p4, %g5
  %c5 = const 2.08767569878681e-08 : f64
  %r5 = fma %p5, %c5, %r4
  %sa = add %s9, %one
  %sb = add %sa, %one
  %f6 = mul %sa, %sb
  %g6 = div %f6, %ww
  %p6 = mul %p5, %g6
  %c6 = const -5.284190138687493e-10 : f64
  %r6 = fma %p6, %c6, %r5
  %zeta = add %sum, %r6
  %factor = param factor : f64
  %result = mul %zeta, %factor
  # Poles at q = 0, -1, ...; a negative q has only whole powers.
  %zero = const 0 : f64
  %inf = const inf : f64
  %nan = const nan : f64
  %below = le %qr, %zero
  %qf = floor %qr
  %whole = eq %qf, %qr
  %pole = and %below, %whole
  %xf = floor %xr
  %xw = ne %xf, %xr
  %no = and %below, %xw
  %infinite = mul %inf, %factor
  %v1 = where %no, %nan, %result
  %v2 = where %pole, %infinite, %v1
  %at_one = eq %xr, %one
  %v3 = where %at_one, %infinite, %v2
  %less = lt %xr, %one
  %v4 = where %less, %nan, %v3
  store out, %v4
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
program igamma(out, a, x; upper)
each:
  %a = load a : f64
  %x = load x : f64
  %zero = const 0 : f64
  %one = const 1 : f64
  %minus = const -1 : f64
  %up = ge %x, %a
  %tiny = le %x, %one
  %series = and %up, %tiny
  %sign = where %up, %one, %minus
  %more = add %a, %one
  %b = where %up, %a, %more
  %i = index 7
  %j = cast %i : f64
  %h = const 0.1 : f64
  %start = const -3.6 : f64
  %u = fma %j, %h, %start
  %mu = neg %u
  %e = exp %mu
  %ue = sub %u, %e
  %eu = exp %ue
  %gap = sub %x, %b
  %wide = abs %gap
  %root = sqrt %x
  %w1 = add %wide, %root
  %w2 = add %w1, %one
  %v = div %eu, %w2
  %e1 = add %e, %one
  %e2 = mul %e1, %h
  %dv = mul %v, %e2
  %sv = mul %sign, %v
  %bv = mul %b, %sv
  %em = expm1 %sv
  %xe = mul %x, %em
  %ex = sub %bv, %xe
  %f = exp %ex
  %bump = mul %f, %dv
  %n = add %j, %one
  %lx = log %x
  %nl = mul %n, %lx
  %n1 = add %n, %one
  %lg = lgamma %n1
  %d = sub %nl, %lg
  %ed = exp %d
  %an = add %a, %n
  %q = div %ed, %an
  %two = const 2 : f64
  %even = fmod %n, %two
  %is_odd = eq %even, %one
  %mq = neg %q
  %power = where %is_odd, %mq, %q
  %term = where %series, %power, %bump
  %sum = fold sum %term
row:
  %ra = load a : f64
  %rx = load x : f64
  %rzero = const 0 : f64
  %rone = const 1 : f64
  %rnan = const nan : f64
  %rup = ge %rx, %ra
  %rtiny = le %rx, %rone
  %rseries = and %rup, %rtiny
  %rl = log %rx
  %al = mul %ra, %rl
  %lga = lgamma %ra
  %g1 = sub %al, %rx
  %g2 = sub %g1, %lga
  %front = exp %g2
  %upper = mul %front, %sum
  %fa = div %front, %ra
  %fx = mul %fa, %rx
  %lower = fma %fx, %sum, %fa
  %ra1 = add %ra, %rone
  %lga1 = lgamma %ra1
  %d1 = sub %al, %lga1
  %em1 = expm1 %d1
  %q1 = neg %em1
  %d2 = sub %al, %lga
  %ed2 = exp %d2
  %rest = mul %ed2, %sum
  %small = sub %q1, %rest
  %u1 = where %rup, %upper, %lower
  %tail = where %rseries, %small, %u1
  %want = param upper : bool
  %as_is = eq %want, %rup
  %other = sub %rone, %tail
  %value = where %as_is, %tail, %other
  # The ends, as the lower function has them.
  %x0 = eq %rx, %rzero
  %a0 = eq %ra, %rzero
  %xi = isinf %rx
  %ai = isinf %ra
  %some = gt %rx, %rzero
  %none = not %some
  %both0 = and %none, %a0
  %bothi = and %xi, %ai
  %to0 = or %x0, %ai
  %to1 = or %a0, %xi
  %end = or %to0, %to1
  %l = where %to1, %rone, %rzero
  %lm = sub %rone, %l
  %edge = where %want, %lm, %l
  %v1 = where %end, %edge, %value
  %xn = lt %rx, %rzero
  %an2 = lt %ra, %rzero
  %n0 = or %both0, %bothi
  %n2 = or %xn, %an2
  %n3 = or %n0, %n2
  %v2 = where %n3, %rnan, %v1
  store out, %v2
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
