// What everyone who loads a driver asks first: is its table whole, and what is a status called.
#pragma once
#include <string>

#include "npu/runtime.h"

namespace npu {

// "NPU_ERROR_ADDRESS"; of a number that the contract does not know "unknown status 77", valid until the thread's next.
const char* status_name(npu_status status);

// Empty, or the rest of a sentence that begins with the driver's name: "lacks the function submit, which ...".
std::string table_problem(const npu_driver* table);

// npu_driver::choices; null where the driver has none or was compiled against version 1.0.
decltype(npu_driver::choices) choices_of(const npu_driver& table);

}  // namespace npu
