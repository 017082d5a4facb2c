#define CMODEL_ISA isa_avx2
#define CMODEL_ISA_NAME "avx2"
#include "drivers/cmodel/kernels_body.h"
