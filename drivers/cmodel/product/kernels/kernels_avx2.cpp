#if defined(__x86_64__)
#define KERNEL_ISA avx2
#define KERNEL_BYTES 32
#include "drivers/cmodel/product/kernels/kernels_impl.h"
#endif
