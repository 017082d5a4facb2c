// GCC 12 warns of its own header here: intrinsics without a mask start from a value that is undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#define CMODEL_ISA isa_avx512
#define CMODEL_ISA_NAME "avx512"
#include "drivers/cmodel/simd/kernels_body.h"
