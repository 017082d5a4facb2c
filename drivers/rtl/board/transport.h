// What a driver of this NPU adds to what all of them share: a name (support/driver/functions.h) and its boards.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "drivers/rtl/board/board.h"

namespace rtl {

constexpr uint64_t kMaxDevices = 16;

extern const char* const device_name;  // for people

// One for each device; called when the device is opened, and may throw.
using OpenBoard = std::function<std::unique_ptr<Board>()>;
// From the driver's options. Throws std::invalid_argument with one sentence.
std::vector<OpenBoard> find_boards(const std::string& options);

}  // namespace rtl
