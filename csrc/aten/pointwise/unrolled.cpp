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

std::string gcd_lines(int steps) {
  std::string text = "  %x = load x : $t\n  %y = load y : $t\n  %zero = const 0 : $t\n  %a0 = abs %x\n  %b0 = abs %y\n";
  for (int k = 1; k <= steps; ++k) {
    text += replace_all(replace_all(R"(
  %done{k} = eq %b{j}, %zero
  %a{k} = where %done{k}, %a{j}, %b{j}
  %b{k} = fmod %a{j}, %b{j}
)",
                                    "{k}", std::to_string(k)),
                        "{j}", std::to_string(k - 1));
  }
  return text + "  %gcd = abs %a" + std::to_string(steps) + "\n";
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
                 .get(steps, compute,
                      [&] {
                        std::string text = "program gcd(out, x, y)\neach:\n" + gcd_lines(steps);
                        if (!multiple) {
                          return text + "  store out, %gcd\n";
                        }
                        return text + R"(
  %quotient = div %x, %gcd
  %product = mul %quotient, %y
  %lcm = abs %product
  store out, %lcm
)";
                      }),
             label, {}, Numbers::kRounded);
}

// ---- Orthogonal polynomials p(k + 1) = f(x, p(k), p(k - 1), k), for the degree n of each element. In double: every
// step magnifies the rounding of those before it.

struct Recurrence {
  const char* label;
  const char* first;  // %q, the polynomial of degree 1
  const char* next;   // %r{k} from %q{j}, %p{j}, %x and %k{k}, which is the number of the step as a float
  const char* ends;   // %y from %v: values of x that are known at once
  bool limited;       // degrees above 128 (of a float) or 512 are NaN
  ProgramFamily* family;
};

constexpr int kSteps = 32;  // per launch

// Operands: out, x, n, p and q. The first launch makes p and q.
std::string recurrence_text(const Recurrence& of, bool first) {
  std::string text = "program polynomial(out, x, n, p, q; step, limit)\neach:\n" + std::string(R"(
  %x = load x : $t
  %nn = load n : $t
  %n = trunc %nn
  %zero = const 0 : $t
  %one = const 1 : $t
  %two = const 2 : $t
  %start = param step : $t
)");
  text += first ? "  %p0 = add %zero, %one\n" + std::string(of.first) : "  %p0 = load p : $t\n  %q0 = load q : $t\n";
  for (int k = 1; k <= kSteps; ++k) {
    const std::string lines = "  %o{k} = const {j} : $t\n  %k{k} = add %start, %o{k}\n" + std::string(of.next) + R"(
  %on{k} = lt %k{k}, %n
  %p{k} = where %on{k}, %q{j}, %p{j}
  %q{k} = where %on{k}, %r{k}, %q{j}
)";
    text += replace_all(replace_all(lines, "{k}", std::to_string(k)), "{j}", std::to_string(k - 1));
  }
  const std::string last = std::to_string(kSteps);
  text += "  store p, %p" + last + "\n  store q, %q" + last + "\n  %v1 = add %q" + last + ", %zero\n";
  text += R"(
  %limit = param limit : $t
  %beyond = gt %n, %limit
  %nan = const nan : $t
  %v2 = where %beyond, %nan, %v1
  %is0 = eq %n, %zero
  %v = where %is0, %one, %v2
)" + std::string(of.ends) +
          R"(
  %valid = ge %n, %zero
  %w = where %valid, %y, %zero
  store out, %w
)";
  return text;
}

ProgramFamily f_hermite_h, f_hermite_he, f_laguerre, f_legendre;

const Recurrence kHermiteH{"aten::special_hermite_polynomial_h",
                           "  %q0 = add %x, %x\n  %x2 = add %x, %x\n",
                           R"(
  %s{k} = mul %x2, %q{j}
  %t{k} = mul %k{k}, %two
  %u{k} = mul %t{k}, %p{j}
  %r{k} = sub %s{k}, %u{k}
)",
                           "  %y = add %v, %zero\n",
                           true,
                           &f_hermite_h};
const Recurrence kHermiteHe{"aten::special_hermite_polynomial_he",
                            "  %q0 = add %x, %zero\n",
                            R"(
  %s{k} = mul %x, %q{j}
  %u{k} = mul %k{k}, %p{j}
  %r{k} = sub %s{k}, %u{k}
)",
                            "  %y = add %v, %zero\n",
                            true,
                            &f_hermite_he};
const Recurrence kLaguerre{"aten::special_laguerre_polynomial_l",
                           "  %q0 = sub %one, %x\n",
                           R"(
  %kk{k} = add %k{k}, %k{k}
  %ox{k} = sub %one, %x
  %s{k} = add %kk{k}, %ox{k}
  %t{k} = mul %s{k}, %q{j}
  %u{k} = mul %k{k}, %p{j}
  %d{k} = sub %t{k}, %u{k}
  %kn{k} = add %k{k}, %one
  %r{k} = div %d{k}, %kn{k}
)",
                           "  %at = eq %x, %zero\n  %y = where %at, %one, %v\n",
                           false,
                           &f_laguerre};
const Recurrence kLegendre{"aten::special_legendre_polynomial_p",
                           "  %q0 = add %x, %zero\n",
                           R"(
  %kk{k} = add %k{k}, %k{k}
  %km{k} = add %kk{k}, %one
  %s{k} = mul %km{k}, %x
  %t{k} = mul %s{k}, %q{j}
  %u{k} = mul %k{k}, %p{j}
  %d{k} = sub %t{k}, %u{k}
  %kn{k} = add %k{k}, %one
  %r{k} = div %d{k}, %kn{k}
)",
                           R"(
  %size = abs %x
  %at = eq %size, %one
  %rest = fmod %n, %two
  %odd = eq %rest, %one
  %left = lt %x, %zero
  %flip = and %odd, %left
  %minus = neg %one
  %end = where %flip, %minus, %one
  %y = where %at, %end, %v
)",
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
