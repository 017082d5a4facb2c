/* Devices: opening, closing, and what they say of themselves. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/driver.h"

/* A device address is never a host pointer (command.h). No CPU has pointers like these, so one that is used as a
 * pointer crashes at once. Each device has a window of its own, so the address of another device is refused as well. */
static npu_addr first_address(uint32_t index) { return 0x0B00000000000000u + ((npu_addr)index << 44); }

npu_status device_open(npu_instance* instance, uint32_t index, npu_device** out) {
  if (index >= instance->devices)
    return fail(NPU_ERROR_INVALID, "device_open: expected an index below %d, got %u", (int)instance->devices, index);
  /* CHIP: open the device file and map its registers. Here pages of memory appear when they are first written. */
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  char* arena = mmap(NULL, instance->memory, PROT_READ | PROT_WRITE, flags, -1, 0);
  npu_device* device = arena != MAP_FAILED ? calloc(1, sizeof *device) : NULL;
  if (!device) {
    if (arena != MAP_FAILED) munmap(arena, instance->memory);
    return fail(NPU_ERROR_MEMORY, "device_open: expected %" PRIu64 " bytes, got none", instance->memory);
  }
  pthread_mutex_init(&device->lock, NULL);
  device->instance = *instance;
  device->total = instance->memory;
  device->base = first_address(index);
  device->arena = arena;
  *out = device;
  return NPU_OK;
}

/* Frees what is left of the device's objects; streams wait for their work when they are destroyed. */
void device_close(npu_device* device) {
  while (device->objects) device->objects->destroy(device->objects);
  /* A hung job may still write: its memory is lost with it. */
  if (atomic_load(&device->abandoned)) return;
  while (device->blocks) {
    block* b = device->blocks;
    device->blocks = b->next;
    free(b);
  }
  ranges_close(device);
  munmap(device->arena, device->total);
  pthread_mutex_destroy(&device->lock);
  free(device);
}

npu_status device_properties(npu_device* device, npu_properties* out) {
  npu_properties known = {
      .struct_size = out->struct_size,
      .commands = (1u << NPU_COMMAND_COUNT) - 1, /* CHIP: bit k for command kind k, even if it takes only some forms */
      .name = "Complete",
      .vendor = "torch_npu",
      .total_memory = device->total,
      .alignment = ALIGNMENT,
      .units = 1,
      .least_priority = 0, /* CHIP: priorities of queues, if there are any */
      .greatest_priority = 0,
  };
  /* A younger host has a longer struct, an older one a shorter: no more is filled than the caller knows. */
  memcpy(out, &known, out->struct_size < sizeof known ? out->struct_size : sizeof known);
  return NPU_OK;
}

void* object_make(npu_device* device, uint64_t size, void (*destroy)(object*)) {
  object* made = size < SIZE_MAX / 4 ? aligned_alloc(HOST_ALIGNMENT, round_up(size, HOST_ALIGNMENT)) : NULL;
  if (!made) {
    fail(NPU_ERROR_MEMORY, "expected %" PRIu64 " bytes of host memory, got none", size);
    return NULL;
  }
  made->device = device;
  made->destroy = destroy;
  pthread_mutex_lock(&device->lock);
  made->next = device->objects;
  made->link = &device->objects;
  if (made->next) made->next->link = &made->next;
  device->objects = made;
  pthread_mutex_unlock(&device->lock);
  return made;
}

void object_free(object* object) {
  npu_device* device = object->device;
  pthread_mutex_lock(&device->lock);
  *object->link = object->next;
  if (object->next) object->next->link = object->link;
  pthread_mutex_unlock(&device->lock);
  free(object);
}
