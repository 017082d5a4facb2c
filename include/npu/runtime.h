/* npu/runtime.h: the contract between PyTorch and hardware.
 *
 * A driver is a shared library that exports `npu_driver_get`. Nothing here is specific to PyTorch, and
 * nothing above this line is specific to a driver. Rules that hold for every function:
 *
 * - Result. NPU_OK or an error. After an error, `error_text` on the same thread says what happened in
 *   one line: "expected ..., got ...". A failed call changes nothing and leaves the device usable.
 * - Threads. Every function may be called from any thread at any time, also on one object at once,
 *   except that an object is not used while or after it is destroyed.
 * - Ownership. Objects belong to the caller and are destroyed in any order before their device is
 *   closed. A handle is a pointer that no other live object of the process has, of whatever device. Memory
 *   behind a pointer argument is read or written during the call only, unless stated.
 * - Order. Work given to one stream runs in the order given. Work on different streams is ordered only
 *   by events. Functions that take a stream return before the work is done, unless stated.
 * - Asynchronous failure. Work that fails after it was accepted (bad address, index out of range) has
 *   undefined results; the work behind it still runs. A stream keeps the first such failure, and further ones
 *   only after that was reported: once, by the next stream_synchronize, event_synchronize of an event recorded
 *   behind it, or device_synchronize. device_synchronize reports one failure, the oldest; those of other
 *   streams stay until they are reported themselves. A failure that nobody asked for goes with its stream in
 *   stream_destroy, and with all others in device_reset.
 * - Optional functions are NULL where a driver has none.
 */
#ifndef NPU_RUNTIME_H
#define NPU_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#include "npu/command.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A driver of another major version is refused. A higher minor adds functions, instructions or fields at
 * the end of structs; `struct_size` says how much of a struct the other side knows. */
#define NPU_ABI_MAJOR 1
#define NPU_ABI_MINOR 1

typedef enum npu_status {
  NPU_OK = 0,
  NPU_NOT_READY = 1,         /* queries only: not an error */
  NPU_UNSUPPORTED = 2,       /* nothing was done; the host does it another way */
  NPU_ERROR_INVALID = 3,     /* an argument breaks a rule of the contract */
  NPU_ERROR_MEMORY = 4,      /* no device (or pinned) memory left for this request */
  NPU_ERROR_ADDRESS = 5,     /* an access outside a live allocation */
  NPU_ERROR_INDEX = 6,       /* check_index failed */
  NPU_ERROR_TIMEOUT = 7,     /* the hardware did not answer */
  NPU_ERROR_DEVICE_LOST = 8, /* the device needs device_reset */
  NPU_ERROR_INTERNAL = 9
} npu_status;

typedef struct npu_instance npu_instance; /* one loaded driver with its options */
typedef struct npu_device npu_device;
typedef struct npu_stream npu_stream;
typedef struct npu_event npu_event;
typedef struct npu_program npu_program;

typedef struct npu_properties {
  uint32_t struct_size; /* set by the caller; the driver fills no more than this */
  uint32_t commands;    /* bit k (1u << NPU_COPY, ...): command kind k is implemented, at least in part. For people and
                           for hosts that plan; whether a command runs, `supports` and `submit` decide */
  char name[64];        /* "C model", "Acme X1" */
  char vendor[32];
  uint64_t total_memory;                     /* bytes */
  uint64_t alignment;                        /* of allocations, a power of two, 64 or more */
  uint32_t units;                            /* cores, tiles or lanes: what can work at the same time */
  uint32_t clock_mhz;                        /* 0: unknown */
  uint32_t major, minor;                     /* revision of the hardware */
  double peak_flops;                         /* F32 multiply-adds count as two; 0: unknown */
  double peak_bandwidth;                     /* bytes per second; 0: unknown */
  int32_t least_priority, greatest_priority; /* of streams; greatest is the smaller number */
} npu_properties;

/* One way to run a command: what a host that measures may ask for. */
typedef struct npu_choice {
  uint32_t id;   /* 1 to 255: npu_command::choice */
  char text[60]; /* "tile=64x128,threads=2": for people, and for the host's memory of what was best */
} npu_choice;

enum {
  NPU_COPY_PINNED = 1 << 0, /* the host memory came from host_alloc and stays valid until the copy is done: do
                               not wait. Without it the call returns when host memory is no longer needed */
  NPU_EVENT_TIMING = 1 << 0 /* event_create: the event takes part in event_elapsed */
};

typedef struct npu_driver {
  uint32_t abi_major, abi_minor; /* NPU_ABI_* the driver was compiled with */
  uint32_t struct_size;          /* sizeof(npu_driver) of the driver */
  uint32_t zero;
  const char* name;
  const char* version;

  /* -- instances and devices -- */

  /* One line about the last error on the calling thread. Valid until the next call on that thread. */
  const char* (*error_text)(void);
  /* Starts the driver. `options` is what followed the colon in TORCH_NPU_DRIVER ("" if nothing):
   * key=value pairs separated by colons, or a path, as the driver likes. A driver may be opened more than
   * once, with independent devices. */
  npu_status (*open)(const char* options, npu_instance** out);
  /* Every device is closed before. */
  void (*close)(npu_instance* instance);
  npu_status (*device_count)(npu_instance* instance, uint32_t* out);
  npu_status (*device_open)(npu_instance* instance, uint32_t index, npu_device** out);
  /* Waits for all work, then frees what is left of the device's objects. */
  void (*device_close)(npu_device* device);
  npu_status (*device_properties)(npu_device* device, npu_properties* out);
  /* Waits for all streams of the device. Reports the oldest asynchronous failure of any of them; others stay. */
  npu_status (*device_synchronize)(npu_device* device);
  /* Drops queued work and failures; memory, streams and events stay valid, contents of memory written by
   * dropped work are undefined. An event whose record was dropped counts as reached, and a wait for it ends: nobody
   * waits for what will never come. event_elapsed of such a record is NPU_ERROR_INVALID, or a time without meaning.
   * Makes a lost device usable, or says why not. */
  npu_status (*device_reset)(npu_device* device);

  /* -- memory -- */

  npu_status (*memory_info)(npu_device* device, uint64_t* free_bytes, uint64_t* total_bytes);
  /* NPU_ERROR_MEMORY when there is not enough. Contents are undefined. `size` > 0. */
  npu_status (*memory_alloc)(npu_device* device, uint64_t size, npu_addr* out);
  /* The caller has made sure that no queued work uses it. */
  npu_status (*memory_free)(npu_device* device, npu_addr addr);
  /* Page-locked host memory that copies can use without staging. `size` > 0; aligned to 64. */
  npu_status (*host_alloc)(npu_device* device, uint64_t size, void** out);
  npu_status (*host_free)(npu_device* device, void* ptr);
  /* Optional, all four or none: address ranges that grow. reserve takes addresses but no memory; map and
   * unmap give and take the memory of a part, whose ends are multiples of `alignment` from properties. */
  npu_status (*range_reserve)(npu_device* device, uint64_t size, npu_addr* out);
  npu_status (*range_map)(npu_device* device, npu_addr addr, uint64_t size);
  npu_status (*range_unmap)(npu_device* device, npu_addr addr, uint64_t size);
  npu_status (*range_release)(npu_device* device, npu_addr addr); /* whole range, all of it unmapped */

  /* -- copies: `size` bytes, any alignment. flags: NPU_COPY_* -- */

  npu_status (*copy_to_device)(npu_stream* stream, npu_addr dst, const void* src, uint64_t size, uint32_t flags);
  npu_status (*copy_to_host)(npu_stream* stream, void* dst, npu_addr src, uint64_t size, uint32_t flags);
  /* Within one device. Overlapping ranges copy as memmove does. */
  npu_status (*copy_on_device)(npu_stream* stream, npu_addr dst, npu_addr src, uint64_t size);

  /* -- streams and events -- */

  npu_status (*stream_create)(npu_device* device, int32_t priority, npu_stream** out);
  /* Waits for the stream's work. A failure of it that was not reported is lost: synchronize first to hear of it. */
  void (*stream_destroy)(npu_stream* stream);
  npu_status (*stream_query)(npu_stream* stream); /* NPU_OK: idle, NPU_NOT_READY: busy */
  npu_status (*stream_synchronize)(npu_stream* stream);
  /* Work given to `stream` from now on waits for the last record of `event` (none: no wait). Both may be of
   * different devices of one instance. */
  npu_status (*stream_wait_event)(npu_stream* stream, npu_event* event);
  npu_status (*event_create)(npu_device* device, uint32_t flags, npu_event** out);
  /* A destroyed event still orders the work that waits for it. */
  void (*event_destroy)(npu_event* event);
  npu_status (*event_record)(npu_event* event, npu_stream* stream);
  npu_status (*event_query)(npu_event* event); /* NPU_OK: reached or never recorded, or NPU_NOT_READY */
  npu_status (*event_synchronize)(npu_event* event);
  /* Milliseconds between two reached timing events, with sub-microsecond resolution. */
  npu_status (*event_elapsed)(npu_event* start, npu_event* end, double* out);

  /* -- programs and commands -- */

  /* Checks the program and keeps what the driver needs of it. NPU_UNSUPPORTED: it has an instruction that the
   * driver does not have. */
  npu_status (*program_create)(npu_device* device, const npu_program_desc* desc, npu_program** out);
  void (*program_destroy)(npu_program* program);
  /* NPU_OK or NPU_UNSUPPORTED. The answer depends on the kind, the program, rank, inner_rank, the operands'
   * types and flags and the fields of `u` only, so that it can be remembered; addresses and params may be
   * absent (zero). */
  npu_status (*supports)(npu_device* device, const npu_command* command);
  /* Gives the command to the stream. May say NPU_UNSUPPORTED for any reason (a size, a stride), at once and
   * before doing anything. */
  npu_status (*submit)(npu_stream* stream, const npu_command* command);

  /* -- since 1.1 -- */

  /* Optional: the ways to run this command that may be worth measuring, best guess first. Writes up to `capacity` of
   * them and their number to *count, which may be 0. Addresses and params may be absent (zero). Every choice keeps
   * every promise about results. A choice stays valid for commands that differ in sizes, strides, addresses, params and
   * label only (where it does not fit, the driver decides); `submit` refuses any other with NPU_ERROR_INVALID. */
  npu_status (*choices)(npu_device* device, const npu_command* command, npu_choice* out, uint32_t capacity,
                        uint32_t* count);
} npu_driver;

#if defined(_WIN32)
#define NPU_EXPORT __declspec(dllexport)
#else
#define NPU_EXPORT __attribute__((visibility("default")))
#endif

/* The one symbol of a driver. Returns its table, which lives as long as the library. Must not start the
 * driver: the host looks at the versions first. */
NPU_EXPORT const npu_driver* npu_driver_get(void);

#ifdef __cplusplus
}
#endif
#endif /* NPU_RUNTIME_H */
