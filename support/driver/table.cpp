#include <exception>
#include <new>

#include "support/driver/base.h"
#include "support/driver/functions.h"

namespace npu::driver {
namespace {

template <auto function>
struct Entry;
template <class... Args, npu_status (*function)(Args...)>
struct Entry<function> {
  static npu_status call(Args... args) noexcept {
    try {
      return function(args...);
    } catch (const std::bad_alloc&) {
      return error(NPU_ERROR_MEMORY, "expected host memory for the driver's own records, got none");
    } catch (const std::exception& why) {
      return error(NPU_ERROR_INTERNAL, why.what());
    }
  }
};

npu_driver make_table() {
  npu_driver d{};
  d.abi_major = NPU_ABI_MAJOR;
  d.abi_minor = NPU_ABI_MINOR;
  d.struct_size = sizeof(npu_driver);
  d.name = name;
  d.version = version;
  d.error_text = error_text;
#define GUARDED(function) d.function = Entry<function>::call
#define OPTIONAL(function) d.function = function ? Entry<function>::call : nullptr
#define PLAIN(function) d.function = function
  GUARDED(open);
  PLAIN(close);
  GUARDED(device_count);
  GUARDED(device_open);
  PLAIN(device_close);
  GUARDED(device_properties);
  GUARDED(device_synchronize);
  GUARDED(device_reset);
  GUARDED(memory_info);
  GUARDED(memory_alloc);
  GUARDED(memory_free);
  GUARDED(host_alloc);
  GUARDED(host_free);
  OPTIONAL(range_reserve);
  OPTIONAL(range_map);
  OPTIONAL(range_unmap);
  OPTIONAL(range_release);
  GUARDED(copy_to_device);
  GUARDED(copy_to_host);
  GUARDED(copy_on_device);
  GUARDED(stream_create);
  PLAIN(stream_destroy);
  GUARDED(stream_query);
  GUARDED(stream_synchronize);
  GUARDED(stream_wait_event);
  GUARDED(event_create);
  PLAIN(event_destroy);
  GUARDED(event_record);
  GUARDED(event_query);
  GUARDED(event_synchronize);
  GUARDED(event_elapsed);
  GUARDED(program_create);
  PLAIN(program_destroy);
  GUARDED(supports);
  GUARDED(submit);
  OPTIONAL(choices);
#undef GUARDED
#undef OPTIONAL
#undef PLAIN
  return d;
}

}  // namespace
}  // namespace npu::driver

extern "C" NPU_EXPORT const npu_driver* npu_driver_get(void) {
  static const npu_driver driver = npu::driver::make_table();
  return &driver;
}
