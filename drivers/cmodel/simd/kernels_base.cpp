#define CMODEL_ISA isa_base
#define CMODEL_ISA_NAME "base"
#include "drivers/cmodel/simd/kernels_body.h"
