// Register tiles for any processor.
#define KERNEL_ISA base
#define KERNEL_BYTES 16
#define MICRO_NAME micro_f32
#include "drivers/cmodel/product/kernels/micro_impl.h"
