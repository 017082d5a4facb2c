// The functions of a driver's table that concern a device, for those who make a table of their own out of another one.
// What is left out are the questions about a driver itself, and `choices`, which is asked where time does not matter.
#pragma once

// clang-format off
#define NPU_DEVICE_ENTRIES(X)                                                                         \
  X(device_open) X(device_close) X(device_synchronize) X(device_reset) X(memory_info) X(memory_alloc) \
  X(memory_free) X(host_alloc) X(host_free) X(range_reserve) X(range_map) X(range_unmap)              \
  X(range_release) X(copy_to_device) X(copy_to_host) X(copy_on_device) X(stream_create)               \
  X(stream_destroy) X(stream_query) X(stream_synchronize) X(stream_wait_event) X(event_create)        \
  X(event_destroy) X(event_record) X(event_query) X(event_synchronize) X(event_elapsed)               \
  X(supports) X(submit)
#define NPU_PROGRAM_ENTRIES(X) X(program_create) X(program_destroy)
// clang-format on
