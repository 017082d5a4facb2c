// The frame of the suite: what a test is, how it says what it found, and the few words tests are written in.
#pragma once
#include <cstdint>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "npu/runtime.h"
#include "support/loading/driver_table.h"

namespace driver_test {

// Thrown by a test: the driver breaks a rule.
struct Failed {
  std::string text;
};

// Thrown by a test: the driver says it does not have this, which is its right.
struct NotSupported {
  std::string text;
};

template <class... Parts>
std::string say(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Failed{say(parts...)};
}

template <class... Parts>
void expect(bool condition, const Parts&... parts) {
  if (!condition) fail(parts...);
}

std::string hex(uint64_t value);
using npu::status_name;

// What every test gets.
struct Context {
  const npu_driver* driver = nullptr;
  std::string options;
  uint64_t seed = 1;
  int count = 200;          // random commands per test
  bool exact = false;       // floats bit for bit
  bool exact_sums = false;  // but for programs with approximated functions
  bool legalised = false;   // errors name the op, and commands that were made of its command
  bool supported = false;   // --random counts only what the driver has
  // Filled by the test: shown behind its result and written to the JSON file.
  std::string note;
  int64_t cases = 0, unsupported = 0;
};

struct Test {
  std::string name;
  std::function<void(Context&)> run;
};

std::vector<Test>& tests();

struct Register {
  Register(const char* name, std::function<void(Context&)> run) { tests().push_back({name, std::move(run)}); }
};

#define NPU_JOIN2(a, b) a##b
#define NPU_JOIN(a, b) NPU_JOIN2(a, b)
// TEST("behaviour, stated") { ... uses `context` ... }
#define TEST(name)                                                                             \
  static void NPU_JOIN(test_, __LINE__)(driver_test::Context & context);                       \
  static driver_test::Register NPU_JOIN(register_, __LINE__)(name, NPU_JOIN(test_, __LINE__)); \
  static void NPU_JOIN(test_, __LINE__)([[maybe_unused]] driver_test::Context & context)

// A small, fast generator whose whole state is the seed that a failure prints.
struct Random {
  uint64_t state;
  explicit Random(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15u + 0x1234567) {}
  uint64_t next() {
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return n <= 1 ? 0 : static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))];
  }
};

}  // namespace driver_test
