/* Device memory: who has which bytes. CHIP: a chip without an MMU keeps this list on the host, as here, and checks an
 * address before it is queued. */
#include <stdlib.h>

#include "device/driver.h"

npu_status memory_info(npu_device* device, uint64_t* free_bytes, uint64_t* total_bytes) {
  pthread_mutex_lock(&device->lock);
  *total_bytes = device->total;
  *free_bytes = device->total - device->used;
  pthread_mutex_unlock(&device->lock);
  return NPU_OK;
}

/* First fit. The host asks rarely and for large pieces, which it splits itself, so a walk is quick enough. */
npu_status memory_alloc(npu_device* device, uint64_t size, npu_addr* out) {
  if (size == 0) return fail(NPU_ERROR_INVALID, "memory_alloc: expected a size above 0, got 0");
  const uint64_t need = size > device->total ? UINT64_MAX : round_up(size, ALIGNMENT);
  const npu_addr end = device->base + device->total;
  npu_addr start = device->base; /* of the gap in front of *at */
  block* made = NULL;
  pthread_mutex_lock(&device->lock);
  block** at = &device->blocks;
  while (*at && (*at)->addr < end && (*at)->addr - start < need) {
    start = (*at)->addr + (*at)->size;
    at = &(*at)->next;
  }
  if (end - start >= need && need <= device->total - device->used) made = malloc(sizeof *made);
  if (made) {
    *made = (block){.next = *at, .addr = start, .size = need, .host = device->arena + (start - device->base)};
    *at = made;
    device->used += need;
  }
  pthread_mutex_unlock(&device->lock);
  if (!made) return fail(NPU_ERROR_MEMORY, "memory_alloc: expected %" PRIu64 " bytes in one piece, got none", size);
  *out = start;
  return NPU_OK;
}

npu_status memory_free(npu_device* device, npu_addr addr) {
  pthread_mutex_lock(&device->lock);
  block** at = &device->blocks;
  while (*at && ((*at)->addr != addr || (*at)->range)) at = &(*at)->next;
  block* found = *at;
  if (found) {
    *at = found->next;
    device->used -= found->size;
  }
  pthread_mutex_unlock(&device->lock);
  if (!found)
    return fail(NPU_ERROR_ADDRESS, "memory_free: expected the start of a live allocation, got 0x%" PRIx64, addr);
  free(found);
  return NPU_OK;
}

/* Parts of one range that lie side by side are one piece of memory: the host grows its pools in place. */
static int continues(const block* b) {
  return b->next && b->range && b->next->range == b->range && b->next->addr == b->addr + b->size;
}

int memory_find(npu_device* device, npu_addr addr, uint64_t size, extent* out) {
  int found = 0;
  pthread_mutex_lock(&device->lock);
  for (const block* b = device->blocks; b && b->addr <= addr && !found; b = b->next) {
    *out = (extent){.addr = b->addr, .size = b->size, .host = b->host};
    for (; continues(b); b = b->next) out->size += b->next->size;
    const uint64_t offset = addr - out->addr;
    found = offset < out->size && size <= out->size - offset;
  }
  pthread_mutex_unlock(&device->lock);
  return found;
}

/* -- pinned memory. CHIP: page-locked memory that the DMA engine can reach -- */

/* The object lies in front of what the caller gets. */
enum { HEADER = (sizeof(object) + HOST_ALIGNMENT - 1) / HOST_ALIGNMENT * HOST_ALIGNMENT };

npu_status host_alloc(npu_device* device, uint64_t size, void** out) {
  if (size == 0) return fail(NPU_ERROR_INVALID, "host_alloc: expected a size above 0, got 0");
  char* made = object_make(device, size < UINT64_MAX / 4 ? HEADER + size : size, object_free);
  if (!made) return NPU_ERROR_MEMORY;
  *out = made + HEADER;
  return NPU_OK;
}

npu_status host_free(npu_device* device, void* ptr) {
  pthread_mutex_lock(&device->lock);
  object* found = device->objects;
  while (found && (found->destroy != object_free || (char*)found + HEADER != (char*)ptr)) found = found->next;
  pthread_mutex_unlock(&device->lock);
  if (!found) return fail(NPU_ERROR_INVALID, "host_free: expected memory of host_alloc, got %p", ptr);
  object_free(found);
  return NPU_OK;
}
