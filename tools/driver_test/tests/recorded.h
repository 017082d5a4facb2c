// The commands of a recording (.npt) as tests: --from.
#pragma once
#include <string>
#include <vector>

#include "tools/driver_test/frame/suite.h"

namespace driver_test {

// One test per command, each with the memory that the reference finds there. Throws std::runtime_error with what is
// wrong.
std::vector<Test> recorded_tests(const std::string& path);

}  // namespace driver_test
