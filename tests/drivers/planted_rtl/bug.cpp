// Which of the bugs of plant.py this simulation has: NPU_PLANTED_BUG=rounding or stride.
#include <cstdlib>
#include <cstring>

extern "C" int npu_planted_bug() {
  const char* name = std::getenv("NPU_PLANTED_BUG");
  return !name ? 0 : std::strcmp(name, "rounding") == 0 ? 1 : std::strcmp(name, "stride") == 0 ? 2 : 0;
}
