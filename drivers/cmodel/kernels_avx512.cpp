#define CMODEL_ISA isa_avx512
#define CMODEL_ISA_NAME "avx512"
#include "drivers/cmodel/kernels_body.h"
