// Kernels for any processor.
#define KERNEL_ISA base
#define KERNEL_BYTES 16
#include "drivers/cmodel/matmul_kernels_impl.h"
