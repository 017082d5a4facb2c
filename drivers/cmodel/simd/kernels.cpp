#include "drivers/cmodel/simd/kernels.h"

#include <cstdlib>
#include <cstring>

#include "drivers/cmodel/simd/isa_level.h"

namespace cmodel {

IsaLevel isa_level() {
#if defined(__x86_64__)
  static const IsaLevel level = [] {
    __builtin_cpu_init();
    const char* wish = std::getenv("NPU_CMODEL_ISA");
    if (wish && std::strcmp(wish, "base") == 0) return IsaLevel::kBase;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
      return IsaLevel::kBase;
    if (wish && std::strcmp(wish, "avx2") == 0) return IsaLevel::kAvx2;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")
               ? IsaLevel::kAvx512
               : IsaLevel::kAvx2;
  }();
  return level;
#else
  return IsaLevel::kBase;
#endif
}

const Kernels& kernels() {
  static const Kernels& table = isa_level() == IsaLevel::kAvx512 ? isa_avx512::table()
                                : isa_level() == IsaLevel::kAvx2 ? isa_avx2::table()
                                                                 : isa_base::table();
  return table;
}

}  // namespace cmodel
