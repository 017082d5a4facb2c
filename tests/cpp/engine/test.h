// The smallest test harness that names what failed.
#pragma once
#include <string>
#include <vector>

namespace engine_test {

struct Test {
  const char* name;
  void (*body)();
};
std::vector<Test>& tests();
void fail(const std::string& text);

struct Register {
  Register(const char* name, void (*body)()) { tests().push_back({name, body}); }
};

#define TEST(name)                                                        \
  static void test_##name();                                              \
  static const engine_test::Register register_##name(#name, test_##name); \
  static void test_##name()

}  // namespace engine_test
