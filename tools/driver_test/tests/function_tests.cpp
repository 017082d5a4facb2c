// Approximated functions on every exponent, and in rows. With --exact, bit for bit.
#include <algorithm>
#include <bit>
#include <cmath>

#include "support/program/op_info.h"
#include "tools/driver_test/command/case.h"
#include "tools/driver_test/command/programs.h"

namespace driver_test {
namespace {

constexpr int kPerBinade = 4;
constexpr int64_t kPoints = 512 * kPerBinade + 1024;

// All exponents and both signs, then numbers of ordinary size.
float argument(int64_t i) {
  const auto hash = static_cast<uint32_t>(i) * 0x9e3779b9u;
  if (i >= 512 * kPerBinade) return std::ldexp(static_cast<float>(static_cast<int32_t>(hash)), -28);
  const uint32_t place = static_cast<uint32_t>(i) % kPerBinade;
  return std::bit_cast<float>(static_cast<uint32_t>(i) / kPerBinade << 23 | (place == 0   ? 0
                                                                             : place == 1 ? 0x7fffff
                                                                                          : hash >> 9));
}

Case norm(Random& random) {
  Case c(NPU_REDUCE, random_sizes(random, 1, 3), 1);
  const int dtype = random.chance(70) ? NPU_F32 : random.chance(50) ? NPU_BF16 : NPU_F16;
  c.output(random, dtype);
  c.input(random, dtype, Data::kSmall);
  Builder b("norm");
  const Id moments = b.emit(NPU_OP_FOLD, NPU_F32, b.load(1, NPU_F32), none, none, NPU_FOLD_WELFORD);
  b.segment(NPU_SEGMENT_ROW);
  const Id m2 = b.emit(NPU_OP_GET, NPU_F32, moments, none, none, 1);
  const Id count = b.emit(NPU_OP_GET, NPU_F32, moments, none, none, 2);
  const Id variance = b.op(NPU_OP_ADD, b.op(NPU_OP_DIV, m2, count), b.constant(NPU_F32, 1e-5));
  const Id scale = b.op(NPU_OP_RSQRT, variance);
  b.segment(NPU_SEGMENT_EACH);
  const Id distance = b.op(NPU_OP_SUB, b.load(1, NPU_F32), moments);
  const Id y = b.op(NPU_OP_MUL, distance, scale);
  b.store(0, b.op(NPU_OP_TANH, y));
  c.set(b);
  c.tolerance = Tolerance::ulp(4000, 1e-3);
  return c;
}

}  // namespace

RANDOM_TEST("REDUCE: norm with an activation", norm);

TEST("MAP: every function on every exponent, of memory and of a parameter") {
  Rig rig(context);
  Random random = context.random();
  for (const Inexact& f : inexact_ops()) {
    const int args = npu::op_info(f.op).args;
    Case c(NPU_MAP, {kPoints});
    Builder b("function");
    c.output(random, NPU_F32, true);
    Id ids[2] = {none, none};
    for (int k = 0; k < args; k++) {
      ids[k] = b.load(c.input(random, NPU_F32, Data::kZero, true), NPU_F32);
      Buffer& values = c.buffers.back();
      for (int64_t i = 0; i < kPoints; i++)
        put(values, c.offset_of(static_cast<uint32_t>(k + 1)) + i, argument(k ? i * 997 % kPoints : i));
    }
    b.store(0, b.emit(f.op, NPU_F32, ids[0], ids[1]));
    c.set(b);
    c.tolerance = Tolerance::ulp(f.ulp, f.absolute);
    c.sharpen(context);
    c.run(rig);
    // A driver may compute what is the same everywhere in another place.
    for (int64_t i = 3; i < kPoints; i += 97) {
      Case one(NPU_MAP, {1});
      Builder p("parameter");
      one.output(random, NPU_F32, true);
      const Id a = p.param(NPU_F32, 0);
      p.store(0, p.emit(f.op, NPU_F32, a, args > 1 ? p.param(NPU_F32, 1) : none));
      one.set(p);
      for (int k = 0; k < args; k++) {
        npu_scalar value{};
        value.f = argument(k ? i * 997 % kPoints : i);
        one.params.push_back(value);
      }
      one.tolerance = c.tolerance;
      one.sharpen(context);
      one.run(rig);
    }
  }
  conclude(context);
}

}  // namespace driver_test
