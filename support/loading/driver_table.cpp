#include "support/loading/driver_table.h"

#include <cstddef>
#include <cstdio>

namespace npu {
namespace {

// A driver of a lower minor version may have a shorter table, but never one that lacks a function of version 1.0.
constexpr uint32_t kTableSize = offsetof(npu_driver, submit) + sizeof(npu_driver::submit);

// The first function of the table that the contract demands and the driver leaves null.
const char* missing_function(const npu_driver& api) {
#define REQUIRED(function) \
  if (!api.function) return #function
  REQUIRED(error_text);
  REQUIRED(open);
  REQUIRED(close);
  REQUIRED(device_count);
  REQUIRED(device_open);
  REQUIRED(device_close);
  REQUIRED(device_properties);
  REQUIRED(device_synchronize);
  REQUIRED(device_reset);
  REQUIRED(memory_info);
  REQUIRED(memory_alloc);
  REQUIRED(memory_free);
  REQUIRED(host_alloc);
  REQUIRED(host_free);
  REQUIRED(copy_to_device);
  REQUIRED(copy_to_host);
  REQUIRED(copy_on_device);
  REQUIRED(stream_create);
  REQUIRED(stream_destroy);
  REQUIRED(stream_query);
  REQUIRED(stream_synchronize);
  REQUIRED(stream_wait_event);
  REQUIRED(event_create);
  REQUIRED(event_destroy);
  REQUIRED(event_record);
  REQUIRED(event_query);
  REQUIRED(event_synchronize);
  REQUIRED(event_elapsed);
  REQUIRED(program_create);
  REQUIRED(program_destroy);
  REQUIRED(supports);
  REQUIRED(submit);
#undef REQUIRED
  return nullptr;
}

}  // namespace

const char* status_name(npu_status status) {
  switch (status) {
#define NAMED(status) \
  case status:        \
    return #status
    NAMED(NPU_OK);
    NAMED(NPU_NOT_READY);
    NAMED(NPU_UNSUPPORTED);
    NAMED(NPU_ERROR_INVALID);
    NAMED(NPU_ERROR_MEMORY);
    NAMED(NPU_ERROR_ADDRESS);
    NAMED(NPU_ERROR_INDEX);
    NAMED(NPU_ERROR_TIMEOUT);
    NAMED(NPU_ERROR_DEVICE_LOST);
    NAMED(NPU_ERROR_INTERNAL);
#undef NAMED
  }
  thread_local char text[40];
  std::snprintf(text, sizeof text, "unknown status %d", static_cast<int>(status));
  return text;
}

std::string table_problem(const npu_driver* table) {
  if (!table) return "returned no table from npu_driver_get";
  if (table->abi_major != NPU_ABI_MAJOR) {
    return "speaks contract version " + std::to_string(table->abi_major) + "." + std::to_string(table->abi_minor) +
           ", expected " + std::to_string(NPU_ABI_MAJOR) + ".x: rebuild it against include/npu of this torch_npu";
  }
  if (table->struct_size < kTableSize) {
    return "has a table of " + std::to_string(table->struct_size) + " bytes, expected at least " +
           std::to_string(kTableSize) + ": set struct_size to sizeof(npu_driver) and rebuild it";
  }
  if (const char* function = missing_function(*table)) {
    return std::string("lacks the function ") + function + ", which the contract requires";
  }
  const int ranges = !!table->range_reserve + !!table->range_map + !!table->range_unmap + !!table->range_release;
  if (ranges != 0 && ranges != 4) {
    return "has " + std::to_string(ranges) + " of the four range functions, expected all or none";
  }
  return "";
}

decltype(npu_driver::choices) choices_of(const npu_driver& table) {
  constexpr uint32_t kSize = offsetof(npu_driver, choices) + sizeof(npu_driver::choices);
  return table.struct_size >= kSize ? table.choices : nullptr;
}

}  // namespace npu
