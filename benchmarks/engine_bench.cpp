// Times the engine alone: ns per command for sizes 10 .. 10,000,000.
// Usage: npu-engine-bench [part of a name [smallest size [largest size]]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/threads/pool.h"

namespace {

using namespace cmodel;

struct Bench {
  npu_command c{};
  Program program;
  std::vector<Operand> operands;
  std::vector<char*> blocks;

  Bench(int kind, std::vector<int64_t> size, int inner, const char* text) {
    c.kind = static_cast<uint8_t>(kind);
    c.rank = static_cast<uint8_t>(size.size());
    c.inner_rank = static_cast<uint8_t>(inner);
    for (size_t d = 0; d < size.size(); ++d) c.size[d] = size[d];
    if (text) {
      program.source = npu::parse(text);
      program.plan = make_plan(program.source);
    }
  }
  ~Bench() {
    for (char* block : blocks) std::free(block);
  }
  Bench& add(int dtype, int64_t elements, std::vector<int64_t> stride) {
    const size_t bytes = static_cast<size_t>(elements * npu::dtype_size(dtype));
    char* block = static_cast<char*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
    std::memset(block, 0, bytes);
    for (int64_t i = 0; i < elements; ++i) {
      const float x = static_cast<float>(i % 257) / 64 - 2;
      if (dtype == NPU_F32) reinterpret_cast<float*>(block)[i] = x;
      if (dtype == NPU_BF16)
        reinterpret_cast<uint16_t*>(block)[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, x) >> 16);
    }
    blocks.push_back(block);
    Operand o;
    o.ptr = o.begin = block;
    o.end = block + bytes;
    o.dtype = static_cast<uint8_t>(dtype);
    for (size_t d = 0; d < stride.size(); ++d) o.stride[d] = stride[d];
    operands.push_back(o);
    return *this;
  }
  double run() {
    Job job;
    job.command = c;
    job.program = program.plan ? &program : nullptr;
    job.operands = operands.data();
    Failure failure;
    using Clock = std::chrono::steady_clock;
    double best = 1e18;
    int64_t repeat = 1;
    for (int round = 0; round < 12; ++round) {
      const auto start = Clock::now();
      for (int64_t i = 0; i < repeat; ++i) run_kind(job, failure);
      const double ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
      best = std::min(best, ns / static_cast<double>(repeat));
      if (ns < 2e6)
        repeat = static_cast<int64_t>(static_cast<double>(repeat) * std::min(100.0, 4e6 / std::max(ns, 1.0))) + 1;
    }
    return best;
  }
};

constexpr char kAdd[] = "  %r = add %x, %y\n  store out, %r\n";
constexpr char kRelu[] = "  %z = const 0 : f32\n  %r = max %x, %z\n  store out, %r\n";
constexpr char kExp[] = "  %r = exp %x\n  store out, %r\n";
constexpr char kTanh[] = "  %r = tanh %x\n  store out, %r\n";
constexpr char kGelu[] =
    "  %h = const 0.7071067811865476 : f32\n  %a = mul %x, %h\n  %b = erf %a\n  %o = const 1 : f32\n"
    "  %c = add %b, %o\n  %d = const 0.5 : f32\n  %e = mul %x, %d\n  %r = mul %e, %c\n  store out, %r\n";
constexpr char kSilu[] = "  %s = sigmoid %x\n  %r = mul %x, %s\n  store out, %r\n";
constexpr char kSiluMul[] = "  %s = sigmoid %x\n  %a = mul %x, %s\n  %r = mul %a, %y\n  store out, %r\n";
constexpr char kSum[] =
    "program s(x, out)\neach:\n  %x = load x : f32\n  %s = fold sum %x\n"
    "row:\n  %r = get %s, 0 : f32\n  store out, %r\n";
constexpr char kSoftmax[] =
    "program softmax(x, out)\neach:\n  %x = load x : f32\n  %m = fold max %x\n"
    "each:\n  %y = load x : f32\n  %n = get %m, 0 : f32\n  %d = sub %y, %n\n  %e = exp %d\n  store out, %e\n"
    "  %s = fold sum %e\nrow:\n  %t = get %s, 0 : f32\n  %i = reciprocal %t\n"
    "each:\n  %z = load out : f32\n  %r = mul %z, %i\n  store out, %r\n";
constexpr char kLayerNorm[] =
    "program ln(x, w, b, out)\neach:\n  %x = load x : f32\n  %f = fold welford %x\n"
    "row:\n  %m = get %f, 0 : f32\n  %v = get %f, 1 : f32\n  %n = get %f, 2 : f32\n  %q = div %v, %n\n"
    "  %p = const 1e-5 : f32\n  %a = add %q, %p\n  %i = rsqrt %a\n"
    "each:\n  %y = load x : f32\n  %d = sub %y, %m\n  %e = mul %d, %i\n  %w = load w : f32\n  %b = load b : f32\n"
    "  %r = fma %e, %w, %b\n  store out, %r\n";

std::string map_text(const std::string& body, bool two) {
  return std::string("program p(x") + (two ? ", y" : "") + ", out)\neach:\n  %x = load x : f32\n" +
         (two ? "  %y = load y : f32\n" : "") + body;
}

// A program of n instructions, every eighth a function.
std::string chain(int n) {
  std::string body = "  %a0 = mul %x, %x\n";
  for (int i = 1; i < n; ++i)
    body += "  %a" + std::to_string(i) + (i % 8 ? " = add %a" : " = sigmoid %a") + std::to_string(i - 1) +
            (i % 8 ? ", %x\n" : "\n");
  return body + "  store out, %a" + std::to_string(n - 1) + "\n";
}

// From a program's text to its plan, compiled loops included.
void time_plans() {
  using Clock = std::chrono::steady_clock;
  std::printf("%-14s", "plan");
  for (int n : {4, 40, 400}) {
    const npu::Program source = npu::parse(map_text(chain(n), false));
    double best = 1e18;
    for (int round = 0; round < 30; ++round) {
      const auto start = Clock::now();
      const auto plan = make_plan(source);
      best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - start).count());
    }
    std::printf(" %d: %9.0f", n, best);
  }
  std::printf("\n");
}

// One line: a case at sizes of n points, ten times as many each.
struct Lines {
  const char* only;
  int64_t smallest, largest;

  template <class Make>
  void line(const std::string& name, int64_t least, Make make) const {
    if (name.find(only) == std::string::npos) return;
    std::printf("%-14s", name.c_str());
    for (int64_t n = least; n <= largest; n *= 10)
      if (n >= smallest) std::printf(" 1e%d:%11.0f", static_cast<int>(std::to_string(n).size()) - 1, make(n)->run());
    std::printf("\n");
    std::fflush(stdout);
  }
  // A MAP over n points side by side.
  void map(const std::string& name, const std::string& body, bool two, int dtype = NPU_F32) const {
    line(name, 10, [&](int64_t n) {
      auto b = std::make_unique<Bench>(NPU_MAP, std::vector<int64_t>{n}, 0, map_text(body, two).c_str());
      for (int i = 0; i < (two ? 3 : 2); ++i) b->add(dtype, n, {1});
      return b;
    });
  }
  // Rows and columns. `bind` adds the operands.
  template <class Bind>
  void rows(const std::string& name, int kind, int inner, const char* text, Bind bind) const {
    line(name, 100, [&](int64_t n) {
      const int64_t c = n >= 100000 ? 1000 : n >= 1000 ? 100 : 10, r = n / c;
      auto b = std::make_unique<Bench>(kind, std::vector<int64_t>{r, c}, inner, text);
      bind(*b, r, c);
      return b;
    });
  }
};

}  // namespace

int main(int argc, char** argv) {
  const Lines lines{argc > 1 ? argv[1] : "", argc > 2 ? std::atoll(argv[2]) : 10,
                    argc > 3 ? std::atoll(argv[3]) : 10'000'000};
  std::printf("threads: %d\n", pool_threads());
  if (std::strstr("plan", lines.only)) time_plans();
  lines.map("chain of 40", chain(40), false);
  lines.map("add", kAdd, true);
  lines.map("relu", kRelu, false);
  lines.map("exp", kExp, false);
  lines.map("tanh", kTanh, false);
  lines.map("gelu", kGelu, false);
  lines.map("silu_mul", kSiluMul, true);
  lines.map("add bf16", kAdd, true, NPU_BF16);
  lines.map("silu bf16", kSilu, false, NPU_BF16);
  using I = int64_t;
  const std::string add = map_text(kAdd, true);
  lines.rows("add row", NPU_MAP, 0, add.c_str(), [](Bench& b, I r, I c) {
    b.add(NPU_F32, r * c, {c, 1}).add(NPU_F32, c, {0, 1}).add(NPU_F32, r * c, {c, 1});
  });
  lines.rows("add transposed", NPU_MAP, 0, add.c_str(), [](Bench& b, I r, I c) {
    b.add(NPU_F32, r * c, {c, 1}).add(NPU_F32, r * c, {1, r}).add(NPU_F32, r * c, {c, 1});
  });
  lines.rows("copy transposed", NPU_COPY, 0, nullptr,
             [](Bench& b, I r, I c) { b.add(NPU_F32, r * c, {c, 1}).add(NPU_F32, r * c, {1, r}); });
  lines.rows("copy bf16", NPU_COPY, 0, nullptr,
             [](Bench& b, I r, I c) { b.add(NPU_F32, r * c, {c, 1}).add(NPU_BF16, r * c, {c, 1}); });
  lines.rows("sum all", NPU_REDUCE, 2, kSum,
             [](Bench& b, I r, I c) { b.add(NPU_F32, r * c, {c, 1}).add(NPU_F32, 1, {0, 0}); });
  lines.rows("sum rows", NPU_REDUCE, 1, kSum,
             [](Bench& b, I r, I c) { b.add(NPU_F32, r * c, {c, 1}).add(NPU_F32, r, {1, 0}); });
  lines.rows("sum columns", NPU_REDUCE, 1, kSum, [](Bench& b, I r, I c) {
    std::swap(b.c.size[0], b.c.size[1]);
    b.add(NPU_F32, r * c, {1, c}).add(NPU_F32, c, {1, 0});
  });
  lines.rows("softmax", NPU_REDUCE, 1, kSoftmax,
             [](Bench& b, I r, I c) { b.add(NPU_F32, r * c, {c, 1}).add(NPU_F32, r * c, {c, 1}); });
  lines.rows("layer norm", NPU_REDUCE, 1, kLayerNorm, [](Bench& b, I r, I c) {
    b.add(NPU_F32, r * c, {c, 1}).add(NPU_F32, c, {0, 1}).add(NPU_F32, c, {0, 1}).add(NPU_F32, r * c, {c, 1});
  });
  return 0;
}
