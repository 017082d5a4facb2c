// Random commands of the driver test's makers, each made by what is on trial and compared with the reference's answer.
#pragma once
#include <cstdint>
#include <string>

#include "tests/cpp/legalise/making_driver.h"

namespace legalise_test {

struct Tally {
  int fitted = 0, commands = 0;
  std::string failure;  // of the first command that came out wrong; empty: none
};

// Of commands of `kinds` (bit k: kind k) until `enough` fitted. Begins with `seed`.
Tally try_commands(const Make& make, uint32_t kinds, int enough, uint64_t seed);

// A number below n that follows from a seed, and changes it.
uint64_t below(uint64_t n, uint64_t* seed);

}  // namespace legalise_test
