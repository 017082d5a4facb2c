// Drivers beside those of TORCH_NPU_DRIVER, at any time.
#pragma once
#include <string>
#include <vector>

#include "csrc/core/device/device.h"

namespace torch_npu {

// Loads the drivers of the list, which has the form of TORCH_NPU_DRIVER, and gives their devices the next free indices,
// which are returned. Devices that exist stay as they are. Throws if one of them cannot be loaded; then none is.
std::vector<c10::DeviceIndex> add_drivers(const std::string& list);

}  // namespace torch_npu
