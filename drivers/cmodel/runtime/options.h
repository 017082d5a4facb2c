// What follows the colon in TORCH_NPU_DRIVER=cmodel:...
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "drivers/cmodel/memory/region_options.h"

namespace cmodel {

constexpr int kDeviceShift = 44;
// Not a canonical x86 or Arm address: a host that dereferences a device address faults at once.
constexpr uint64_t kDefaultBase = 0x0A00'0000'0000'0000;

struct Options {
  uint32_t devices = 1;
  std::vector<RegionOptions> regions;
  bool exact = false;
  int threads = 0;  // 0: as the pool finds it
  int64_t inline_ns = 10'000;
  std::string chip;  // file that describes a chip whose times events report; empty: the host's clock
};

// True, or false with one line in *error.
bool parse_options(const char* text, Options* out, std::string* error);

}  // namespace cmodel
