// Runs the tests whose name contains the first argument (all without one). Exits with the number of failed tests.
#include <cstdio>
#include <cstring>

#include "test.h"

namespace engine_test {
namespace {
int failures_of_test = 0;
}
std::vector<Test>& tests() {
  static std::vector<Test> list;
  return list;
}
void fail(const std::string& text) {
  if (++failures_of_test <= 5) std::printf("  %s\n", text.c_str());
}
}  // namespace engine_test

int main(int argc, char** argv) {
  int failed = 0, run = 0;
  for (const engine_test::Test& test : engine_test::tests()) {
    if (argc > 1 && !std::strstr(test.name, argv[1])) continue;
    engine_test::failures_of_test = 0;
    test.body();
    ++run;
    failed += engine_test::failures_of_test > 0;
    std::printf("%s %s\n", engine_test::failures_of_test ? "FAIL" : "ok  ", test.name);
    std::fflush(stdout);
  }
  std::printf("%d tests, %d failed\n", run, failed);
  return failed;
}
