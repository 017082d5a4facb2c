// Finds, loads and starts the drivers named in TORCH_NPU_DRIVER. Knows nothing of PyTorch.
#pragma once
#include <string>
#include <vector>

#include "npu/runtime.h"

namespace torch_npu {

struct LoadedDriver {
  std::string name;     // as written, without options: "cmodel" or "/path/libmychip.so"
  std::string options;  // what followed the colon
  std::string path;     // of the library
  const npu_driver* api = nullptr;
  npu_instance* instance = nullptr;
  uint32_t device_count = 0;
};

// `list` is "name[:options],name[:options],...". All of them or none: throws std::runtime_error with one sentence that
// says what is wrong and what to do; it begins with `source`, where the list came from. A comma or colon inside
// brackets belongs to an option: "lockstep:device=[rtl]:reference=[cmodel:mode=exact]". Libraries stay loaded for the
// life of the process.
std::vector<LoadedDriver> load_drivers(const std::string& list, const std::string& source = "TORCH_NPU_DRIVER");

// The names that TORCH_NPU_DRIVER accepts: libnpu_<name>.so beside this library, sorted.
std::vector<std::string> available_drivers();

// The folder of this library.
std::string library_folder();

}  // namespace torch_npu
