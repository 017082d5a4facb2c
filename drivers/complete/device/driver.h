/* What every part of the driver knows: instances, devices, the objects that a caller must give back, and errors. */
#ifndef DEVICE_DRIVER_H
#define DEVICE_DRIVER_H

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

#include "npu/runtime.h"

enum { ALIGNMENT = 512, MAX_DEVICES = 64, HOST_ALIGNMENT = 64 };

/* What stood behind the colon of TORCH_NPU_DRIVER. Each room reads its own fields; see `option`. */
struct npu_instance {
  uint64_t memory;        /* bytes of each device */
  uint64_t devices;       /* how many there are */
  uint64_t timeout;       /* milliseconds without progress until a device counts as hung */
  uint64_t hang;          /* the number of the job that never ends, to test the above; 0: none */
  uint64_t compile_after; /* uses of a program until it is compiled */
};

/* One key=value that `open` takes. `scaled` numbers may end in K, M or G. A table of them ends with a NULL name. */
typedef struct option {
  const char* name;
  uint64_t least, most;
  uint64_t initial;
  size_t field; /* of npu_instance */
  int scaled;
} option;
extern const option device_options[]; /* device/options.c */
extern const option queue_options[];  /* queue/ */
extern const option unit_options[];   /* units/ */

/* Something that the caller must give back: pinned memory, a stream, an event, a program. First in its struct. */
typedef struct object {
  struct object *next, **link; /* link: what points to this one */
  npu_device* device;
  void (*destroy)(struct object* object);
} object;

/* A piece of device memory in use. */
typedef struct block {
  struct block* next; /* in order of address */
  npu_addr addr;
  uint64_t size;       /* bytes */
  char* host;          /* where its first byte really is */
  struct range* range; /* that it is a part of; NULL: it came from memory_alloc */
} block;

/* Addresses without memory: range_reserve. */
typedef struct range {
  struct range* next; /* in order of address */
  npu_addr addr;
  uint64_t size;
  char* host;
} range;

struct npu_device {
  pthread_mutex_t lock; /* guards the lists and `used`. CHIP: one lock is enough, as nothing waits while it holds it */
  npu_instance instance;
  uint64_t total, used; /* bytes */
  npu_addr base;        /* the address of the first byte */
  char* arena;          /* where that byte really is */
  block* blocks;
  range* ranges;
  object* objects;
  atomic_int lost;      /* the chip did not answer: nothing but device_reset works */
  uint64_t jobs;        /* given so far. queue_lock guards it */
  atomic_int abandoned; /* a thread is still somewhere in a hung job, and in the memory */
};

/* -- errors -- */

/* Keeps the sentence "expected ..., got ..." for error_text. Returns `status`. */
__attribute__((format(printf, 2, 3))) npu_status fail(npu_status status, const char* format, ...);
const char* error_text(void);

/* -- objects -- */

/* A new object of `size` bytes that begins with its `object`; the rest is the caller's to fill. NULL: the error is
 * set. */
void* object_make(npu_device* device, uint64_t size, void (*destroy)(object*));
/* Takes it off the device's list and frees it. */
void object_free(object* object);

/* -- memory -- */

/* Live memory around an address: `size` bytes from `addr` on, which the host finds at `host`. */
typedef struct extent {
  npu_addr addr;
  uint64_t size;
  char* host;
} extent;

/* Finds the live memory that holds all of [addr, addr + size). Returns whether there is such. */
int memory_find(npu_device* device, npu_addr addr, uint64_t size, extent* out);
void ranges_close(npu_device* device);

static inline uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

/* -- the contract's functions that these rooms have -- */

npu_status driver_open(const char* options, npu_instance** out);
void driver_close(npu_instance* instance);
npu_status device_count(npu_instance* instance, uint32_t* out);
npu_status device_open(npu_instance* instance, uint32_t index, npu_device** out);
void device_close(npu_device* device);
npu_status device_properties(npu_device* device, npu_properties* out);

npu_status memory_info(npu_device* device, uint64_t* free_bytes, uint64_t* total_bytes);
npu_status memory_alloc(npu_device* device, uint64_t size, npu_addr* out);
npu_status memory_free(npu_device* device, npu_addr addr);
npu_status host_alloc(npu_device* device, uint64_t size, void** out);
npu_status host_free(npu_device* device, void* ptr);
npu_status range_reserve(npu_device* device, uint64_t size, npu_addr* out);
npu_status range_map(npu_device* device, npu_addr addr, uint64_t size);
npu_status range_unmap(npu_device* device, npu_addr addr, uint64_t size);
npu_status range_release(npu_device* device, npu_addr addr);

#endif
