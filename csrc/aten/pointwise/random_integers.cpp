// Random integers and coins, by the same generator as the distributions in random.cpp.
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/bernoulli_native.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/random_native.h>
#include <ATen/ops/random_ops.h>

#include <cmath>

#include "csrc/aten/dispatch/registration.h"
#include "csrc/aten/pointwise/random.h"

namespace torch_npu::random_integers_cpp {
namespace {

using Gen = std::optional<at::Generator>;

TypedProgram k_random_range(R"(
formula random_range(out; seed, offset, range: u64, base): i64
each:
  %bits = shl(philox(seed, offset, index(0), 1), 32) or philox(seed, offset, index(0), 0)
  out = i64(u64(%bits) % range) + base
)");

TypedProgram k_random_bits(R"(
formula random_bits(out; seed, offset): i64
each:
  %bits = shl(philox(seed, offset, index(0), 1), 32) or philox(seed, offset, index(0), 0)
  out = %bits
)");

void random_range(const at::Tensor& self, uint64_t range, int64_t base, const Gen& generator) {
  constexpr const char* label = "aten::random_";
  numeric_dtype(self.scalar_type(), label);
  fill_dense(self, [&](const at::Tensor& out) {
    RandomNest nest(label, out.numel(), out, generator);
    nest.integer(static_cast<int64_t>(range)).integer(base).run(k_random_range.of(NPU_I64));
  });
}

void launch_random_from_to(at::TensorIteratorBase& iter, const uint64_t range, const int64_t base, Gen generator) {
  random_range(iter.tensor(0), range, base, generator);
}

void launch_random_full(at::TensorIteratorBase& iter, Gen generator) {
  constexpr const char* label = "aten::random_";
  const at::Tensor self = iter.tensor(0);
  numeric_dtype(self.scalar_type(), label);
  fill_dense(self, [&](const at::Tensor& out) {
    RandomNest(label, out.numel(), out, generator).run(k_random_bits.of(NPU_I64));
  });
}

// Without bounds: all non-negative numbers of an integer type, all integers that a float type holds exactly.
uint64_t natural_range(npu_dtype type) {
  switch (type) {
    case NPU_BOOL:
      return 2;
    case NPU_U8:
      return uint64_t{1} << 8;
    case NPU_I8:
      return uint64_t{1} << 7;
    case NPU_U16:
      return uint64_t{1} << 16;
    case NPU_I16:
      return uint64_t{1} << 15;
    case NPU_U32:
      return uint64_t{1} << 32;
    case NPU_I32:
      return uint64_t{1} << 31;
    case NPU_U64:
    case NPU_I64:
      return uint64_t{1} << 63;
    default:
      return (uint64_t{1} << digits_of(type)) + 1;
  }
}

void launch_random(at::TensorIteratorBase& iter, Gen generator) {
  const at::Tensor self = iter.tensor(0);
  random_range(self, natural_range(numeric_dtype(self.scalar_type(), "aten::random_")), 0, generator);
}

TypedProgram k_bernoulli(R"(
formula bernoulli(out; seed, offset, threshold): i64
each:
  out = philox(seed, offset, index(0), 0) < threshold
)");

TypedProgram k_bernoulli_tensor(R"(
formula bernoulli_tensor(out, p: f64; seed, offset): i64
each:
  %u = f64(philox(seed, offset, index(0), 0)) * 2.3283064365386963e-10
  out = %u < p
)");

void launch_bernoulli(const at::TensorBase& self, const double p, Gen generator) {
  constexpr const char* label = "aten::bernoulli_";
  numeric_dtype(self.scalar_type(), label);
  fill_dense(at::Tensor(self), [&](const at::Tensor& out) {
    RandomNest nest(label, out.numel(), out, generator);
    nest.integer(static_cast<int64_t>(std::llround(std::ldexp(p, 32)))).run(k_bernoulli.of(NPU_I64));
  });
}

void launch_bernoulli_tensor(const at::TensorBase& base, const at::TensorBase& probability, Gen generator) {
  constexpr const char* label = "aten::bernoulli_";
  const at::Tensor self(base);
  numeric_dtype(self.scalar_type(), label);
  numeric_dtype(probability.scalar_type(), label);
  const at::Tensor p = at::Tensor(probability).to(self.device()).expand(self.sizes()).contiguous();
  const at::Tensor out = self.is_contiguous() ? self : at::empty_like(self, at::MemoryFormat::Contiguous);
  if (self.numel() == 0) {
    return;
  }
  RandomNest nest(label, out.numel(), out, generator);
  nest.with(p, {1});
  nest.run(k_bernoulli_tensor.of(NPU_F64));
  if (!out.is_same(self)) {
    self.copy_(out);
  }
}

using at::Tensor;

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace n = at::native;
  register_native<at::_ops::random_, static_cast<Tensor& (*)(Tensor&, Gen)>(n::random_)>(m);
  register_native<at::_ops::random__to, static_cast<Tensor& (*)(Tensor&, int64_t, Gen)>(n::random_)>(m);
  register_native<at::_ops::random__from,
                  static_cast<Tensor& (*)(Tensor&, int64_t, std::optional<int64_t>, Gen)>(n::random_)>(m);
  register_native<at::_ops::bernoulli__float, static_cast<Tensor& (*)(Tensor&, double, Gen)>(n::bernoulli_)>(m);
  register_native<at::_ops::bernoulli__Tensor, static_cast<Tensor& (*)(Tensor&, const Tensor&, Gen)>(n::bernoulli_)>(m);
  register_native<at::_ops::bernoulli_out, n::bernoulli_out>(m);
}

}  // namespace
}  // namespace torch_npu::random_integers_cpp

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(random_from_to_stub, &torch_npu::random_integers_cpp::launch_random_from_to)
REGISTER_PRIVATEUSE1_DISPATCH(random_full_64_bits_range_stub, &torch_npu::random_integers_cpp::launch_random_full)
REGISTER_PRIVATEUSE1_DISPATCH(random_stub, &torch_npu::random_integers_cpp::launch_random)
REGISTER_PRIVATEUSE1_DISPATCH(bernoulli_scalar_stub, &torch_npu::random_integers_cpp::launch_bernoulli)
REGISTER_PRIVATEUSE1_DISPATCH(bernoulli_tensor_stub, &torch_npu::random_integers_cpp::launch_bernoulli_tensor)
}  // namespace at::native
