#include "tools/driver_test/suite.h"

#include <cstdio>

namespace driver_test {

std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace driver_test
