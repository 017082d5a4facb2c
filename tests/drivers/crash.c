/* A driver that crashes when it is asked for memory. */
#define npu_driver_get template_driver_get
#include "drivers/template/template.c"
#undef npu_driver_get
#include <signal.h>

static npu_status no_memory(npu_device* device, uint64_t size, npu_addr* out) {
  (void)device, (void)size, (void)out;
  raise(SIGSEGV);
  return NPU_OK;
}

NPU_EXPORT const npu_driver* npu_driver_get(void) {
  static npu_driver driver;
  driver = *template_driver_get();
  driver.name = "crash";
  driver.memory_alloc = no_memory;
  return &driver;
}
