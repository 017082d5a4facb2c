// What all C++ tests are written in: TEST registers, the checks say "expected ..., got ..." with file and line, and
// main.cpp is every program's main. A check that fails does not end its test.
#pragma once
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace harness {

enum class When { kAlways, kOnRequest };
struct Test {
  const char* name;
  void (*body)();
  When when;
};
std::vector<Test>& tests();

// A failed check of the running test. From any thread.
void fail(const std::string& text);
void report(const char* file, int line, const std::string& text);

// What the command line asks of random tests: where they begin, and how many times the usual number of steps they take.
uint64_t seed();
int work(int usual);

struct Register {
  Register(const char* name, void (*body)(), When when) { tests().push_back({name, body, when}); }
};

#define NPU_TEST(name, when)                                                \
  static void test_##name();                                                \
  static const harness::Register register_##name(#name, test_##name, when); \
  static void test_##name()
#define TEST(name) NPU_TEST(name, harness::When::kAlways)
// A measurement, or what takes too long for every day: runs only when a part of its name is asked for.
#define TEST_ON_REQUEST(name) NPU_TEST(name, harness::When::kOnRequest)

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) harness::report(__FILE__, __LINE__, "expected " #condition); \
  } while (0)
#define CHECK_NOTE(condition, note)                              \
  do {                                                           \
    if (!(condition)) harness::report(__FILE__, __LINE__, note); \
  } while (0)

template <typename A, typename B>
void check_equal(const A& got, const B& want, const char* file, int line, const std::string& note = "") {
  if (got == want) return;
  std::ostringstream text;
  text.precision(17);
  text << "expected " << want << ", got " << got << (note.empty() ? "" : " (" + note + ")");
  report(file, line, text.str());
}
#define EQUAL(got, want) harness::check_equal(got, want, __FILE__, __LINE__)
#define EQUAL_NOTE(got, want, note) harness::check_equal(got, want, __FILE__, __LINE__, note)

inline void check_near(double got, double want, double tolerance, const char* file, int line) {
  const double error = got > want ? got - want : want - got;
  if (error <= tolerance * (want < 0 ? 1 - want : 1 + want)) return;
  std::ostringstream text;
  text.precision(17);
  text << "expected about " << want << ", got " << got;
  report(file, line, text.str());
}
#define NEAR(got, want, tolerance) harness::check_near(got, want, tolerance, __FILE__, __LINE__)

inline void check_contains(const std::string& text, const std::string& part, const char* file, int line) {
  if (text.find(part) == std::string::npos) report(file, line, "expected '" + part + "' in '" + text + "'");
}
#define CONTAINS(text, part) harness::check_contains(text, part, __FILE__, __LINE__)

// Lists are equal element by element; a NaN equals a NaN.
template <typename T>
void check_list(const std::vector<T>& got, const std::vector<T>& want, const char* file, int line) {
  bool same = got.size() == want.size();
  for (size_t i = 0; same && i < got.size(); ++i) same = got[i] == want[i] || (got[i] != got[i] && want[i] != want[i]);
  if (same) return;
  std::ostringstream text;
  text << "expected";
  for (const T& x : want) text << ' ' << x;
  text << ", got";
  for (const T& x : got) text << ' ' << x;
  report(file, line, text.str());
}
#define LIST(got, ...) harness::check_list(got, __VA_ARGS__, __FILE__, __LINE__)

}  // namespace harness
