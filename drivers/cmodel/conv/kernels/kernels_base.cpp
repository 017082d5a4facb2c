// Depthwise convolutions on any processor.
#define KERNEL_ISA base
#define KERNEL_BYTES 16
#include "drivers/cmodel/conv/kernels/kernels_impl.h"
