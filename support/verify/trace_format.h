// Constants of the recording's format, for its writer and its reader.
#pragma once
#include <cstdint>

namespace npu {

constexpr char kTraceMagic[8] = {'N', 'P', 'U', 'T', 'R', 'A', 'C', 'E'};
constexpr uint32_t kTraceVersion = 1;

}  // namespace npu
