#if defined(__x86_64__)
#define KERNEL_ISA avx2
#define KERNEL_BYTES 32
#define MICRO_NAME micro_f32
#include "drivers/cmodel/product/kernels/micro_impl.h"
#endif
