#include "drivers/cmodel/kernels.h"

#include <cstdlib>
#include <cstring>

namespace cmodel {
namespace {

const Kernels& choose() {
  __builtin_cpu_init();
  // Tests run every level that the processor has: NPU_CMODEL_ISA=base or avx2 lowers it.
  const char* wish = std::getenv("NPU_CMODEL_ISA");
  if (wish && std::strcmp(wish, "base") == 0) return isa_base::table();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool lower = wish && std::strcmp(wish, "avx2") == 0;
  if (avx2 && !lower && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return isa_avx512::table();
  return avx2 ? isa_avx2::table() : isa_base::table();
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& table = choose();
  return table;
}

}  // namespace cmodel
