// The sequences of codegen/functions.ops: valid programs, and close to the functions that they stand for.
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "support/program/approximation.h"
#include "support/program/op_info.h"
#include "support/reference/evaluate.h"
#include "support/reference/functions.h"
#include "tests/cpp/support/command.h"

namespace {

// In double, where every function of two f32 is good enough to be the truth.
double truth(int op, float a, float b) {
  npu_instr in{};
  in.op = static_cast<uint8_t>(op);
  in.dtype = NPU_F64;
  npu::Value x{}, y{};
  x.f64 = a, y.f64 = b;
  return npu::evaluate(in, NPU_F64, x, y, {}).f64;
}

// Units in the last place of the true value; infinite where a NaN, an infinity or the sign of a zero is wrong.
double error(double want, float got) {
  const auto nearest = static_cast<float>(want);
  if (std::isnan(want)) return std::bit_cast<uint32_t>(got) == 0x7fc00000 ? 0 : HUGE_VAL;
  if (std::isnan(got)) return HUGE_VAL;
  // What rounds to an infinity is one; only in the last half unit below 2^128 the largest number is as good. An
  // infinity before that counts as 2^128.
  if (std::isinf(nearest)) {
    const double largest = std::copysign(double{std::numeric_limits<float>::max()}, want);
    return got == nearest || (std::abs(want) < 0x1p128 && got == largest) ? 0 : HUGE_VAL;
  }
  const double reached = std::isinf(got) ? std::copysign(0x1p128, got) : got;
  if (got == 0 && nearest == 0) return std::signbit(got) == std::signbit(want) ? 0 : HUGE_VAL;
  const int exponent = want == 0 ? -149 : std::max(std::ilogb(want) - 23, -149);
  return std::abs(reached - want) / std::ldexp(1.0, exponent);
}

struct Worst {
  double ulp = 0;
  float a = 0, b = 0;
};

void check(int op, float a, float b, Worst& worst) {
  const double want = truth(op, a, b);
  const float got = npu::run_sequence(op, a, b);
  const double ulp = error(want, got);
  // The page allows more for sin, cos and tan of large arguments; the sequences do not need it.
  const double absolute = op == NPU_OP_LGAMMA || op == NPU_OP_DIGAMMA ? npu::approximation(op).absolute : 0;
  if (ulp <= worst.ulp || (std::isfinite(ulp) && std::abs(got - want) <= absolute)) return;
  worst = {ulp, a, b};
}

// All exponents and both signs, with the ends of each binade and others between, and the smallest numbers; then the
// range where most things happen.
template <class Each>
void arguments(int per_binade, int between, Each each) {
  for (uint32_t top = 0; top < 512; ++top)
    for (int k = 0; k < per_binade; ++k) {
      const uint32_t low = k == 0 ? 0 : k == 1 ? 0x7fffff : static_cast<uint32_t>(k) * 0x9e3779b9u >> 9;
      each(std::bit_cast<float>(top << 23 | low));
    }
  for (uint32_t units = 1; units <= 16; ++units)
    for (uint32_t sign : {0u, 0x80000000u}) each(std::bit_cast<float>(sign | units));
  for (int k = 0; k <= between; ++k) each(-20 + 40 * static_cast<float>(k) / static_cast<float>(between));
  for (int k = 0; k <= between; ++k) each(-1.0625f + 2.125f * static_cast<float>(k) / static_cast<float>(between));
}

}  // namespace

TEST(every_sequence_is_a_valid_program) {
  int count = 0;
  for (int op = 0; op < NPU_OP_COUNT; ++op) {
    const npu::Program* program = npu::sequence(op);
    if (!program) continue;
    ++count;
    EQUAL_NOTE(npu::validate(program->desc()), "", npu::op_name(op));
    EQUAL_NOTE(program->operand_count, npu::op_info(op).args + 1u, npu::op_name(op));
    CHECK(npu::approximation(op).ulp > 0);
    CHECK(program->instrs.size() < 256);
    CHECK(npu::is_defined(op, NPU_F32) && !npu::is_defined(op, NPU_F64));
  }
  CHECK(count >= 10);
}

TEST(sequences_keep_the_accuracy_of_the_page) {
  const char* dense = std::getenv("NPU_FUNCTION_POINTS");  // per binade; with it, errors are printed
  const int points = dense ? std::atoi(dense) : 24;
  for (int op = 0; op < NPU_OP_COUNT; ++op) {
    const npu::Program* program = npu::sequence(op);
    if (!program) continue;
    Worst worst;
    if (program->operand_count == 2) {
      arguments(points, points * 100, [&](float a) { check(op, a, 0, worst); });
    } else {
      const int few = std::max(2, points / 12);
      arguments(few, few * 50, [&](float a) { arguments(1, 8, [&](float b) { check(op, a, b, worst); }); });
    }
    if (dense) std::printf("%-8s %6.2f at %.9g, %.9g\n", npu::op_name(op), worst.ulp, worst.a, worst.b);
    if (worst.ulp > (npu::approximation(op).ulp > 4 ? 12 : 3))
      harness::report(__FILE__, __LINE__,
                      std::string(npu::op_name(op)) + ": " + std::to_string(worst.ulp) + " units off at " +
                          std::to_string(worst.a) + ", " + std::to_string(worst.b));
  }
}

// From -3 down the zeros lie closer and closer to the integers, where large terms cancel.
TEST(lgamma_keeps_its_accuracy_near_its_zeros) {
  double factorial = 2;
  for (int n = 3; n < 10; ++n) {
    factorial *= n;
    Worst worst;
    for (int k = -512; k <= 512; ++k) {
      const double distance = std::exp2(k / 256.0) / factorial;
      for (double x : {-n - distance, -n + distance}) check(NPU_OP_LGAMMA, static_cast<float>(x), 0, worst);
    }
    if (worst.ulp > 12)
      harness::report(__FILE__, __LINE__,
                      "lgamma: " + std::to_string(worst.ulp) + " units off at " + std::to_string(worst.a));
  }
}
