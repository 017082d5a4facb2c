/* A driver whose hardware is not there: open fails and says why. */
#define npu_driver_get template_driver_get
#include "drivers/template/template.c"
#undef npu_driver_get

static npu_status no_open(const char* options, npu_instance** out) {
  return (void)options, (void)out, fail(NPU_ERROR_DEVICE_LOST, "expected a chip at /dev/mychip0, got no such device");
}

NPU_EXPORT const npu_driver* npu_driver_get(void) {
  static npu_driver driver;
  driver = *template_driver_get();
  driver.name = "noopen";
  driver.open = no_open;
  return &driver;
}
