// Loading a driver's library, for everyone who does: the host, drivers that wrap others, and tools.
#pragma once
#include <string>

#include "npu/runtime.h"

namespace npu {

// Loads the library and checks its table. On failure nullptr, and `*problem` is the rest of a sentence that begins with
// the driver's name: "could not be loaded: ...". A library stays loaded for the life of the process.
const npu_driver* load_library(const std::string& path, std::string* problem);

// "cmodel" is libnpu_cmodel.so beside the library or program that holds this code, or one folder up; what has a '/' or
// ends in .so is a path. Empty if there is no such file.
std::string find_library(const std::string& name);

// A started driver. `spec` is "name[:options]" or "/path/library.so[:options]".
struct OpenedDriver {
  std::string spec;
  const npu_driver* api = nullptr;
  npu_instance* instance = nullptr;
  uint32_t devices = 0;
};
OpenedDriver open_driver(const std::string& spec);  // throws std::runtime_error with one sentence

}  // namespace npu
