// The frame of the suite: what a test is, how it says what it found, and the few words tests are written in.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "npu/runtime.h"
#include "support/loading/driver_table.h"
#include "tools/driver_test/frame/seed.h"

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
  std::string test;  // its name
  uint64_t seed = 1;
  int count = 200;              // random commands per test, and at most so many directed ones
  std::optional<int64_t> only;  // --case: of them, the one with this number
  bool exact = false;           // floats bit for bit
  bool exact_sums = false;      // but for programs with approximated functions
  bool legalised = false;       // errors name the op, and commands that were made of its command
  bool supported = false;       // --random counts only what the driver has
  // Filled by the test: shown behind its result and written to the JSON file.
  std::string note;
  int64_t cases = 0, unsupported = 0;

  // The stream of the test's case `number`; without one, of what it does besides.
  Random random(uint64_t number = ~uint64_t{0}) const { return Random(stream_of(seed, test, number)); }
  // Those of `total` cases that this run has: all, or --count of them spread evenly, or --case.
  std::vector<int64_t> chosen(int64_t total) const;
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

}  // namespace driver_test
