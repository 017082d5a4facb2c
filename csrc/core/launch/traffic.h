// What counted commands (launch.h, count_ops) moved.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace torch_npu {

// Label to the bytes that the operands of its commands have, each read or written once. Reset with the counts.
std::map<std::string, int64_t> native_bytes();

}  // namespace torch_npu
