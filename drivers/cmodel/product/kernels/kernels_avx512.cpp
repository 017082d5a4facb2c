#if defined(__x86_64__)
#define KERNEL_ISA avx512
#define KERNEL_BYTES 64
#include "drivers/cmodel/product/kernels/kernels_impl.h"
#endif
