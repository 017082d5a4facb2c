/* The smallest complete driver: memory, copies, streams and events. Every command is "unsupported", so the host
 * computes it on the CPU, and all of PyTorch already works. Copy this folder, replace what the comments marked CHIP
 * point at, and add one command at a time: docs/driver-guide.md. The rules are in include/npu/runtime.h; a comment
 * below that starts with a word of its opening ("Ownership:", "Threads:") names the rule that forces the line.
 *
 * The device is an arena of host memory, and its work is done when the call returns. That is a legal device: a stream
 * that is always idle keeps every promise about order. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "npu/runtime.h"

/* A function of the contract is given all that some chip needs; this driver often needs less. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

enum { ALIGNMENT = 512, MAX_DEVICES = 64, HOST_ALIGNMENT = 64 };
enum { ARENA_FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };
static const uint64_t max_memory = 1ull << 43; /* bytes of one device: half of its window of addresses */

struct npu_instance {
  uint64_t memory, devices; /* bytes of each device; how many there are */
};
/* Something that the caller must give back: device memory, host memory, a stream or an event. */
typedef struct node {
  struct node* next;
  npu_device* device;
  uint64_t key;  /* by which the caller names it: a device address, or a host pointer */
  uint64_t size; /* bytes of device memory */
} node;
struct npu_device {
  pthread_mutex_t lock; /* guards the lists and the memory itself: one piece of work at a time */
  uint64_t total;       /* bytes */
  npu_addr base;        /* the address of the first byte */
  char* arena;          /* where that byte really is */
  node* blocks;         /* device memory in use, in order of address; what lies between two blocks is free */
  node* objects;        /* everything else */
};
struct npu_stream {
  node node; /* CHIP: and its queue */
};
struct npu_event {
  node node;
  uint32_t flags;
  _Atomic double time; /* of the last record, in milliseconds; 0: never. Threads: it may be read meanwhile */
};

/* Result: after an error, error_text on the same thread says what happened. */
static _Thread_local char last_error[256] = "no error";

/* Keeps the sentence "expected ..., got ..." for error_text. Returns `status`. */
__attribute__((format(printf, 2, 3))) static npu_status fail(npu_status status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(last_error, sizeof last_error, format, arguments);
  va_end(arguments);
  return status;
}
static const char* error_text(void) { return last_error; }
static uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

/* ---- what the caller must give back ---- */
/* A new object of `size` bytes that begins with its node. NULL: the error is set. Ownership: a handle is a pointer that
 * no other live object of the process has, which the address of memory is by itself. */
static node* make(npu_device* device, uint64_t size) {
  node* made = size < max_memory ? aligned_alloc(HOST_ALIGNMENT, round_up(size, HOST_ALIGNMENT)) : NULL;
  if (!made) {
    fail(NPU_ERROR_MEMORY, "expected %" PRIu64 " bytes of host memory, got none", size);
    return NULL;
  }
  pthread_mutex_lock(&device->lock);
  *made = (node){.next = device->objects, .device = device, .key = (uintptr_t)made};
  device->objects = made;
  pthread_mutex_unlock(&device->lock);
  return made;
}

/* Takes the node with this key out of a list and frees it. Returns whether there was one. */
static int drop(npu_device* device, node** list, uint64_t key) {
  pthread_mutex_lock(&device->lock);
  node** at = list;
  while (*at && (*at)->key != key) at = &(*at)->next;
  node* found = *at;
  if (found) *at = found->next;
  pthread_mutex_unlock(&device->lock);
  free(found);
  return found != NULL;
}

/* Where the device keeps [addr, addr + size), or NULL if that is not inside one live block. The lock is held. */
static char* find(npu_device* device, npu_addr addr, uint64_t size) {
  for (node* n = device->blocks; n; n = n->next) {
    uint64_t offset = addr - n->key; /* huge if addr is below */
    if (offset < n->size && size <= n->size - offset) return device->arena + (addr - device->base);
  }
  return NULL;
}

/* ---- instances and devices. Options stand behind the colon of TORCH_NPU_DRIVER=template:memory=512M:devices=2 ---- */
static int shift_of(char letter) { return letter == 'K' ? 10 : letter == 'M' ? 20 : letter == 'G' ? 30 : 0; }

/* Reads one option into `out`. Returns what stands behind it, or NULL if `text` starts with no option of ours. */
static const char* read_option(const char* text, npu_instance* out) {
  int memory = strncmp(text, "memory=", 7) == 0;
  int devices = strncmp(text, "devices=", 8) == 0;
  if (!memory && !devices) return NULL;
  char* end;
  uint64_t number = strtoull(strchr(text, '=') + 1, &end, 10);
  int shift = memory ? shift_of(*end) : 0;
  if (shift != 0) end++;
  if (number == 0 || number > (memory ? max_memory >> shift : MAX_DEVICES)) return NULL;
  if (memory) out->memory = round_up(number << shift, ALIGNMENT);
  if (devices) out->devices = number;
  if (*end == ':') return end + 1;
  return *end == '\0' ? end : NULL;
}
static npu_status driver_open(const char* options, npu_instance** out) {
  npu_instance read = {.memory = 8ull << 30, .devices = 1};
  for (const char *at = options, *next; *at != '\0'; at = next) {
    next = read_option(at, &read);
    if (!next) return fail(NPU_ERROR_INVALID, "expected memory=1..8192G or devices=1..%d, got '%s'", MAX_DEVICES, at);
  }
  npu_instance* made = malloc(sizeof *made);
  if (!made) return fail(NPU_ERROR_MEMORY, "open: expected host memory, got none");
  *made = read;
  *out = made;
  return NPU_OK;
}
static void driver_close(npu_instance* instance) { free(instance); }
static npu_status device_count(npu_instance* instance, uint32_t* out) {
  *out = (uint32_t)instance->devices; /* CHIP: what the bus shows */
  return NPU_OK;
}

/* A device address is never a host pointer (command.h). No CPU has pointers like these, so one that is used as a
 * pointer crashes at once. Each device has a window of its own, so the address of another device is refused as well. */
static npu_addr first_address(uint32_t index) { return 0x0B00000000000000u + ((npu_addr)index << 44); }
static npu_status device_open(npu_instance* instance, uint32_t index, npu_device** out) {
  if (index >= instance->devices)
    return fail(NPU_ERROR_INVALID, "device_open: expected an index below %d, got %u", (int)instance->devices, index);
  /* CHIP: open the device file and map its registers. Here pages of memory appear when they are first written. */
  char* arena = mmap(NULL, instance->memory, PROT_READ | PROT_WRITE, ARENA_FLAGS, -1, 0);
  npu_device* device = arena != MAP_FAILED ? malloc(sizeof *device) : NULL;
  if (!device) {
    if (arena != MAP_FAILED) munmap(arena, instance->memory);
    return fail(NPU_ERROR_MEMORY, "device_open: expected %" PRIu64 " bytes, got none", instance->memory);
  }
  *device = (npu_device){.total = instance->memory, .base = first_address(index), .arena = arena};
  pthread_mutex_init(&device->lock, NULL);
  *out = device;
  return NPU_OK;
}

/* device_close frees what is left of the device's objects. CHIP: after it has waited for all work. */
static void device_close(npu_device* device) {
  while (device->blocks) drop(device, &device->blocks, device->blocks->key);
  while (device->objects) drop(device, &device->objects, device->objects->key);
  munmap(device->arena, device->total);
  pthread_mutex_destroy(&device->lock);
  free(device);
}
static npu_status device_properties(npu_device* device, npu_properties* out) {
  npu_properties known = {
      .struct_size = out->struct_size,
      .commands = 0, /* CHIP: 1u << NPU_COPY | ... */
      .name = "Template",
      .vendor = "torch_npu",
      .total_memory = device->total,
      .alignment = ALIGNMENT,
  };
  /* A younger host has a longer struct, an older one a shorter: no more is filled than the caller knows. */
  memcpy(out, &known, out->struct_size < sizeof known ? out->struct_size : sizeof known);
  return NPU_OK;
}
/* CHIP: wait for every queue; report the first asynchronous failure, once. device_reset empties the queues instead. */
static npu_status device_synchronize(npu_device* device) { return NPU_OK; }

/* ---- memory ---- */
static npu_status memory_info(npu_device* device, uint64_t* free_bytes, uint64_t* total_bytes) {
  *total_bytes = *free_bytes = device->total;
  pthread_mutex_lock(&device->lock);
  for (node* n = device->blocks; n; n = n->next) *free_bytes -= n->size;
  pthread_mutex_unlock(&device->lock);
  return NPU_OK;
}

/* First fit. The host asks rarely and for large pieces, which it splits itself, so a walk is quick enough. */
static npu_status memory_alloc(npu_device* device, uint64_t size, npu_addr* out) {
  if (size == 0) return fail(NPU_ERROR_INVALID, "memory_alloc: expected a size above 0, got 0");
  uint64_t need = size > device->total ? UINT64_MAX : round_up(size, ALIGNMENT);
  npu_addr start = device->base; /* of the gap in front of *at */
  npu_addr end = device->base + device->total;
  pthread_mutex_lock(&device->lock);
  node** at = &device->blocks;
  while (*at && (*at)->key - start < need) {
    start = (*at)->key + (*at)->size;
    at = &(*at)->next;
  }
  node* made = end - start >= need ? malloc(sizeof *made) : NULL;
  if (made) {
    *made = (node){.next = *at, .device = device, .key = start, .size = need};
    *at = made;
  }
  pthread_mutex_unlock(&device->lock);
  if (!made) return fail(NPU_ERROR_MEMORY, "memory_alloc: expected %" PRIu64 " bytes in one piece, got none", size);
  *out = start;
  return NPU_OK;
}
static npu_status memory_free(npu_device* device, npu_addr addr) {
  if (drop(device, &device->blocks, addr)) return NPU_OK;
  return fail(NPU_ERROR_ADDRESS, "memory_free: expected the start of a live allocation, got 0x%" PRIx64, addr);
}

/* CHIP: page-locked memory that the DMA engine can reach. The node lies in front of what the caller gets. */
static npu_status host_alloc(npu_device* device, uint64_t size, void** out) {
  if (size == 0) return fail(NPU_ERROR_INVALID, "host_alloc: expected a size above 0, got 0");
  char* made = (char*)make(device, size < max_memory ? HOST_ALIGNMENT + size : size);
  if (!made) return NPU_ERROR_MEMORY;
  *out = made + HOST_ALIGNMENT;
  return NPU_OK;
}
static npu_status host_free(npu_device* device, void* ptr) {
  if (drop(device, &device->objects, (uintptr_t)ptr - HOST_ALIGNMENT)) return NPU_OK;
  return fail(NPU_ERROR_INVALID, "host_free: expected memory of host_alloc, got %p", ptr);
}

/* ---- copies ---- */
/* Each side is a host pointer or else a device address. CHIP: check, put a descriptor into the stream's queue, ring the
 * doorbell and return; without NPU_COPY_PINNED stage the host's bytes first, or wait. */
static npu_status copy(const char* what, npu_stream* stream, void* to, npu_addr dst, const void* from, npu_addr src,
                       uint64_t size) {
  if (size == 0) return NPU_OK;
  npu_device* device = stream->node.device;
  pthread_mutex_lock(&device->lock);
  if (!to) to = find(device, dst, size);
  if (!from) from = find(device, src, size);
  if (to && from) memmove(to, from, size); /* overlapping ranges copy as memmove does */
  pthread_mutex_unlock(&device->lock);
  if (to && from) return NPU_OK;
  return fail(NPU_ERROR_ADDRESS, "%s: expected %" PRIu64 " bytes in one live allocation, got 0x%" PRIx64, what, size,
              to ? src : dst);
}
static npu_status copy_to_device(npu_stream* stream, npu_addr dst, const void* src, uint64_t size, uint32_t flags) {
  return copy("copy_to_device", stream, NULL, dst, src, 0, size);
}
static npu_status copy_to_host(npu_stream* stream, void* dst, npu_addr src, uint64_t size, uint32_t flags) {
  return copy("copy_to_host", stream, dst, 0, NULL, src, size);
}
static npu_status copy_on_device(npu_stream* stream, npu_addr dst, npu_addr src, uint64_t size) {
  return copy("copy_on_device", stream, NULL, dst, NULL, src, size);
}

/* ---- streams and events: all work is done when its call returns, so nothing ever waits ---- */
static npu_status stream_create(npu_device* device, int32_t priority, npu_stream** out) {
  *out = (npu_stream*)make(device, sizeof **out);
  return *out ? NPU_OK : NPU_ERROR_MEMORY;
}
static void stream_destroy(npu_stream* stream) {
  drop(stream->node.device, &stream->node.device->objects, stream->node.key);
}
/* CHIP: NPU_NOT_READY while the queue holds work; stream_synchronize waits for it and reports the first failure. */
static npu_status stream_query(npu_stream* stream) { return NPU_OK; }
/* CHIP: queue "wait until the event's count is reached". */
static npu_status stream_wait_event(npu_stream* stream, npu_event* event) { return NPU_OK; }

static npu_status event_create(npu_device* device, uint32_t flags, npu_event** out) {
  npu_event* made = (npu_event*)make(device, sizeof *made);
  if (!made) return NPU_ERROR_MEMORY;
  made->flags = flags;
  made->time = 0;
  *out = made;
  return NPU_OK;
}
static void event_destroy(npu_event* event) { drop(event->node.device, &event->node.device->objects, event->node.key); }
/* CHIP: queue "write the time and raise the event's count". */
static npu_status event_record(npu_event* event, npu_stream* stream) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  event->time = now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
  return NPU_OK;
}
/* CHIP: NPU_NOT_READY until the last record is reached; event_synchronize waits for it. */
static npu_status event_query(npu_event* event) { return NPU_OK; }
static npu_status event_elapsed(npu_event* start, npu_event* end, double* out) {
  if (!(start->flags & end->flags & NPU_EVENT_TIMING) || start->time == 0 || end->time == 0)
    return fail(NPU_ERROR_INVALID, "event_elapsed: expected two recorded events made with NPU_EVENT_TIMING");
  *out = end->time - start->time;
  return NPU_OK;
}

/* ---- programs and commands: where a chip's own work begins ---- */
static npu_status program_create(npu_device* device, const npu_program_desc* desc, npu_program** out) {
  return fail(NPU_UNSUPPORTED, "program '%s': this driver runs none", desc->name);
}
static void program_destroy(npu_program* program) {}
static npu_status supports(npu_device* device, const npu_command* command) {
  return fail(NPU_UNSUPPORTED, "command kind %d: this driver runs none", command->kind);
}
static npu_status submit(npu_stream* stream, const npu_command* command) {
  return supports(stream->node.device, command);
}

/* ---- the table, in the order of runtime.h: what is not named is NULL, "this driver has none" ---- */
static const npu_driver driver = {
    .abi_major = NPU_ABI_MAJOR,
    .abi_minor = NPU_ABI_MINOR,
    .struct_size = sizeof(npu_driver),
    .name = "template",
    .version = "1.0",
    .error_text = error_text,
    .open = driver_open,
    .close = driver_close,
    .device_count = device_count,
    .device_open = device_open,
    .device_close = device_close,
    .device_properties = device_properties,
    .device_synchronize = device_synchronize,
    .device_reset = device_synchronize, /* nothing is ever queued */
    .memory_info = memory_info,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .copy_to_device = copy_to_device,
    .copy_to_host = copy_to_host,
    .copy_on_device = copy_on_device,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_query = stream_query,
    .stream_synchronize = stream_query, /* nothing is ever queued */
    .stream_wait_event = stream_wait_event,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_synchronize = event_query, /* nothing is ever queued */
    .event_elapsed = event_elapsed,
    .program_create = program_create,
    .program_destroy = program_destroy,
    .supports = supports,
    .submit = submit,
};
const npu_driver* npu_driver_get(void) { return &driver; }
