/* The template, with a door to its memory for failing.cpp. */
#define npu_driver_get template_driver_get
#include "drivers/template/template.c"

void* template_memory(npu_stream* stream, npu_addr addr, uint64_t size);
npu_device* template_device(npu_stream* stream);

void* template_memory(npu_stream* stream, npu_addr addr, uint64_t size) {
  npu_device* device = stream->node.device;
  pthread_mutex_lock(&device->lock);
  void* memory = find(device, addr, size);
  pthread_mutex_unlock(&device->lock);
  return memory;
}

npu_device* template_device(npu_stream* stream) {
  return stream->node.device;
}
