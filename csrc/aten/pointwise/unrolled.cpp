// Pointwise ops that are loops: their programs are the loop written out, and where its length is not bounded, one
// launch per block of steps.
#include <ATen/ops/gcd_meta.h>
#include <ATen/ops/gcd_ops.h>
#include <ATen/ops/lcm_meta.h>
#include <ATen/ops/lcm_ops.h>
#include <ATen/ops/max.h>
#include <ATen/ops/special_hermite_polynomial_h_meta.h>
#include <ATen/ops/special_hermite_polynomial_h_ops.h>
#include <ATen/ops/special_hermite_polynomial_he_meta.h>
#include <ATen/ops/special_hermite_polynomial_he_ops.h>
#include <ATen/ops/special_laguerre_polynomial_l_meta.h>
#include <ATen/ops/special_laguerre_polynomial_l_ops.h>
#include <ATen/ops/special_legendre_polynomial_p_meta.h>
#include <ATen/ops/special_legendre_polynomial_p_ops.h>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/pointwise.h"
#include "csrc/aten/dispatch/reduction.h"

namespace torch_npu::unrolled_cpp {
namespace {

using at::Tensor;

// ---- Euclid's algorithm. A remainder by zero is zero, so a pair that is done stays as it is.

// Steps that two neighbours in Fibonacci's sequence need, which is the longest there is.
int euclid_steps(c10::ScalarType type) {
  const int bits = static_cast<int>(c10::elementSize(type)) * 8;
  return static_cast<int>(bits * 1.4405) + 1;
}

ProgramFamily f_gcd, f_lcm;

std::string gcd_text(int steps, const char* result) {
  std::string text = "formula gcd(out, x, y)\neach:\n  %a = abs(x)\n  %b = abs(y)\n";
  for (int k = 0; k < steps; ++k) text += "  %next = where(%b == 0, %a, %b)\n  %b = fmod(%a, %b)\n  %a = %next\n";
  return text + "  %gcd = abs(%a)\n  out = " + result + "\n";
}

template <class Meta, bool multiple>
void launch_gcd(Meta& op, const Tensor&, const Tensor&, const Tensor&) {
  const char* label = multiple ? "aten::lcm" : "aten::gcd";
  const npu_dtype compute = compute_dtype(numeric_dtype(op.common_dtype(), label));
  if (is_float(compute) || compute == NPU_BOOL) {
    throw Unsupported(label);
  }
  const int steps = euclid_steps(op.common_dtype());
  launch_map(op,
             (multiple ? f_lcm : f_gcd)
                 .get(steps, compute, [&] { return gcd_text(steps, multiple ? "abs(x / %gcd * y)" : "%gcd"); }),
             label, {}, Numbers::kRounded);
}

// ---- Orthogonal polynomials p(k + 1) = f(x, p(k), p(k - 1), k), for the degree n of each element. In double: every
// step magnifies the rounding of those before it.

struct Recurrence {
  const char* label;
  const char* first;  // the polynomial of degree 1
  const char* next;   // from the two before it, %q and %p, and %k, which is the number of the step as a float
  const char* ends;   // the result: %v, but for values of x that are known at once
  bool limited;       // degrees above 128 (of a float) or 512 are NaN
  ProgramFamily* family;
};

constexpr int kSteps = 32;  // per launch

// Operands: out, x, n, p and q. The first launch makes p and q.
std::string recurrence_text(const Recurrence& of, bool first) {
  std::string text = "formula polynomial(out, x, n, p, q; step, limit)\neach:\n  %n = trunc(n)\n";
  text += first ? "  %p = 1\n  %q = " + std::string(of.first) + "\n" : "  %p = p\n  %q = q\n";
  for (int k = 0; k < kSteps; ++k) {
    text += "  %k = step + " + std::to_string(k) + "\n  %next = " + of.next + R"(
  %on = %k < %n
  %p = where(%on, %q, %p)
  %q = where(%on, %next, %q)
)";
  }
  return text + R"(
  p = %p
  q = %q
  %v = where(%n == 0, 1, where(%n > limit, nan, %q + 0))
  %y = )" +
         of.ends + "\n  out = where(%n >= 0, %y, 0)\n";
}

ProgramFamily f_hermite_h, f_hermite_he, f_laguerre, f_legendre;

const Recurrence kHermiteH{
    "aten::special_hermite_polynomial_h", "x + x", "(x + x) * %q - %k * 2 * %p", "%v + 0", true, &f_hermite_h};
const Recurrence kHermiteHe{
    "aten::special_hermite_polynomial_he", "x + 0", "x * %q - %k * %p", "%v + 0", true, &f_hermite_he};
const Recurrence kLaguerre{"aten::special_laguerre_polynomial_l",
                           "1 - x",
                           "((%k + %k + (1 - x)) * %q - %k * %p) / (%k + 1)",
                           "where(x == 0, 1, %v)",
                           false,
                           &f_laguerre};
const Recurrence kLegendre{"aten::special_legendre_polynomial_p",
                           "x + 0",
                           "((%k + %k + 1) * x * %q - %k * %p) / (%k + 1)",
                           "where(abs(x) == 1, where(fmod(%n, 2) == 1 and x < 0, -1, 1), %v)",
                           false,
                           &f_legendre};

// A number becomes a tensor of one element; the nest repeats it.
Tensor on_device(const Tensor& tensor, const Tensor& out) {
  return tensor.is_cpu() ? tensor.to(out.device()) : tensor;
}

template <class Meta, const Recurrence& of>
void launch_polynomial(Meta& op, const Tensor& out, const Tensor& x_, const Tensor& n_) {
  if (out.scalar_type() != op.common_dtype()) {
    throw Unsupported(of.label);
  }
  if (out.numel() == 0) {
    return;
  }
  const double limit = !of.limited ? INFINITY : op.common_dtype() == at::kDouble ? 512 : 128;
  double degree = at::max(n_).item().toDouble();
  degree = degree > limit ? limit : degree;  // a NaN takes no steps either
  const Tensor x = on_device(x_, out), n = on_device(n_, out);
  const Tensor p = make_empty(out.sizes(), {}, out.options().dtype(at::kDouble));
  const Tensor q = make_empty(out.sizes(), {}, p.options());
  if (!(degree < 1e7)) {
    throw Unsupported(of.label);
  }
  // Outputs may be inputs: the result is stored by the last launch alone, and those before it go to p as well.
  for (double step = 1; step == 1 || step < degree; step += kSteps) {
    const bool first = step == 1, last = step + kSteps >= degree;
    const Tensor& target = last ? out : make_empty(out.sizes(), {}, out.options());
    Nest(NPU_MAP, of.label, out.sizes())
        .with(target)
        .with(x, expanded_strides(x, out.sizes()))
        .with(n, expanded_strides(n, out.sizes()))
        .with(p)
        .with(q)
        .number(step)
        .number(limit)
        .run(of.family->get(first, NPU_F64, [&] { return recurrence_text(of, first); }));
  }
}

#define NPU_POLYNOMIAL(name, of)                                                                                 \
  structured<at::meta::structured_special_##name, launch_polynomial<at::meta::structured_special_##name, of>>(m) \
      .functional<at::_ops::special_##name>()                                                                    \
      .out<at::_ops::special_##name##_out>()

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<at::meta::structured_gcd, launch_gcd<at::meta::structured_gcd, false>>(m)
      .functional<at::_ops::gcd>()
      .inplace<at::_ops::gcd_>()
      .out<at::_ops::gcd_out>();
  structured<at::meta::structured_lcm, launch_gcd<at::meta::structured_lcm, true>>(m)
      .functional<at::_ops::lcm>()
      .inplace<at::_ops::lcm_>()
      .out<at::_ops::lcm_out>();
  NPU_POLYNOMIAL(hermite_polynomial_h, kHermiteH);
  NPU_POLYNOMIAL(hermite_polynomial_he, kHermiteHe);
  NPU_POLYNOMIAL(laguerre_polynomial_l, kLaguerre);
  NPU_POLYNOMIAL(legendre_polynomial_p, kLegendre);
}

}  // namespace
}  // namespace torch_npu::unrolled_cpp
