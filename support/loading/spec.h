// The words of TORCH_NPU_DRIVER and of drivers' options. Brackets hold what belongs together, so that a driver can be
// an option of another: "lockstep:device=[rtl]:reference=[cmodel:mode=exact]".
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace npu {

// Splits at every `separator` outside brackets. Throws std::invalid_argument if brackets do not pair.
std::vector<std::string> split_outside_brackets(std::string_view text, char separator);

// "key=value:key=[a:b]" as pairs; the brackets around a whole value are taken off. Throws std::invalid_argument for a
// part without "=".
std::vector<std::pair<std::string, std::string>> parse_options(std::string_view text);

}  // namespace npu
