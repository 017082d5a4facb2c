#include "csrc/aten/pointwise/random.h"

#include <ATen/native/UnaryOps.h>
#include <ATen/ops/cauchy_native.h>
#include <ATen/ops/cauchy_ops.h>
#include <ATen/ops/exponential_native.h>
#include <ATen/ops/exponential_ops.h>
#include <ATen/ops/geometric_native.h>
#include <ATen/ops/geometric_ops.h>
#include <ATen/ops/log_normal_native.h>
#include <ATen/ops/log_normal_ops.h>
#include <ATen/ops/normal_native.h>
#include <ATen/ops/normal_ops.h>
#include <ATen/ops/uniform_native.h>
#include <ATen/ops/uniform_ops.h>

#include <cmath>
#include <limits>

#include "csrc/aten/dispatch/registration.h"
#include "csrc/core/random/generator.h"

namespace torch_npu {

RandomNest::RandomNest(const char* label, int64_t count, const at::Tensor& first,
                       const std::optional<at::Generator>& generator)
    : Nest(NPU_MAP, label, {count}) {
  const auto [seed, offset] = draw_philox(generator, first.device().index(), 4);
  with(first, {1});
  integer(static_cast<int64_t>(seed)).integer(static_cast<int64_t>(offset));
}

namespace {

using Gen = std::optional<at::Generator>;

// A distribution: a formula of uniform %u in (0, 1] and %v in [0, 1). 64-bit floats need two words for each.
struct Distribution {
  const char* label;
  const char* formula;
  ProgramFamily family;

  DeviceProgram& of(npu_dtype compute) {
    return family.get(0, compute, [&] {
      const int wide = compute == NPU_F64;
      const bool two = std::string(formula).find("%v") != std::string::npos;
      return std::string("formula random(out; seed: i64, offset: i64, a, b)\neach:\n") + kFirst[wide] +
             (two ? kSecond[wide] : "") + "  out = " + formula + "\n";
    });
  }

 private:
  static constexpr const char* kFirst[] = {
      "  %u = number(philox(seed, offset, index(0), 0) + 1) * 2.3283064365386963e-10\n",
      R"(
  %high = shl(and(philox(seed, offset, index(0), 1), 0x1fffff), 32)
  %u = number(or(%high, philox(seed, offset, index(0), 0)) + 1) * 1.1102230246251565e-16
)"};
  static constexpr const char* kSecond[] = {
      "  %v = number(philox(seed, offset, index(0), 1)) * 2.3283064365386963e-10\n", R"(
  %high = shl(and(philox(seed, offset, index(0), 3), 0x1fffff), 32)
  %v = number(or(%high, philox(seed, offset, index(0), 2))) * 1.1102230246251565e-16
)"};
};

#define NPU_DISTRIBUTION(name, formula)                             \
  Distribution& name() {                                            \
    static auto* d = new Distribution{"aten::" #name, formula, {}}; \
    return *d;                                                      \
  }

// Box-Muller.
#define NPU_NORMAL "sqrt(log(%u) * -2) * cos(%v * 6.283185307179586) * b + a"
NPU_DISTRIBUTION(normal_, NPU_NORMAL " + 0")
NPU_DISTRIBUTION(log_normal_, "exp(" NPU_NORMAL ")")
// u near 1 would give 0, which the distribution excludes.
NPU_DISTRIBUTION(exponential_, "-min(log(%u), b) / a")
NPU_DISTRIBUTION(geometric_, "max(ceil(log(%u) / log1p(-a)), 1)")
NPU_DISTRIBUTION(cauchy_,
                 "tan((min(max(%u, 1.1920928955078125e-07), 0.9999998807907104) - 0.5) * 3.141592653589793) * b + a")

void sample(const at::Tensor& self, Distribution& distribution, double a, double b, const Gen& generator,
            bool integers = false) {
  npu_dtype compute = compute_dtype(numeric_dtype(self.scalar_type(), distribution.label));
  if (!is_float(compute)) {
    if (!integers || compute == NPU_BOOL) {
      throw Unsupported(distribution.label);
    }
    compute = NPU_F64;
  }
  fill_dense(self, [&](const at::Tensor& out) {
    RandomNest nest(distribution.label, out.numel(), out, generator);
    nest.number(a).number(b).run(distribution.of(compute));
  });
}

ProgramFamily f_uniform;

void launch_uniform(at::TensorIteratorBase& iter, const double from, const double to, Gen generator) {
  constexpr const char* label = "aten::uniform_";
  const at::Tensor& self = iter.tensor(0);
  const npu_dtype type = numeric_dtype(self.scalar_type(), label);
  const npu_dtype compute = compute_dtype(type);
  const int digits = digits_of(type);
  fill_dense(self, [&](const at::Tensor& out) {
    RandomNest nest(label, out.numel(), out, generator);
    nest.number(from).number(to - from).integer((int64_t{1} << digits) - 1).number(std::ldexp(1.0, -digits));
    nest.run(f_uniform.get(0, compute, [&] {
      // a + (b - a) * u; u in [0, 1) has as many bits as the type, so that no rounding reaches the end.
      const char* low = "philox(seed, offset, index(0), 0)";
      const std::string bits =
          compute == NPU_F64 ? std::string("or(shl(philox(seed, offset, index(0), 1), 32), ") + low + ")" : low;
      return "formula uniform(out; seed: i64, offset: i64, a, b, mask: i64, unit)\neach:\n  out = number(and(" + bits +
             ", mask)) * unit * b + a\n";
    }));
  });
}

void launch_normal(const at::TensorBase& self, const double mean, const double std, Gen generator) {
  sample(at::Tensor(self), normal_(), mean, std, generator);
}
void launch_log_normal(at::TensorIteratorBase& iter, const double mean, const double std, Gen generator) {
  sample(iter.tensor(0), log_normal_(), mean, std, generator);
}
void launch_exponential(at::TensorIteratorBase& iter, const double lambda, Gen generator) {
  const bool wide = iter.tensor(0).scalar_type() == at::kDouble;
  const double epsilon = wide ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  sample(iter.tensor(0), exponential_(), lambda, -epsilon / 2, generator);
}
void launch_geometric(at::TensorIteratorBase& iter, const double p, Gen generator) {
  sample(iter.tensor(0), geometric_(), p, 0, generator, /*integers=*/true);
}
void launch_cauchy(at::TensorIteratorBase& iter, const double median, const double sigma, Gen generator) {
  sample(iter.tensor(0), cauchy_(), median, sigma, generator);
}

using at::Tensor;

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace n = at::native;
  register_native<at::_ops::uniform_, n::uniform_>(m);
  register_native<at::_ops::normal_, n::normal_>(m);
  register_native<at::_ops::log_normal_, n::log_normal_>(m);
  register_native<at::_ops::exponential_, n::exponential_>(m);
  register_native<at::_ops::geometric_, n::geometric_>(m);
  register_native<at::_ops::cauchy_, n::cauchy_>(m);
  register_native<at::_ops::normal_Tensor_float, static_cast<Tensor (*)(const Tensor&, double, Gen)>(n::normal)>(m);
  register_native<at::_ops::normal_float_Tensor, static_cast<Tensor (*)(double, const Tensor&, Gen)>(n::normal)>(m);
  register_native<at::_ops::normal_Tensor_Tensor,
                  static_cast<Tensor (*)(const Tensor&, const Tensor&, Gen)>(n::normal)>(m);
  register_native<at::_ops::normal_Tensor_float_out,
                  static_cast<Tensor& (*)(const Tensor&, double, Gen, Tensor&)>(n::normal_out)>(m);
  register_native<at::_ops::normal_float_Tensor_out,
                  static_cast<Tensor& (*)(double, const Tensor&, Gen, Tensor&)>(n::normal_out)>(m);
  register_native<at::_ops::normal_Tensor_Tensor_out,
                  static_cast<Tensor& (*)(const Tensor&, const Tensor&, Gen, Tensor&)>(n::normal_out)>(m);
}

}  // namespace
}  // namespace torch_npu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(uniform_stub, &torch_npu::launch_uniform)
REGISTER_PRIVATEUSE1_DISPATCH(normal_stub, &torch_npu::launch_normal)
REGISTER_PRIVATEUSE1_DISPATCH(log_normal_stub, &torch_npu::launch_log_normal)
REGISTER_PRIVATEUSE1_DISPATCH(exponential_stub, &torch_npu::launch_exponential)
REGISTER_PRIVATEUSE1_DISPATCH(geometric_stub, &torch_npu::launch_geometric)
REGISTER_PRIVATEUSE1_DISPATCH(cauchy_stub, &torch_npu::launch_cauchy)
}  // namespace at::native
