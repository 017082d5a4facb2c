/* The smallest complete driver: memory, copies, streams and events. Every command is "unsupported", so the host
 * computes it on the CPU, and all of PyTorch already works. Copy this folder, replace what the comments marked CHIP
 * point at, and add one command at a time: docs/driver-guide.md. The rules are in include/npu/runtime.h.
 *
 * Its device is an arena of host memory, and its work is done when the call returns. That is a legal device: a stream
 * that is always idle keeps every promise about order. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "npu/runtime.h"

enum { ALIGNMENT = 512, MAX_DEVICES = 64 };
/* No CPU has such pointers, so a device address that is used as one crashes at once. Every device has a window of its
 * own, so the address of another device is refused as well. */
#define WINDOW(index) (0x0B00000000000000u + ((npu_addr)(index) << 44))
#define MAX_MEMORY (1ull << 43)
struct npu_instance {
  uint64_t memory, devices; /* options: bytes per device, number of devices */
};
/* What the caller must give back: device memory, host memory, a stream, an event. */
typedef struct node {
  struct node* next;
  npu_device* device;
  uint64_t key, size; /* how the caller names it; bytes of device memory */
} node;
struct npu_device {
  pthread_mutex_t lock; /* guards the lists and the memory itself: one piece of work at a time */
  uint64_t total;
  npu_addr base;
  char* arena;
  node *blocks, *objects; /* device memory by address, and what lies between two blocks is free; the rest */
};
struct npu_stream {
  node node; /* CHIP: and its queue */
};
struct npu_event {
  node node;
  uint32_t flags;
  _Atomic double time; /* of the last record, in milliseconds; 0: never */
};

static _Thread_local char text[256] = "no error";
#define FAIL(status, ...) (snprintf(text, sizeof text, __VA_ARGS__), (status))
static const char* error_text(void) { return text; }

/* ---- instances and devices ---- */
static npu_status driver_open(const char* options, npu_instance** out) {
  npu_instance made = {.memory = 8ull << 30, .devices = 1};
  for (const char* at = options; *at; at += strcspn(at, ":"), at += *at == ':') {
    int memory = !strncmp(at, "memory=", 7), devices = !strncmp(at, "devices=", 8);
    char* end = (char*)at;
    uint64_t number = memory || devices ? strtoull(strchr(at, '=') + 1, &end, 10) : 0;
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    uint64_t most = memory ? MAX_MEMORY >> shift : devices && !shift ? MAX_DEVICES : 0;
    if (number - 1 >= most || (end[shift != 0] && end[shift != 0] != ':'))
      return FAIL(NPU_ERROR_INVALID, "expected memory=1..8192G or devices=1..%d, got '%s'", MAX_DEVICES, at);
    *(memory ? &made.memory : &made.devices) = number << shift;
  }
  made.memory = (made.memory + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (!(*out = malloc(sizeof **out))) return FAIL(NPU_ERROR_MEMORY, "open: expected host memory, got none");
  return **out = made, NPU_OK;
}
static void driver_close(npu_instance* instance) { free(instance); }
/* CHIP: what the bus shows. */
static npu_status device_count(npu_instance* i, uint32_t* out) { return *out = (uint32_t)i->devices, NPU_OK; }

static npu_status device_open(npu_instance* instance, uint32_t index, npu_device** out) {
  if (index >= instance->devices)
    return FAIL(NPU_ERROR_INVALID, "device_open: expected an index below %d, got %u", (int)instance->devices, index);
  /* CHIP: open the device file and map its registers. Here pages appear when they are first written. */
  enum { FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };
  char* arena = mmap(NULL, instance->memory, PROT_READ | PROT_WRITE, FLAGS, -1, 0);
  npu_device* device = arena == MAP_FAILED ? NULL : malloc(sizeof *device);
  if (!device && arena != MAP_FAILED) munmap(arena, instance->memory);
  if (!device) return FAIL(NPU_ERROR_MEMORY, "device_open: expected %" PRIu64 " bytes, got none", instance->memory);
  *device = (npu_device){.total = instance->memory, .base = WINDOW(index), .arena = arena};
  pthread_mutex_init(&device->lock, NULL);
  return *out = device, NPU_OK;
}

static void device_close(npu_device* device) {
  node* lists[] = {device->blocks, device->objects};
  for (int i = 0; i < 2; i++)
    for (node *n = lists[i], *next; n; n = next) next = n->next, free(n);
  munmap(device->arena, device->total);
  pthread_mutex_destroy(&device->lock);
  free(device);
}

static npu_status device_properties(npu_device* device, npu_properties* out) {
  npu_properties p = {.name = "Template", .vendor = "torch_npu", .total_memory = device->total, .alignment = ALIGNMENT};
  p.struct_size = out->struct_size; /* a younger host has a longer struct, an older one a shorter */
  memcpy(out, &p, p.struct_size < sizeof p ? p.struct_size : sizeof p);
  return NPU_OK;
}

/* Also device_reset. CHIP: wait for every queue and report the first failure once; reset empties the queues instead. */
static npu_status device_synchronize(npu_device* device) { return (void)device, NPU_OK; }

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
  if (size == 0) return FAIL(NPU_ERROR_INVALID, "memory_alloc: expected a size above 0, got 0");
  uint64_t need = size > device->total ? UINT64_MAX : (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  npu_addr start = device->base, end = device->base + device->total;
  pthread_mutex_lock(&device->lock);
  node** at = &device->blocks;
  for (; *at && (*at)->key - start < need; at = &(*at)->next) start = (*at)->key + (*at)->size;
  node* made = end - start < need ? NULL : malloc(sizeof *made);
  if (made) *made = (node){.next = *at, .device = device, .key = start, .size = need}, *at = made;
  pthread_mutex_unlock(&device->lock);
  if (!made) return FAIL(NPU_ERROR_MEMORY, "memory_alloc: expected %" PRIu64 " bytes in one piece, got none", size);
  return *out = start, NPU_OK;
}

static int drop(npu_device* device, node** list, uint64_t key) {
  pthread_mutex_lock(&device->lock);
  while (*list && (*list)->key != key) list = &(*list)->next;
  node* n = *list;
  if (n) *list = n->next;
  pthread_mutex_unlock(&device->lock);
  free(n);
  return n != NULL;
}
static npu_status memory_free(npu_device* device, npu_addr addr) {
  if (drop(device, &device->blocks, addr)) return NPU_OK;
  return FAIL(NPU_ERROR_ADDRESS, "memory_free: expected the start of a live allocation, got 0x%" PRIx64, addr);
}

static node* make(npu_device* device, uint64_t size) {
  node* n = size < MAX_MEMORY ? aligned_alloc(64, (size + 63) / 64 * 64) : NULL;
  if (!n) return (void)FAIL(0, "expected %" PRIu64 " bytes of host memory, got none", size), NULL;
  pthread_mutex_lock(&device->lock);
  *n = (node){.next = device->objects, .device = device, .key = (uintptr_t)n}, device->objects = n;
  pthread_mutex_unlock(&device->lock);
  return n;
}

/* CHIP: page-locked memory that the DMA engine can reach. The node lies in the 64 bytes in front of it. */
static npu_status host_alloc(npu_device* device, uint64_t size, void** out) {
  if (size == 0) return FAIL(NPU_ERROR_INVALID, "host_alloc: expected a size above 0, got 0");
  char* made = (char*)make(device, size < MAX_MEMORY ? size + 64 : size);
  return made ? *out = made + 64, NPU_OK : NPU_ERROR_MEMORY;
}
static npu_status host_free(npu_device* device, void* ptr) {
  if (drop(device, &device->objects, (uintptr_t)ptr - 64)) return NPU_OK;
  return FAIL(NPU_ERROR_INVALID, "host_free: expected memory of host_alloc, got %p", ptr);
}

/* ---- copies ---- */
/* Where the device keeps [addr, addr + size), or NULL if that is not inside one live block. The lock is held. */
static char* find(npu_device* device, npu_addr addr, uint64_t size) {
  for (node* n = device->blocks; n; n = n->next)
    if (addr >= n->key && addr - n->key < n->size && size <= n->size - (addr - n->key))
      return device->arena + (addr - device->base);
  return NULL;
}

/* Each side is a host pointer or else a device address. CHIP: check, put a descriptor into the stream's queue, ring the
 * doorbell and return; without NPU_COPY_PINNED stage the host's bytes first, or wait. */
static npu_status copy(const char* what, npu_stream* stream, void* to, npu_addr dst, const void* from, npu_addr src,
                       uint64_t size) {
  npu_device* device = stream->node.device;
  pthread_mutex_lock(&device->lock);
  if (!to) to = find(device, dst, size);
  if (!from) from = find(device, src, size);
  if (to && from) memmove(to, from, size);
  pthread_mutex_unlock(&device->lock);
  if ((to && from) || size == 0) return NPU_OK;
  return FAIL(NPU_ERROR_ADDRESS, "%s: expected %" PRIu64 " bytes in one live allocation, got 0x%" PRIx64, what, size,
              to ? src : dst);
}

static npu_status copy_to_device(npu_stream* stream, npu_addr dst, const void* src, uint64_t size, uint32_t flags) {
  return (void)flags, copy("copy_to_device", stream, NULL, dst, src, 0, size);
}
static npu_status copy_to_host(npu_stream* stream, void* dst, npu_addr src, uint64_t size, uint32_t flags) {
  return (void)flags, copy("copy_to_host", stream, dst, 0, NULL, src, size);
}
static npu_status copy_on_device(npu_stream* stream, npu_addr dst, npu_addr src, uint64_t size) {
  return copy("copy_on_device", stream, NULL, dst, NULL, src, size);
}

/* ---- streams and events: all work is done when its call returns, so nothing ever waits ---- */
static npu_status stream_create(npu_device* device, int32_t priority, npu_stream** out) {
  (void)priority; /* properties announce one priority, 0 */
  return (*out = (npu_stream*)make(device, sizeof **out)) ? NPU_OK : NPU_ERROR_MEMORY;
}
static void stream_destroy(npu_stream* s) { drop(s->node.device, &s->node.device->objects, s->node.key); }
static npu_status stream_query(npu_stream* s) { return (void)s, NPU_OK; } /* also stream_synchronize */
/* CHIP: queue "wait until the event's count is reached". */
static npu_status stream_wait_event(npu_stream* s, npu_event* e) { return (void)s, (void)e, NPU_OK; }

static npu_status event_create(npu_device* device, uint32_t flags, npu_event** out) {
  if (!(*out = (npu_event*)make(device, sizeof **out))) return NPU_ERROR_MEMORY;
  (*out)->flags = flags, (*out)->time = 0;
  return NPU_OK;
}
static void event_destroy(npu_event* e) { drop(e->node.device, &e->node.device->objects, e->node.key); }
static npu_status event_query(npu_event* e) { return (void)e, NPU_OK; } /* also event_synchronize */
/* CHIP: queue "write the time and raise the event's count". */
static npu_status event_record(npu_event* event, npu_stream* stream) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  event->time = now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
  return (void)stream, NPU_OK;
}
static npu_status event_elapsed(npu_event* start, npu_event* end, double* out) {
  if (!(start->flags & end->flags & NPU_EVENT_TIMING) || start->time == 0 || end->time == 0)
    return FAIL(NPU_ERROR_INVALID, "event_elapsed: expected two recorded events made with NPU_EVENT_TIMING");
  return *out = end->time - start->time, NPU_OK;
}

/* ---- programs and commands: where a chip's own work begins ---- */
static npu_status program_create(npu_device* device, const npu_program_desc* desc, npu_program** out) {
  return (void)device, (void)out, FAIL(NPU_UNSUPPORTED, "program '%s': this driver runs none", desc->name);
}
static void program_destroy(npu_program* program) { (void)program; }
static npu_status supports(npu_device* device, const npu_command* command) {
  return (void)device, FAIL(NPU_UNSUPPORTED, "command kind %d: this driver runs none", command->kind);
}
static npu_status submit(npu_stream* s, const npu_command* command) { return supports(s->node.device, command); }

// clang-format off
const npu_driver* npu_driver_get(void) {
#define F(name) .name = name
  static const npu_driver driver = {
      .abi_major = NPU_ABI_MAJOR, .abi_minor = NPU_ABI_MINOR, .struct_size = sizeof(npu_driver), .name = "template",
      .version = "1.0", .open = driver_open, .close = driver_close, .device_reset = device_synchronize,
      .stream_synchronize = stream_query, .event_synchronize = event_query, F(error_text), F(device_count),
      F(device_open), F(device_close), F(device_properties), F(device_synchronize), F(memory_info), F(memory_alloc),
      F(memory_free), F(host_alloc), F(host_free), F(copy_to_device), F(copy_to_host), F(copy_on_device),
      F(stream_create), F(stream_destroy), F(stream_query), F(stream_wait_event), F(event_create), F(event_destroy),
      F(event_record), F(event_query), F(event_elapsed), F(program_create), F(program_destroy), F(supports), F(submit)};
  return &driver;
}
