#include "tools/driver_test/frame/suite.h"

#include <algorithm>
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

std::vector<int64_t> Context::chosen(int64_t total) const {
  if (only) {
    if (*only < 0 || *only >= total) fail("expected --case of 0 to ", total - 1, ", got ", *only);
    return {*only};
  }
  const int64_t most = std::min<int64_t>(total, std::max(count, 0));
  std::vector<int64_t> out;
  for (int64_t i = 0; i < most; i++) out.push_back(i * total / most);
  return out;
}

}  // namespace driver_test
