#if defined(__x86_64__)
#define KERNEL_ISA avx512vnni
#define KERNEL_BYTES 64
#define MICRO_NAME micro_i16
#define MICRO_I16 1
#include "drivers/cmodel/product/kernels/micro_impl.h"
#endif
