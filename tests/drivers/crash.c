/* A driver that crashes when it is asked for memory; with the option `hang` it does not come back instead. */
#define npu_driver_get template_driver_get
#include "drivers/template/template.c"
#undef npu_driver_get
#include <signal.h>
#include <unistd.h>

static int hangs;

static npu_status open_with(const char* options, npu_instance** out) {
  hangs = strcmp(options, "hang") == 0;
  return driver_open("", out);
}

static npu_status no_memory(npu_device* device, uint64_t size, npu_addr* out) {
  (void)device, (void)size, (void)out;
  while (hangs) pause();
  raise(SIGSEGV);
  return NPU_OK;
}

NPU_EXPORT const npu_driver* npu_driver_get(void) {
  static npu_driver driver;
  driver = *template_driver_get();
  driver.name = "crash";
  driver.open = open_with;
  driver.memory_alloc = no_memory;
  return &driver;
}
