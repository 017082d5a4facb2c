/* Ranges: addresses that grow. Optional: leave the four out of the table where a chip cannot map memory. */
#include <stdlib.h>
#include <sys/mman.h>

#include "device/driver.h"

static const uint64_t window = 1ull << 43; /* the upper half of a device's addresses is for ranges */

npu_status range_reserve(npu_device* device, uint64_t size, npu_addr* out) {
  if (size == 0 || size % ALIGNMENT)
    return fail(NPU_ERROR_INVALID, "range_reserve: expected a multiple of %d, got %" PRIu64, ALIGNMENT, size);
  if (size > window) return fail(NPU_ERROR_MEMORY, "range_reserve: expected free addresses, got none");
  char* host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  range* made = host != MAP_FAILED ? malloc(sizeof *made) : NULL;
  if (!made) {
    if (host != MAP_FAILED) munmap(host, size);
    return fail(NPU_ERROR_MEMORY, "range_reserve: expected %" PRIu64 " bytes of addresses, got none", size);
  }
  npu_addr start = device->base + window;
  pthread_mutex_lock(&device->lock);
  range** at = &device->ranges;
  while (*at && (*at)->addr - start < size) {
    start = (*at)->addr + (*at)->size;
    at = &(*at)->next;
  }
  const int fits = device->base + 2 * window - start >= size;
  if (fits) {
    *made = (range){.next = *at, .addr = start, .size = size, .host = host};
    *at = made;
  }
  pthread_mutex_unlock(&device->lock);
  if (!fits) {
    munmap(host, size);
    free(made);
    return fail(NPU_ERROR_MEMORY, "range_reserve: expected free addresses, got none");
  }
  *out = start;
  return NPU_OK;
}

/* The range that holds all of [addr, addr + size). The lock is held. */
static range* range_of(npu_device* device, npu_addr addr, uint64_t size) {
  for (range* r = device->ranges; r; r = r->next)
    if (addr >= r->addr && addr - r->addr < r->size && size <= r->size - (addr - r->addr)) return r;
  return NULL;
}

/* How many of these bytes are mapped. The lock is held. */
static uint64_t mapped(npu_device* device, npu_addr addr, uint64_t size) {
  uint64_t sum = 0;
  for (const block* b = device->blocks; b; b = b->next) {
    const npu_addr low = b->addr > addr ? b->addr : addr;
    const npu_addr high = b->addr + b->size < addr + size ? b->addr + b->size : addr + size;
    if (low < high) sum += high - low;
  }
  return sum;
}

static npu_status check_part(const char* what, npu_addr addr, uint64_t size) {
  if (size && size % ALIGNMENT == 0 && addr % ALIGNMENT == 0) return NPU_OK;
  return fail(NPU_ERROR_INVALID, "%s: expected ends that are multiples of %d, got %" PRIu64 " bytes at 0x%" PRIx64,
              what, ALIGNMENT, size, addr);
}

/* Puts a block into the list. The lock is held. Returns whether there was host memory for it. */
static int insert(npu_device* device, const block* made) {
  block** at = &device->blocks;
  while (*at && (*at)->addr < made->addr) at = &(*at)->next;
  block* copy = malloc(sizeof *copy);
  if (!copy) return 0;
  *copy = *made;
  copy->next = *at;
  *at = copy;
  return 1;
}

npu_status range_map(npu_device* device, npu_addr addr, uint64_t size) {
  if (check_part("range_map", addr, size) != NPU_OK) return NPU_ERROR_INVALID;
  npu_status status = NPU_OK;
  pthread_mutex_lock(&device->lock);
  range* r = range_of(device, addr, size);
  if (!r || mapped(device, addr, size) > 0)
    status = fail(NPU_ERROR_ADDRESS, "range_map: expected an unmapped part of a range, got 0x%" PRIx64, addr);
  else if (size > device->total - device->used ||
           !insert(device, &(block){.addr = addr, .size = size, .host = r->host + (addr - r->addr), .range = r}))
    status = fail(NPU_ERROR_MEMORY, "range_map: expected %" PRIu64 " bytes, got none", size);
  else
    device->used += size;
  pthread_mutex_unlock(&device->lock);
  return status;
}

/* Takes [addr, end) out of the blocks; what is left of one that is cut stays. The lock is held. */
static int cut(npu_device* device, npu_addr addr, npu_addr end) {
  for (block** at = &device->blocks; *at;) {
    block* b = *at;
    const npu_addr last = b->addr + b->size;
    if (last <= addr || b->addr >= end) {
      at = &b->next;
      continue;
    }
    const block tail = {.addr = end, .size = last - end, .host = b->host + (end - b->addr), .range = b->range};
    if (last > end && !insert(device, &tail)) return 0;
    if (b->addr < addr) {
      b->size = addr - b->addr;
      at = &b->next;
    } else {
      *at = b->next;
      free(b);
    }
  }
  return 1;
}

npu_status range_unmap(npu_device* device, npu_addr addr, uint64_t size) {
  if (check_part("range_unmap", addr, size) != NPU_OK) return NPU_ERROR_INVALID;
  npu_status status = NPU_OK;
  pthread_mutex_lock(&device->lock);
  range* r = range_of(device, addr, size);
  if (!r || mapped(device, addr, size) != size) {
    status = fail(NPU_ERROR_ADDRESS, "range_unmap: expected a mapped part of a range, got 0x%" PRIx64, addr);
  } else if (!cut(device, addr, addr + size)) {
    status = fail(NPU_ERROR_MEMORY, "range_unmap: expected host memory, got none");
  } else {
    device->used -= size;
    madvise(r->host + (addr - r->addr), size, MADV_DONTNEED); /* gives whole pages back */
  }
  pthread_mutex_unlock(&device->lock);
  return status;
}

npu_status range_release(npu_device* device, npu_addr addr) {
  pthread_mutex_lock(&device->lock);
  range** at = &device->ranges;
  while (*at && (*at)->addr != addr) at = &(*at)->next;
  range* found = *at;
  if (found && mapped(device, found->addr, found->size) > 0) found = NULL;
  if (found) *at = found->next;
  pthread_mutex_unlock(&device->lock);
  if (!found) return fail(NPU_ERROR_ADDRESS, "range_release: expected an unmapped range, got 0x%" PRIx64, addr);
  munmap(found->host, found->size);
  free(found);
  return NPU_OK;
}

void ranges_close(npu_device* device) {
  while (device->ranges) {
    range* r = device->ranges;
    device->ranges = r->next;
    munmap(r->host, r->size);
    free(r);
  }
}
