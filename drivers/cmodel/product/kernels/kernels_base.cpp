// Kernels for any processor.
#define KERNEL_ISA base
#define KERNEL_BYTES 16
#include "drivers/cmodel/product/kernels/kernels_impl.h"
