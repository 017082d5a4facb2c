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

std::string draw_lines(int words) {
  std::string lines = "  %seed = param seed : i64\n  %offset = param offset : i64\n  %i = index 0\n";
  return lines + per_dimension(words, "  %w{d} = philox %seed, %offset, %i, {d}\n");
}

RandomNest::RandomNest(const char* label, int64_t count, const at::Tensor& first,
                       const std::optional<at::Generator>& generator)
    : Nest(NPU_MAP, label, {count}) {
  const auto [seed, offset] = draw_philox(generator, first.device().index(), 4);
  with(first, {1});
  integer(static_cast<int64_t>(seed)).integer(static_cast<int64_t>(offset));
}

namespace {

using Gen = std::optional<at::Generator>;

// A distribution: its program for 32-bit and for 64-bit floats, which need more bits. Both end in %r.
struct Distribution {
  const char* label;
  std::string lines32;
  std::string lines64;
  ProgramFamily family;

  DeviceProgram& of(npu_dtype compute) {
    return family.get(0, compute, [&] {
      return "program random(out; seed, offset, a, b)\neach:\n" + (compute == NPU_F64 ? lines64 : lines32) +
             "  store out, %r\n";
    });
  }
};

// %u uniform in (0, 1], from one or two words; %v in [0, 1) from further ones.
const char* const kOpen32 = R"(
  %one = const 1 : i64
  %wu = add %w0, %one
  %fu = cast %wu : $t
  %scale = const 2.3283064365386963e-10 : $t
  %u = mul %fu, %scale
)";
const char* const kSecond32 = R"(
  %fv = cast %w1 : $t
  %v = mul %fv, %scale
)";
const char* const kOpen64 = R"(
  %one = const 1 : i64
  %low = const 0x1fffff : i64
  %by = const 32 : i64
  %h1 = and %w1, %low
  %s1 = shl %h1, %by
  %b1 = or %s1, %w0
  %wu = add %b1, %one
  %fu = cast %wu : $t
  %scale = const 1.1102230246251565e-16 : $t
  %u = mul %fu, %scale
)";
const char* const kSecond64 = R"(
  %h3 = and %w3, %low
  %s3 = shl %h3, %by
  %b3 = or %s3, %w2
  %fv = cast %b3 : $t
  %v = mul %fv, %scale
)";
// Box-Muller.
const char* const kNormal = R"(
  %log = log %u
  %minus2 = const -2 : $t
  %l2 = mul %log, %minus2
  %radius = sqrt %l2
  %pi2 = const 6.283185307179586 : $t
  %angle = mul %v, %pi2
  %cos = cos %angle
  %n = mul %radius, %cos
  %mean = param a : $t
  %std = param b : $t
  %ns = mul %n, %std
  %normal = add %ns, %mean
)";

std::string with_two(const std::string& lines, bool wide) {
  return wide ? draw_lines(4) + kOpen64 + kSecond64 + lines : draw_lines(2) + kOpen32 + kSecond32 + lines;
}
std::string with_one(const std::string& lines, bool wide) {
  return wide ? draw_lines(2) + kOpen64 + lines : draw_lines(1) + kOpen32 + lines;
}

#define NPU_DISTRIBUTION(name, with, lines)                                                               \
  Distribution& name() {                                                                                  \
    static Distribution* d = new Distribution{"aten::" #name, with(lines, false), with(lines, true), {}}; \
    return *d;                                                                                            \
  }

// a + (b - a) * u; u in [0, 1) has as many bits as the type, so that no rounding reaches the end.
const char* const kUniform = R"(
  %mask = param mask : i64
  %m = and %bits, %mask
  %f = cast %m : $t
  %unit = param unit : $t
  %x = mul %f, %unit
  %from = param a : $t
  %range = param b : $t
  %y = mul %x, %range
  %r = add %y, %from
)";

NPU_DISTRIBUTION(normal_, with_two, std::string(kNormal) + "  %zero = const 0 : $t\n  %r = add %normal, %zero\n")
NPU_DISTRIBUTION(log_normal_, with_two, std::string(kNormal) + "  %r = exp %normal\n")
// u near 1 would give 0, which the distribution excludes.
NPU_DISTRIBUTION(exponential_, with_one, R"(
  %log = log %u
  %least = param b : $t
  %l = min %log, %least
  %lambda = param a : $t
  %neg = neg %l
  %r = div %neg, %lambda
)")
NPU_DISTRIBUTION(geometric_, with_one, R"(
  %log = log %u
  %p = param a : $t
  %q = neg %p
  %lq = log1p %q
  %ratio = div %log, %lq
  %up = ceil %ratio
  %first = const 1 : $t
  %r = max %up, %first
)")
NPU_DISTRIBUTION(cauchy_, with_one, R"(
  %eps = const 1.1920928955078125e-07 : $t
  %top = const 0.9999998807907104 : $t
  %u1 = max %u, %eps
  %u2 = min %u1, %top
  %half = const 0.5 : $t
  %c = sub %u2, %half
  %pi = const 3.141592653589793 : $t
  %angle = mul %c, %pi
  %tan = tan %angle
  %median = param a : $t
  %sigma = param b : $t
  %ts = mul %tan, %sigma
  %r = add %ts, %median
)")

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
      const std::string bits =
          compute == NPU_F64 ? draw_lines(2) + "  %by = const 32 : i64\n  %h = shl %w1, %by\n  %bits = or %h, %w0\n"
                             : draw_lines(1) + "  %none = const 0 : i64\n  %bits = or %w0, %none\n";
      return "program uniform(out; seed, offset, a, b, mask, unit)\neach:\n" + bits + kUniform + "  store out, %r\n";
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
