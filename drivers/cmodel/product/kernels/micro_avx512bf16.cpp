#if defined(__x86_64__)
#define KERNEL_ISA avx512bf16
#define KERNEL_BYTES 64
#define MICRO_NAME micro_bf16
#define MICRO_BF16 1
#include "drivers/cmodel/product/kernels/micro_impl.h"
#endif
