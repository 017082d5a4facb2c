/* A chip that stops answering: the wait for it ends, device_reset returns, and the device works again. Usage: hang
 * ./libnpu_<name>.so. It stands for what a host does, and needs no torch_npu. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu/runtime.h"

static const npu_driver* driver;

static void expect(npu_status want, npu_status got, const char* what) {
  printf("%s: %d%s%s\n", what, got, got == NPU_OK ? "" : ", ", got == NPU_OK ? "" : driver->error_text());
  if (want == got) return;
  printf("%s: expected status %d, got %d\n", what, want, got);
  exit(1);
}

/* Bytes that go to the device and come back. */
static void copy_there_and_back(npu_stream* stream, npu_addr addr) {
  char out[64], in[64] = "the device works";
  memset(out, 0, sizeof out);
  expect(NPU_OK, driver->copy_to_device(stream, addr, in, sizeof in, 0), "copy_to_device");
  expect(NPU_OK, driver->copy_to_host(stream, out, addr, sizeof out, 0), "copy_to_host");
  if (memcmp(in, out, sizeof in) != 0) {
    printf("expected the bytes that were written, got others\n");
    exit(1);
  }
}

int main(int argc, char** argv) {
  void* library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
  const npu_driver* (*get)(void) = NULL;
  if (library) *(void**)&get = dlsym(library, "npu_driver_get");
  if (!get) {
    printf("usage: hang ./libnpu_<name>.so\n");
    return 2;
  }
  driver = get();
  npu_instance* instance;
  npu_device* device;
  npu_stream *stream, *other;
  npu_event* event;
  npu_addr addr;
  /* The fourth job hangs; 200 ms without progress are a hang. */
  expect(NPU_OK, driver->open("memory=1M:timeout=200:hang=4", &instance), "open");
  expect(NPU_OK, driver->device_open(instance, 0, &device), "device_open");
  expect(NPU_OK, driver->stream_create(device, 0, &stream), "stream_create");
  expect(NPU_OK, driver->stream_create(device, 0, &other), "stream_create");
  expect(NPU_OK, driver->event_create(device, 0, &event), "event_create");
  expect(NPU_OK, driver->memory_alloc(device, 4096, &addr), "memory_alloc");
  copy_there_and_back(stream, addr);                                                     /* jobs 1 and 2 */
  expect(NPU_OK, driver->copy_on_device(stream, addr + 64, addr, 64), "copy_on_device"); /* job 3 */
  expect(NPU_OK, driver->stream_synchronize(stream), "stream_synchronize");
  expect(NPU_OK, driver->copy_on_device(stream, addr + 128, addr, 64), "copy_on_device, which hangs"); /* job 4 */
  expect(NPU_OK, driver->event_record(event, stream), "event_record behind it");
  expect(NPU_OK, driver->stream_wait_event(other, event), "stream_wait_event");
  expect(NPU_ERROR_TIMEOUT, driver->stream_synchronize(stream), "stream_synchronize of the hung stream");
  expect(NPU_ERROR_DEVICE_LOST, driver->device_synchronize(device), "device_synchronize");
  expect(NPU_ERROR_DEVICE_LOST, driver->copy_on_device(other, addr, addr + 64, 64), "copy_on_device");
  expect(NPU_OK, driver->device_reset(device), "device_reset");
  expect(NPU_OK, driver->stream_synchronize(stream), "stream_synchronize");
  expect(NPU_OK, driver->event_synchronize(event), "event_synchronize");
  expect(NPU_OK, driver->stream_synchronize(other), "stream_synchronize of the one that waited");
  copy_there_and_back(stream, addr);
  copy_there_and_back(other, addr);
  driver->event_destroy(event);
  driver->stream_destroy(stream);
  driver->stream_destroy(other);
  driver->device_close(device);
  driver->close(instance);
  return 0;
}
