// Words for errors.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>

namespace npu::driver {

inline std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

inline std::string interval(uint64_t begin, uint64_t end) {
  char text[64];
  std::snprintf(text, sizeof text, "[0x%llx, 0x%llx)", static_cast<unsigned long long>(begin),
                static_cast<unsigned long long>(end));
  return text;
}

}  // namespace npu::driver
