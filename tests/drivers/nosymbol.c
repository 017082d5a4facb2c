/* A library that is not a driver: npu_driver_get is missing. */
#include "npu/runtime.h"

NPU_EXPORT int npu_driver_got(void);

NPU_EXPORT int npu_driver_got(void) {
  return 0;
}
