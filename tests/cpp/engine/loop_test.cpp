// Compiled loops: every instruction that they know, every kind of argument, in place, and more values than registers.
// With less than AVX2 the same programs run instruction by instruction.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "drivers/cmodel/isa_level.h"
#include "drivers/cmodel/jit.h"
#include "drivers/cmodel/plan_lifted.h"
#include "engine_case.h"
#include "test.h"

namespace {

using namespace engine_test;

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

// Values with zeros of both signs, infinities and NaN among them.
std::vector<float> values(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-40f, 3e38f};
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out)
    x = random() % 5 == 0 ? special[random() % 7] : static_cast<float>(static_cast<int>(random() % 161) - 80) / 8;
  return out;
}

// Bytes of these numbers in a storage type; what does not fit is cut off.
std::vector<unsigned char> stored(const std::vector<float>& numbers, int dtype) {
  std::vector<unsigned char> out;
  for (const float x : numbers) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    if (dtype == NPU_BF16) bits >>= 16;
    if (dtype == NPU_F16) {
      const _Float16 half = static_cast<_Float16>(x);
      uint16_t word;
      std::memcpy(&word, &half, sizeof word);
      bits = word;
    }
    for (int i = 0; i < (dtype == NPU_F32 ? 4 : 2); ++i) out.push_back(static_cast<unsigned char>(bits >> (8 * i)));
  }
  return out;
}

std::vector<unsigned char> flags(int64_t n) {
  std::vector<unsigned char> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) out[i] = i % 3 == 0 ? 0 : i % 5 == 0 ? 7 : 1;
  return out;
}

void expect(Case& k, const std::string& what, Tolerance tolerance = {}) {
  const std::string text = k.compare(tolerance);
  if (!text.empty()) fail(what + ": " + text);
}

npu_scalar number(double x) {
  npu_scalar s{};
  s.f = x;
  return s;
}

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
    for (const cmodel::Group& group : (made ? made : &whole)->plan->groups) members += group.members.size();
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

TEST(processors_with_avx2_have_compiled_loops) {
  const char* wish = std::getenv("NPU_CMODEL_JIT");
  const bool off = cmodel::isa_level() == cmodel::IsaLevel::kBase || (wish && std::strcmp(wish, "off") == 0);
  if (cmodel::can_compile() == off) fail(off ? "expected no loops" : "expected loops");
}

// `count` values that are all read again at the end, BOOL ones and functions among them.
std::string wide_program(int count) {
  std::string text = "program wide(x, out)\neach:\n  %x = load x : f32\n  %s = add %x, %x\n  %v0 = mul %s, %x\n";
  const auto add = [&](const char* name, int i, const std::string& what) {
    text += std::string("  %") + name + std::to_string(i) + " = " + what + "\n";
  };
  const auto last = [](const char* name, int i) { return std::string("%") + name + std::to_string(i - 1); };
  for (int i = 1; i < count; ++i) {
    add("v", i, (i % 9 == 8 ? "tanh " : "add %x, ") + last("v", i));
    if (i % 7 == 3) add("b", i, "lt %x, " + last("v", i));
  }
  text += "  %t0 = sub %v0, %v" + std::to_string(count - 1) + "\n";
  for (int i = 1; i < count; ++i) {
    const std::string v = "%v" + std::to_string(i), both = last("t", i) + ", " + v;
    add("t", i, i % 7 == 3 ? "where %b" + std::to_string(i) + ", " + both : "max " + both);
  }
  return text + "  store out, %t" + std::to_string(count - 1) + "\n";
}

TEST(a_program_with_more_values_than_registers_in_compiled_loops) {
  for (const int count : {8, 11, 14, 17, 25, 30, 35, 50})
    for (const int64_t n : {5, 13, 5000}) {
      Case k(NPU_MAP, {n});
      k.add(k.block(values(n, 5)), NPU_F32, {1});
      k.add(k.block(n, NPU_F32), NPU_F32, {1});
      k.with(wide_program(count).c_str());
      expect(k, std::to_string(count) + " values", {5e-7, 1e-38});
      if (!cmodel::can_compile()) continue;
      if (cmodel::make_plan(k.program)->groups.size() != 1) fail("expected one loop for " + std::to_string(count));
    }
}

// Operands end where memory does: a loop that reads or writes too much does not survive it.
TEST(compiled_loops_at_the_end_of_memory) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto make = [&] {
    char* at = static_cast<char*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (at == MAP_FAILED || mprotect(at + page, page, PROT_NONE) != 0) fail("expected memory");
    return at;
  };
  const npu::Program program = npu::parse(
      "program p(x, flag, out, chosen)\neach:\n  %x = load x : f32\n  %f = load flag : bool\n  %a = add %x, %x\n"
      "  %b = where %f, %a, %x\n  %c = not %f\n  store out, %b\n  store chosen, %c\n");
  const auto plan = cmodel::make_plan(program);
  if (plan->groups.empty()) return;
  char* block[4] = {make(), make(), make(), make()};
  for (const cmodel::Storage storage : {cmodel::kOwn, cmodel::kBFloat, cmodel::kHalf})
    for (int64_t n = 1; n < 50; ++n) {
      const int64_t size = storage == cmodel::kOwn ? 4 : 2, sizes[4] = {size, 1, size, 1};
      cmodel::LoopArguments args{};
      for (int k = 0; k < 4; ++k) {
        args.pointer[k] = block[k] + page - n * sizes[k];
        std::memset(block[k], k == 1 ? 1 : 0, page);
        args.step[k] = 16 * sizes[k];
      }
      // 1 or 2 by the bits of all three formats, and -1 in front of the results.
      const uint32_t one = storage == cmodel::kOwn ? 0x3f800000u : storage == cmodel::kBFloat ? 0x3f80u : 0x3c00u;
      const uint32_t two = storage == cmodel::kOwn ? 0x40000000u : storage == cmodel::kBFloat ? 0x4000u : 0x4000u;
      for (int64_t i = 0; i < n; ++i) {
        std::memcpy(block[0] + page - (i + 1) * size, &one, static_cast<size_t>(size));
        block[1][page - 1 - i] = i % 3 == 0;
      }
      const cmodel::Group& group = plan->groups[0];
      const cmodel::Code* code =
          storage == cmodel::kOwn ? group.code.get() : group.variant(cmodel::Form::kPlain, uint64_t{storage} * 0x11);
      block[2][page - n * size - 1] = block[3][page - n - 1] = -1;
      (*code)(args, n);
      for (int64_t i = 0; i < n; ++i) {
        uint32_t got = 0;
        std::memcpy(&got, block[2] + page - (i + 1) * size, static_cast<size_t>(size));
        if (got != (i % 3 == 0 ? two : one) || block[3][page - 1 - i] != (i % 3 != 0))
          fail("point " + std::to_string(i) + " of " + std::to_string(n));
      }
      if (block[2][page - n * size - 1] != -1 || block[3][page - n - 1] != -1) fail("written before the results");
    }
  for (char* at : block) munmap(at, 2 * page);
}

TEST(sums_in_loops) {
  // Two sums that share a value, one of them also of something that a later segment computes again and stores; rows in
  // tiles of their own and several in one, every number small enough that any order of addition is exact.
  for (int64_t columns : {3, 15, 16, 33, 500, 1024, 2500, 5000})
    for (int64_t rows : {1, 4, 70})
      for (int dtype : {NPU_F32, NPU_BF16}) {
        std::vector<float> values(static_cast<size_t>(rows * columns));
        for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
        Case k(NPU_REDUCE, {rows, columns}, 1);
        k.add(k.block(values), NPU_F32, {columns, 1});
        k.add(k.block(std::vector<float>(values.begin(), values.begin() + columns)), NPU_F32, {0, 1});
        k.add(k.block(std::vector<float>(values.begin(), values.begin() + rows)), NPU_F32, {1, 0});
        k.add(k.block(rows * columns, dtype), dtype, {columns, 1});
        k.add(k.block(rows, NPU_F32), NPU_F32, {1, 0});
        k.with(
            "program p(x, w, m, out, sum)\nrow:\n  %m = load m : f32\neach:\n  %x = load x : f32\n  %w = load w : f32\n"
            "  %xw = mul %x, %w\n  %a = fold sum %xw\n  %d = sub %x, %m\n  %p = mul %d, %xw\n  %b = fold sum %p\n"
            "  %neg = neg %p\n  %most = fold max %neg\nrow:\n  %s = add %a, %b\n  %t = add %s, %most\n  store sum, %t\n"
            "each:\n  %y = load x : f32\n  %v = load w : f32\n  %e = sub %y, %m\n  %f = mul %e, %v\n"
            "  %g = fma %f, %y, %m\n  %h = max %g, %a\n  store out, %h\n");
        const std::string text = k.compare({});
        if (!text.empty()) fail(std::to_string(rows) + " x " + std::to_string(columns) + ": " + text);
      }
}

TEST(sums_in_loops_of_columns_and_of_everything) {
  // The same program folded along rows, where sums are held per column, and over one long row in pieces.
  for (int64_t columns : {1, 40, 3000})
    for (int64_t rows : {1, 9, 400}) {
      const bool all = rows == 1;
      std::vector<float> values(static_cast<size_t>(rows * columns * (all ? 50 : 1)));
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
      const int64_t n = static_cast<int64_t>(values.size());
      Case k(NPU_REDUCE, all ? std::vector<int64_t>{n} : std::vector<int64_t>{columns, rows}, 1);
      const std::vector<int64_t> strides = all ? std::vector<int64_t>{1} : std::vector<int64_t>{1, columns};
      k.add(k.block(values), NPU_F32, strides);
      k.add(k.block(values), NPU_F32, strides);
      k.add(k.block(all ? 1 : columns, NPU_F32), NPU_F32, all ? std::vector<int64_t>{0} : std::vector<int64_t>{1, 0});
      k.with(
          "program p(x, y, out)\neach:\n  %x = load x : f32\n  %y = load y : f32\n  %two = const 2 : f32\n"
          "  %d = sub %x, %two\n  %q = mul %d, %y\n  %s = fold sum %q\nrow:\n  store out, %s\n");
      const std::string text = k.compare({});
      if (!text.empty()) fail(std::to_string(rows) + " x " + std::to_string(columns) + ": " + text);
    }
}

TEST(sums_in_loops_that_read_folds) {
  // `get` stands where it is read, in the segment of the loop.
  for (const bool across : {false, true}) {
    const int64_t rows = 40, columns = 70;
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
    Case k(NPU_REDUCE, across ? std::vector{columns, rows} : std::vector{rows, columns}, 1);
    k.add(k.block(values), NPU_F32, across ? std::vector{int64_t{1}, columns} : std::vector{columns, int64_t{1}});
    k.add(k.block(across ? columns : rows, NPU_F32), NPU_F32, {1, 0});
    k.with(
        "program p(x, out)\neach:\n  %x = load x : f32\n  %m = fold max %x\neach:\n  %y = load x : f32\n"
        "  %n = get %m, 0 : f32\n  %d = sub %y, %n\n  %e = mul %d, %y\n  %s = fold sum %e\nrow:\n  store out, %s\n");
    expect(k, across ? "columns" : "rows");
  }
}

TEST(sums_that_are_stored_too) {
  // A sum stands before the last instruction of its loop, and what it folds is stored as well, one value per column.
  for (int64_t columns : {20, 600})
    for (int64_t rows : {3, 50}) {
      std::vector<float> values(static_cast<size_t>(rows * columns));
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
      Case k(NPU_REDUCE, {rows, columns}, 1);
      k.add(k.block(values), NPU_F32, {0, 1});
      k.add(k.block(values), NPU_F32, {columns, 1});
      k.add(k.block(rows * columns, NPU_F32), NPU_F32, {columns, 1});
      k.add(k.block(rows * columns, NPU_F32), NPU_F32, {columns, 1});
      k.add(k.block(rows, NPU_F32), NPU_F32, {1, 0});
      k.with(
          "program p(x, y, out, more, sum)\neach:\n  %x = load x : f32\n  %q = mul %x, %x\n  %s = fold sum %q\n"
          "  %y = load y : f32\n  %a = add %q, %y\n  %b = sub %a, %x\n  store out, %b\n  store more, %q\nrow:\n"
          "  store sum, %s\n");
      const std::string text = k.compare({});
      if (!text.empty()) fail(std::to_string(rows) + " x " + std::to_string(columns) + ": " + text);
    }
}

TEST(sums_of_columns_with_values_of_rows) {
  // The gradients of a norm's weight and bias: what is loaded is added up as well as what is computed from it, some
  // operands are one value per folded point, and a fold of the segment before gives one per column.
  for (int64_t columns : {16, 17, 50, 2600})
    for (int64_t rows : {1, 7, 9, 200}) {
      const auto small = [](int64_t n) {
        std::vector<float> out(static_cast<size_t>(n));
        for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
        return out;
      };
      Case k(NPU_REDUCE, {columns, rows}, 1);
      k.add(k.block(small(rows * columns)), NPU_F32, {1, columns});
      k.add(k.block(small(rows * columns + 3)), NPU_F32, {1, columns}, 3);
      k.add(k.block(small(2 * rows)), NPU_F32, {0, 2});
      k.add(k.block(columns, NPU_F32), NPU_F32, {1, 0});
      k.add(k.block(columns, NPU_F32), NPU_F32, {1, 0});
      k.with(
          "program p(g, x, mean, weight, bias; k)\neach:\n  %y = load x : f32\n  %most = fold max %y\neach:\n"
          "  %g = load g : f32\n  %x = load x : f32\n  %mean = load mean : f32\n  %k = param k : f32\n"
          "  %d = sub %x, %mean\n  %e = mul %d, %k\n  %h = add %e, %most\n  %p = mul %g, %h\n  %a = fold sum %p\n"
          "  %b = fold sum %g\nrow:\n  store weight, %a\n  store bias, %b\n");
      k.params = {number(2)};
      expect(k, std::to_string(rows) + " x " + std::to_string(columns));
    }
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

TEST(narrow_types_with_sums) {
  // Rows that are folded one by one, several in a tile, and columns; numbers that any order adds exactly.
  for (const int dtype : {NPU_BF16, NPU_F16})
    for (const int64_t columns : {3, 16, 33, 700, 5000})
      for (const bool across : {false, true}) {
        const int64_t rows = 5;
        std::vector<float> numbers(static_cast<size_t>(rows * columns));
        for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
        const std::vector<int64_t> size = across ? std::vector<int64_t>{columns, rows} : std::vector{rows, columns};
        const std::vector<int64_t> strides =
            across ? std::vector<int64_t>{1, columns} : std::vector{columns, int64_t{1}};
        Case k(NPU_REDUCE, size, 1);
        k.add(k.block(stored(numbers, dtype)), dtype, strides);
        k.add(k.block(stored(numbers, dtype)), dtype, strides);
        k.add(k.block(rows * columns, dtype), dtype, strides);
        k.add(k.block(size[0], NPU_F32), NPU_F32, {1, 0});
        k.with(
            "program p(x, y, out, sum)\neach:\n  %x = load x : f32\n  %y = load y : f32\n  %p = mul %x, %y\n"
            "  %q = sub %p, %y\n  %a = fold sum %q\n  %b = fold sum %x\nrow:\n  %s = add %a, %b\n  store sum, %s\n"
            "each:\n  %z = load x : f32\n  %v = load y : f32\n  %d = sub %z, %v\n  %e = max %d, %b\n  store out, %e\n");
        expect(k, std::to_string(columns));
      }
}

TEST(narrow_numbers_have_loops_of_their_own) {
  const npu::Program program = npu::parse(
      "program p(x, out)\neach:\n  %x = load x : f32\n  %a = const 0.5 : f32\n  %b = const 0.7 : f32\n"
      "  %c = mul %x, %b\n  %d = erf %c\n  %one = const 1 : f32\n  %e = add %one, %d\n  %h = mul %x, %a\n"
      "  %g = mul %h, %e\n  store out, %g\n");
  if (!cmodel::can_compile()) return;
  const auto plan = cmodel::make_plan(program);
  if (!plan->groups.empty() || !plan->narrow) fail("expected one kernel for F32 and a loop for bf16");
}

// A system that allows no new executable memory, from here on: programs that come now are interpreted.
TEST(no_compiled_loops_where_memory_may_not_be_executed) {
#ifdef PR_SET_MDWE
  const pid_t child = fork();
  if (child == 0) {
    if (prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) != 0) _exit(0);  // a kernel before 6.3
    Case k(NPU_MAP, {1, 700});
    k.add(k.block(values(700, 1)), NPU_F32, {700, 1});
    k.add(k.block(values(700, 2)), NPU_F32, {700, 1});
    k.add(k.block(flags(700)), NPU_BOOL, {700, 1});
    k.add(k.block(700, NPU_F32), NPU_F32, {700, 1});
    k.add(k.block(700, NPU_BOOL), NPU_BOOL, {700, 1});
    k.params = {number(1.25)};
    k.with(kEveryInstruction);
    const bool loops = !cmodel::make_plan(k.program)->groups.empty();
    _exit(loops ? 2 : cmodel::can_compile() ? 3 : k.compare().empty() ? 0 : 4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) fail("a child that may not make code ended with " + std::to_string(status));
#endif
}
