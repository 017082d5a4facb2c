#include "drivers/cmodel/kernels.h"

namespace cmodel {
namespace {

const Kernels& choose() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
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
