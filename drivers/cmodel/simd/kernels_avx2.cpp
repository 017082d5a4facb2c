#define CMODEL_ISA isa_avx2
#define CMODEL_ISA_NAME "avx2"
#include "drivers/cmodel/simd/kernels_body.h"
