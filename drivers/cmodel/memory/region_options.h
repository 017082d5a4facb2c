#pragma once
#include <cstdint>
#include <string>

namespace cmodel {

// A memory of every device. Device i sees it at `base` + (i << kDeviceShift) (runtime/options.h).
struct RegionOptions {
  std::string name;
  uint64_t base = 0;
  uint64_t size = 0;
};

}  // namespace cmodel
