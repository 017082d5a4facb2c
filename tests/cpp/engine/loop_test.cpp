// Compiled loops: every instruction that they know, every kind of argument and of type, in place.
// With less than AVX2 the same programs run instruction by instruction.
#include "drivers/cmodel/jit/jit.h"
#include "drivers/cmodel/plan/lifted.h"
#include "tests/cpp/engine/loop_case.h"

using namespace engine_test;

namespace {

constexpr const char* kEveryInstruction = R"(program every(x, y, flag, out, chosen; k)
each:
  %x = load x : f32
  %y = load y : f32
  %f = load flag : bool
  %k = param k : f32
  %half = const 0.5 : f32
  %a = add %x, %y
  %s = sub %a, %k
  %m = mul %s, %y
  %d = div %m, %half
  %fma = fma %d, %x, %k
  %neg = neg %fma
  %abs = abs %x
  %root = sqrt %abs
  %r = sqrt %x
  %i = reciprocal %y
  %low = min %x, %y
  %high = max %x, %y
  %flow = fmin %x, %y
  %fhigh = fmax %x, %y
  %floor = floor %d
  %ceil = ceil %x
  %round = round %m
  %trunc = trunc %s
  %eq = eq %x, %y
  %ne = ne %x, %y
  %lt = lt %x, %y
  %le = le %x, %k
  %gt = gt %x, %y
  %ge = ge %y, %half
  %nan = isnan %x
  %b0 = and %eq, %f
  %b1 = or %b0, %lt
  %b2 = xor %b1, %ne
  %b3 = not %le
  %b4 = or %b2, %b3
  %b5 = and %gt, %ge
  %b6 = or %b5, %nan
  %chosen = xor %b4, %b6
  %w = where %chosen, %neg, %root
  %w0 = where %f, %r, %i
  %t0 = add %low, %high
  %t1 = mul %flow, %fhigh
  %t2 = max %floor, %ceil
  %t3 = min %round, %trunc
  %u0 = fmin %t0, %t1
  %u1 = fmax %t2, %t3
  %u2 = where %b3, %u0, %u1
  %u3 = fmax %w, %w0
  %out = where %b6, %u2, %u3
  store out, %out
  store chosen, %chosen
)";

constexpr const char* kMoreInstructions = R"(program more(x, y, flag, out, chosen; k)
each:
  %x = load x : f32
  %y = load y : f32
  %f = load flag : bool
  %k = param k : f32
  %sign = sign %x
  %copied = copysign %y, %x
  %inf = isinf %x
  %negative = signbit %y
  %one = cast %f : f32
  %two = cast %f via f32 : f32
  %set = cast %x : bool
  %bf = cast %y via bf16 : f32
  %half = cast %y via f16 : f32
  %sum = add %one, %two
  %s0 = mul %sum, %sign
  %s1 = sub %bf, %half
  %s2 = fma %s0, %k, %s1
  %b0 = xor %inf, %negative
  %b1 = or %b0, %set
  %b2 = and %b1, %f
  %out = where %b2, %s2, %copied
  store out, %out
  store chosen, %b1
)";

}  // namespace

TEST(every_instruction_of_a_compiled_loop) {
  for (int64_t rows : {1, 3, 40})
    for (int64_t cols : {1, 15, 16, 17, 33, 700, 5000})
      for (int kind = 0; kind < 6; ++kind) {  // y: dense, one value, per row, per column, transposed, bf16
        Case k(NPU_MAP, {rows, cols});
        k.add(k.block(values(rows * cols, 1)), NPU_F32, {cols, 1});
        if (kind == 5) {
          std::vector<uint16_t> y;
          for (float v : values(rows * cols, 2)) {
            uint32_t bits;
            std::memcpy(&bits, &v, sizeof bits);
            y.push_back(static_cast<uint16_t>(bits >> 16));
          }
          k.add(k.block(y), NPU_BF16, {cols, 1});
        } else {
          k.add(k.block(values(rows * cols, 2)), NPU_F32,
                kind == 0   ? std::vector<int64_t>{cols, 1}
                : kind == 1 ? std::vector<int64_t>{0, 0}
                : kind == 2 ? std::vector<int64_t>{1, 0}
                : kind == 3 ? std::vector<int64_t>{0, 1}
                            : std::vector<int64_t>{1, rows});
        }
        k.add(k.block(flags(rows * cols)), NPU_BOOL,
              kind == 2 ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{cols, 1});
        k.add(k.block(rows * cols, NPU_F32), NPU_F32, {cols, 1});
        k.add(k.block(rows * cols, NPU_BOOL), NPU_BOOL, {cols, 1});
        k.params = {number(1.25)};
        for (const char* text : {kEveryInstruction, kMoreInstructions}) {
          k.with(text);
          expect(k, std::to_string(rows) + " x " + std::to_string(cols) + ", kind " + std::to_string(kind));
        }
      }
}

// The same program as one kernel and, between multiplications by one, as a loop: the same bits, and near the truth.
TEST(functions_in_compiled_loops) {
  for (const char* name : {"exp", "exp2", "expm1", "sigmoid", "erf", "tanh", "log", "log1p"}) {
    std::vector<float> x = values(3000, 9);
    std::mt19937 random(5);
    std::uniform_real_distribution<float> any(-110.0f, 95.0f), near(-5.0f, 5.0f);
    for (size_t i = 500; i < x.size(); ++i) x[i] = i % 3 == 0 ? any(random) : near(random);
    for (size_t i = 2000; i < 2400; ++i) x[i] = std::ldexp(near(random), static_cast<int>(i % 290) - 150);
    x[2400] = -1.0f;
    std::vector<Bytes> results[2];
    for (const bool loop : {false, true}) {
      Case k(NPU_MAP, {3, 1000});
      k.add(k.block(x), NPU_F32, {1000, 1});
      k.add(k.block(std::vector<float>(3, 1.0f)), NPU_F32, {1, 0});
      k.add(k.block(3000, NPU_F32), NPU_F32, {1000, 1});
      const std::string f = std::string(" = ") + name + " %";
      k.with((loop ? "program p(x, one, out)\neach:\n  %x = load x : f32\n  %one = load one : f32\n"
                     "  %a = mul %x, %one\n  %b" +
                         f + "a\n  %c = mul %b, %one\n  store out, %c\n"
                   : "program p(x, one, out)\neach:\n  %x = load x : f32\n  %b" + f + "x\n  store out, %b\n")
                 .c_str());
      expect(k, name, {5e-7, 1e-38});
      std::string error;
      if (k.engine(results[loop], error) != NPU_OK) fail(error);
    }
    // To the bit, except for which NaN: the compiler may turn the operands of an addition round.
    for (size_t i = 0; i < x.size(); ++i) {
      float kernel, loop;
      std::memcpy(&kernel, results[0][2].data() + i * sizeof(float), sizeof(float));
      std::memcpy(&loop, results[1][2].data() + i * sizeof(float), sizeof(float));
      if (std::memcmp(&kernel, &loop, sizeof(float)) != 0 && !(std::isnan(kernel) && std::isnan(loop))) {
        fail(std::string(name) + " of " + std::to_string(x[i]) + ": a kernel yields " + std::to_string(kernel) +
             ", a loop " + std::to_string(loop));
      }
    }
  }
}

TEST(rsqrt_in_a_compiled_loop) {
  Case k(NPU_MAP, {1000});
  k.add(k.block(values(1000, 1)), NPU_F32, {1});
  k.add(k.block(1000, NPU_F32), NPU_F32, {1});
  k.with(R"(program p(x, out)
each:
  %x = load x : f32
  %a = abs %x
  %r = rsqrt %a
  %out = mul %r, %x
  store out, %out
)");
  expect(k, "rsqrt", {2e-7});
}

// As an optimizer does: everything is read and written in place, some numbers are operands of one element.
TEST(compiled_loops_in_place) {
  const char* text = R"(program step(p, g, m, rate; beta)
each:
  %m = load m : f32
  %g = load g : f32
  %rate64 = load rate : f64
  %two = const 2 : f64
  %double = mul %rate64, %two
  %rate = cast %double : f32
  %beta = param beta : f32
  %d = sub %g, %m
  %m1 = fma %d, %beta, %m
  store m, %m1
  %p = load p : f32
  %c = mul %m1, %rate
  %p1 = sub %p, %c
  store p, %p1
)";
  for (int64_t n : {1, 31, 4096, 100000}) {
    for (bool one : {true, false}) {
      Case k(NPU_MAP, {n});
      k.add(k.block(values(n, 1)), NPU_F32, {1});
      k.add(k.block(values(n, 2)), NPU_F32, {1});
      k.add(k.block(values(n, 3)), NPU_F32, {1});
      std::vector<double> rate(static_cast<size_t>(n), 0.25);
      for (size_t i = 0; i < rate.size(); ++i) rate[i] += static_cast<double>(i % 4);
      k.add(k.block(rate), NPU_F64, {one ? 0 : 1});
      k.params = {number(0.5)};
      k.with(text);
      expect(k, std::to_string(n));
    }
  }
}

// Rates in F32: what depends on them alone is computed once where they are one value, and per point where not.
TEST(values_of_one_value_stay_outside_of_loops) {
  const char* text = R"(program step(p, g, rate, other, out; beta)
each:
  %g = load g : f32
  %rate = load rate : f32
  %beta = param beta : f32
  %two = const 2 : f32
  %square = mul %beta, %two
  %n = mul %rate, %square
  %e = exp %n
  %size = reciprocal %e
  %other = load other : f32
  %root = sqrt %other
  %both = div %size, %root
  %p = load p : f32
  %m = mul %g, %size
  %q = fma %m, %root, %p
  %r = sub %q, %both
  store out, %r
  store p, %q
)";
  for (const int dtype : {NPU_F32, NPU_BF16})
    for (const int64_t rows : {1, 3, 700})
      for (const int64_t cols : {1, 40, 3000})
        for (int kind = 0; kind < 4; ++kind) {  // both of one value, the first, the second, none
          if (rows * cols > 100000) continue;
          Case k(NPU_MAP, {rows, cols});
          const auto some = [&](uint32_t seed, std::vector<int64_t> strides) {
            k.add(k.block(stored(values(rows * cols, seed), dtype)), dtype, strides);
          };
          some(1, {cols, 1});
          some(2, {cols, 1});
          some(3, kind < 2 ? std::vector<int64_t>{0, 0} : std::vector<int64_t>{1, 0});
          some(4, kind % 2 == 0 ? std::vector<int64_t>{0, 0} : std::vector<int64_t>{cols, 1});
          k.add(k.block(rows * cols, dtype), dtype, {cols, 1});
          k.params = {number(0.01)};
          k.with(text);
          const double near = dtype == NPU_F32 ? 1e-5 : 1e-2;  // without FMA, too
          expect(k, std::to_string(rows) + " x " + std::to_string(cols) + ", " + std::to_string(kind), {near, 1e-3});
        }
  if (!cmodel::can_compile()) return;
  const npu::Program program = npu::parse(text);
  const auto plan = cmodel::make_plan(program);
  const cmodel::Program whole{program, plan};
  if (!plan->lifted) fail("expected values that can be computed once");
  cmodel::Operand operands[5];
  cmodel::Job job;
  job.program = &whole;
  job.operands = operands;
  job.command.rank = 1;
  job.command.size[0] = 100000;
  for (const int one : {0, 1, 2}) {  // operands of one value
    for (int i = 0; i < 5; ++i) operands[i].stride[0] = i == 2 && one > 0 ? 0 : i == 3 && one > 1 ? 0 : 1;
    const cmodel::Program* made = plan->lifted->plan_for(job);
    size_t members = 0;
    for (const cmodel::CompiledLoop& loop : (made ? made : &whole)->plan->loops) members += loop.members.size();
    const size_t expected[] = {8, 5, 3};  // of nine; one depends on no operand
    if (members != expected[one])
      fail("expected " + std::to_string(expected[one]) + ", got " + std::to_string(members));
    if (made != plan->lifted->plan_for(job)) fail("expected one plan for both commands");
  }
  job.command.size[0] = 4;
  if (plan->lifted->plan_for(job)) fail("expected few points to need no plan of their own");
}

// What is stored must be seen by a load of the same operand behind it, and the last of two stores stays.
TEST(compiled_loops_keep_the_order_of_stores) {
  const char* text = R"(program order(x, out)
each:
  %x = load x : f32
  %a = add %x, %x
  %b = mul %a, %x
  store out, %b
  %o = load out : f32
  %c = add %o, %a
  %d = mul %c, %x
  %e = sub %d, %a
  store out, %e
  store out, %d
)";
  Case k(NPU_MAP, {777});
  k.add(k.block(values(777, 4)), NPU_F32, {1});
  k.add(k.block(777, NPU_F32), NPU_F32, {1});
  k.with(text);
  expect(k, "order");
}

// bf16 and f16 are converted inside loops: one result by a loop in each mix of types, beside what F32 gives.
TEST(narrow_types_in_compiled_loops) {
  for (const int64_t columns : {1, 15, 16, 33, 1000, 5000})
    for (const int x : {NPU_BF16, NPU_F16, NPU_F32})
      for (const int y : {NPU_BF16, NPU_F16})
        for (const int out : {NPU_BF16, NPU_F16, NPU_F32}) {
          const int64_t rows = 3;
          Case k(NPU_MAP, {rows, columns});
          k.add(k.block(stored(values(rows * columns, 11), x)), x, {columns, 1});
          k.add(k.block(stored(values(rows * columns, 12), y)), y, {columns, 1});
          k.add(k.block(stored(values(columns, 13), y)), y, {0, 1});
          k.add(k.block(rows * columns, out), out, {columns, 1});
          k.add(k.block(rows * columns, NPU_BOOL), NPU_BOOL, {columns, 1});
          k.with(
              "program p(x, y, w, out, above)\neach:\n  %x = load x : f32\n  %y = load y : f32\n  %w = load w : f32\n"
              "  %a = add %x, %y\n  %b = mul %a, %w\n  %c = gt %b, %x\n  %d = where %c, %b, %y\n  store out, %d\n"
              "  store above, %c\n");
          expect(k, std::to_string(columns) + ", types " + std::to_string(x) + " " + std::to_string(y) + " " +
                        std::to_string(out));
        }
}

TEST(narrow_types_in_place_and_read_elsewhere) {
  // Stored where it was loaded from; loaded again behind that; and a value that something else reads as well.
  for (const int dtype : {NPU_BF16, NPU_F16})
    for (const int64_t n : {5, 700, 9000}) {
      Case k(NPU_MAP, {n});
      k.add(k.block(stored(values(n, 21), dtype)), dtype, {1});
      k.add(k.block(stored(values(n, 22), dtype)), dtype, {1});
      k.add(k.block(n, NPU_I32), NPU_I32, {1});
      k.with(
          "program p(x, y, out)\neach:\n  %x = load x : f32\n  %y = load y : f32\n  %a = add %x, %y\n"
          "  %b = mul %a, %x\n  store x, %b\n  %i = cast %a : i32\n  %z = load x : f32\n  %c = sub %z, %y\n"
          "  %d = max %c, %a\n  store y, %d\n  store out, %i\n");
      expect(k, std::to_string(n));
    }
}
