/* A driver of another ABI version: it must be refused before anything of it is called. */
#define npu_driver_get template_driver_get
#include "drivers/template/template.c"
#undef npu_driver_get

NPU_EXPORT const npu_driver* npu_driver_get(void) {
  static npu_driver driver;
  driver = *template_driver_get();
  driver.abi_major = 99;
  driver.name = "abi99";
  driver.open = NULL; /* whoever calls it crashes, and the test sees it */
  return &driver;
}
