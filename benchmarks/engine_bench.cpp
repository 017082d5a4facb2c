// Times the engine alone: ns per command for sizes 10 .. 10,000,000.
// Usage: npu-engine-bench [part of a name [smallest size [largest size]]]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/threads/pool.h"

namespace {

using namespace cmodel;

struct Bench {
  npu_command c{};
  Program program;
  std::vector<Operand> operands;
  std::vector<std::unique_ptr<char, void (*)(void*)>> blocks;

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
  void add(int dtype, int64_t elements, std::vector<int64_t> stride) {
    const size_t bytes = static_cast<size_t>(elements * npu::dtype_size(dtype));
    char* block = static_cast<char*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
    blocks.emplace_back(block, std::free);
    std::memset(block, 0, bytes);
    for (int64_t i = 0; i < elements; ++i) {
      const float x = static_cast<float>(i % 257) / 64 - 2;
      if (dtype == NPU_F32) reinterpret_cast<float*>(block)[i] = x;
      if (dtype == NPU_BF16)
        reinterpret_cast<uint16_t*>(block)[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, x) >> 16);
    }
    Operand o;
    o.ptr = o.begin = block;
    o.end = block + bytes;
    o.dtype = static_cast<uint8_t>(dtype);
    for (size_t d = 0; d < stride.size(); ++d) o.stride[d] = stride[d];
    operands.push_back(o);
  }
  double run() {
    Job job;
    job.command = c;
    job.program = program.plan ? &program : nullptr;
    job.operands = operands.data();
    Failure failure;
    auto once = [&] {
      switch (c.kind) {
        case NPU_COPY:
          return run_copy(job, failure);
        case NPU_REDUCE:
          return run_reduce(job, failure);
        case NPU_SCAN:
          return run_scan(job, failure);
        case NPU_SORT:
          return run_sort(job, failure);
        default:
          return run_map(job, failure);
      }
    };
    using Clock = std::chrono::steady_clock;
    double best = 1e18;
    int64_t repeat = 1;
    for (int round = 0; round < 12; ++round) {
      const auto start = Clock::now();
      for (int64_t i = 0; i < repeat; ++i) once();
      const double ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
      best = std::min(best, ns / static_cast<double>(repeat));
      if (ns < 2e6)
        repeat = static_cast<int64_t>(static_cast<double>(repeat) * std::min(100.0, 4e6 / std::max(ns, 1.0))) + 1;
    }
    return best;
  }
};

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

struct Range {
  int64_t smallest, largest;
};

void row(const std::string& name, Range range, int64_t first, const std::function<double(int64_t)>& run) {
  std::printf("%-14s", name.c_str());
  for (int64_t n = first; n <= range.largest; n *= 10)
    if (n >= range.smallest) std::printf(" 1e%d:%11.0f", static_cast<int>(std::to_string(n).size()) - 1, run(n));
  std::printf("\n");
  std::fflush(stdout);
}

// From a program's text to its plan, compiled loops included.
void plans() {
  std::printf("%-14s", "plan");
  for (int n : {4, 40, 400}) {
    const npu::Program source = npu::parse(map_text(chain(n), false));
    double best = 1e18;
    for (int round = 0; round < 30; ++round) {
      const auto start = std::chrono::steady_clock::now();
      const auto plan = make_plan(source);
      best = std::min(best, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
    }
    std::printf(" %d: %9.0f", n, best);
  }
  std::printf("\n");
}

// Contiguous vectors.
struct Map {
  const char* name;
  std::string body;
  bool two;
  int dtype = NPU_F32;

  double run(int64_t n) const {
    Bench b(NPU_MAP, {n}, 0, map_text(body, two).c_str());
    for (int i = 0; i < (two ? 3 : 2); ++i) b.add(dtype, n, {1});
    return b.run();
  }
};

const std::string kSum = "  %r = add %x, %y\n  store out, %r\n";
const Map kMaps[] = {
    {"chain of 40", chain(40), false},
    {"add", kSum, true},
    {"relu", "  %z = const 0 : f32\n  %r = max %x, %z\n  store out, %r\n", false},
    {"exp", "  %r = exp %x\n  store out, %r\n", false},
    {"tanh", "  %r = tanh %x\n  store out, %r\n", false},
    {"gelu",
     "  %h = const 0.7071067811865476 : f32\n  %a = mul %x, %h\n  %b = erf %a\n  %o = const 1 : f32\n"
     "  %c = add %b, %o\n  %d = const 0.5 : f32\n  %e = mul %x, %d\n  %r = mul %e, %c\n  store out, %r\n",
     false},
    {"silu_mul", "  %s = sigmoid %x\n  %a = mul %x, %s\n  %r = mul %a, %y\n  store out, %r\n", true},
    {"add bf16", kSum, true, NPU_BF16},
    {"silu bf16", "  %s = sigmoid %x\n  %r = mul %x, %s\n  store out, %r\n", false, NPU_BF16},
};

// Matrices of r x c. A stride is a number, or one of these.
enum Stride : int64_t { kRows = -1, kColumns = -2 };
struct Operands {
  std::vector<int64_t> stride;
  int dtype = NPU_F32;
};
struct Matrix {
  const char* name;
  npu_command_kind kind;
  bool flipped;  // the index space is c x r
  int inner;
  std::string text;
  std::vector<Operands> operands;

  double run(int64_t n) const {
    const int64_t columns = n >= 100000 ? 1000 : n >= 1000 ? 100 : 10, rows = n / columns;
    const std::vector<int64_t> size = flipped ? std::vector{columns, rows} : std::vector{rows, columns};
    Bench b(kind, size, inner, text.empty() ? nullptr : text.c_str());
    for (const Operands& operand : operands) {
      int64_t elements = 1;
      std::vector<int64_t> stride = operand.stride;
      for (size_t d = 0; d < stride.size(); ++d) {
        if (stride[d] != 0) elements *= size[d];
        if (stride[d] < 0) stride[d] = stride[d] == kRows ? rows : columns;
      }
      b.add(operand.dtype, elements, stride);
    }
    return b.run();
  }
};

const std::string kAdd = map_text(kSum, true);
const std::string kFoldSum =
    "program s(x, out)\neach:\n  %x = load x : f32\n  %s = fold sum %x\nrow:\n  %r = get %s, 0 : f32\n"
    "  store out, %r\n";
const std::string kSoftmax =
    "program softmax(x, out)\neach:\n  %x = load x : f32\n  %m = fold max %x\neach:\n  %y = load x : f32\n"
    "  %n = get %m, 0 : f32\n  %d = sub %y, %n\n  %e = exp %d\n  store out, %e\n  %s = fold sum %e\nrow:\n"
    "  %t = get %s, 0 : f32\n  %i = reciprocal %t\neach:\n  %z = load out : f32\n  %r = mul %z, %i\n"
    "  store out, %r\n";
const std::string kLayerNorm =
    "program ln(x, w, b, out)\neach:\n  %x = load x : f32\n  %f = fold welford %x\nrow:\n  %m = get %f, 0 : f32\n"
    "  %v = get %f, 1 : f32\n  %n = get %f, 2 : f32\n  %q = div %v, %n\n  %p = const 1e-5 : f32\n  %a = add %q, %p\n"
    "  %i = rsqrt %a\neach:\n  %y = load x : f32\n  %d = sub %y, %m\n  %e = mul %d, %i\n  %w = load w : f32\n"
    "  %b = load b : f32\n  %r = fma %e, %w, %b\n  store out, %r\n";
const Operands kDense{{kColumns, 1}}, kTurned{{1, kRows}}, kEachRow{{1, 0}}, kEachColumn{{0, 1}};
const Matrix kMatrices[] = {
    {"add row", NPU_MAP, false, 0, kAdd, {kDense, kEachColumn, kDense}},
    {"add transposed", NPU_MAP, false, 0, kAdd, {kDense, kTurned, kDense}},
    {"copy transposed", NPU_COPY, false, 0, "", {kDense, kTurned}},
    {"copy bf16", NPU_COPY, false, 0, "", {kDense, {{kColumns, 1}, NPU_BF16}}},
    {"sum all", NPU_REDUCE, false, 2, kFoldSum, {kDense, {{0, 0}}}},
    {"sum rows", NPU_REDUCE, false, 1, kFoldSum, {kDense, kEachRow}},
    {"sum columns", NPU_REDUCE, true, 1, kFoldSum, {{{1, kColumns}}, kEachRow}},
    {"softmax", NPU_REDUCE, false, 1, kSoftmax, {kDense, kDense}},
    {"layer norm", NPU_REDUCE, false, 1, kLayerNorm, {kDense, kEachColumn, kEachColumn, kDense}},
};

}  // namespace

int main(int argc, char** argv) {
  const std::string part = argc > 1 ? argv[1] : "";
  const Range range{argc > 2 ? std::atoll(argv[2]) : 10, argc > 3 ? std::atoll(argv[3]) : 10'000'000};
  const auto asked = [&](const std::string& name) { return name.find(part) != std::string::npos; };
  std::printf("threads: %d\n", pool_threads());
  if (asked("plan")) plans();
  for (const Map& map : kMaps)
    if (asked(map.name)) row(map.name, range, 10, [&](int64_t n) { return map.run(n); });
  for (const Matrix& matrix : kMatrices)
    if (asked(matrix.name)) row(matrix.name, range, 100, [&](int64_t n) { return matrix.run(n); });
  return 0;
}
