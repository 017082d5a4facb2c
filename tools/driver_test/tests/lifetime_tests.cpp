// Instances, devices, properties, and who may destroy what when.
#include <thread>

#include "tools/driver_test/frame/rig.h"

using namespace driver_test;

TEST("lifetime: a driver opens twice at once, with independent devices") {
  Rig one(context), two(context);
  npu_addr a = one.alloc(4096), b = two.alloc(4096);
  Bytes first = pattern(4096, 1), second = pattern(4096, 2);
  one.upload(a, first);
  two.upload(b, second);
  expect_equal(one.download(a, 4096), first, "a copy in the first instance's memory");
  expect_equal(two.download(b, 4096), second, "a copy in the second instance's memory");
}

TEST("lifetime: a driver opens again after it was closed") {
  for (int i = 0; i < 10; i++) Rig(context).still_works();
}

TEST("lifetime: objects are destroyed in any order") {
  for (int order = 0; order < 6; order++) {
    Rig rig(context);
    npu_stream* stream = rig.new_stream();
    npu_event* event = rig.new_event();
    npu_addr addr = rig.alloc(1 << 16);
    rig.upload(addr, pattern(1 << 16, 3).data(), 1 << 16, stream);
    rig.ok(rig.d.event_record(event, stream), "event_record");
    rig.ok(rig.d.stream_wait_event(rig.stream, event), "stream_wait_event");
    rig.sync(stream);
    const int permutations[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int what : permutations[order]) {
      if (what == 0) rig.d.stream_destroy(stream);
      if (what == 1) rig.d.event_destroy(event);
      if (what == 2) rig.free(addr);
    }
    rig.still_works();
  }
}

TEST("lifetime: device_close frees what is left") {
  for (int i = 0; i < 3; i++) {
    Rig rig(context);
    rig.new_stream();
    npu_event* event = rig.new_event(NPU_EVENT_TIMING);
    rig.ok(rig.d.event_record(event, rig.stream), "event_record");
    rig.alloc(1 << 20);
    std::memset(rig.new_host(1 << 20), 1, 1 << 20);
  }
}

TEST("lifetime: device_open refuses an index that is not there") {
  Rig rig(context);
  uint32_t count = 0;
  rig.ok(rig.d.device_count(rig.instance, &count), "device_count");
  expect(count > 0, "device_count: expected at least 1, got 0");
  npu_device* none = nullptr;
  rig.refused(rig.d.device_open(rig.instance, count, &none), "device_open behind the last", {NPU_ERROR_INVALID});
  rig.refused(rig.d.device_open(rig.instance, ~0u, &none), "device_open(-1)", {NPU_ERROR_INVALID});
  rig.still_works();
}

TEST("lifetime: every device works, and they do not share memory") {
  Rig first(context);
  uint32_t count = 0;
  first.ok(first.d.device_count(first.instance, &count), "device_count");
  if (count < 2) throw NotSupported{"the driver shows one device; give it an option that makes it show two"};
  npu_addr here = first.alloc(1000);
  first.upload(here, pattern(1000, 1));
  for (uint32_t i = 1; i < count; i++) {
    npu_device* device = nullptr;
    first.ok(first.d.device_open(first.instance, i, &device), "device_open");
    npu_stream* stream = nullptr;
    first.ok(first.d.stream_create(device, 0, &stream), "stream_create");
    npu_addr there = 0;
    first.ok(first.d.memory_alloc(device, 1000, &there), "memory_alloc");
    first.upload(there, pattern(1000, 1 + i).data(), 1000, stream);
    expect_equal(first.download(there, 1000, stream), pattern(1000, 1 + i), "the other device's memory");
    expect_equal(first.download(here, 1000), pattern(1000, 1), "the first device's memory");
    // An event orders streams of two devices.
    npu_event* event = nullptr;
    first.ok(first.d.event_create(device, 0, &event), "event_create");
    first.ok(first.d.event_record(event, stream), "event_record");
    first.ok(first.d.stream_wait_event(first.stream, event), "stream_wait_event across devices");
    first.sync();
    first.d.event_destroy(event);
    first.d.stream_destroy(stream);
    first.d.device_close(device);
  }
}

TEST("lifetime: error_text belongs to the calling thread") {
  Rig rig(context);
  npu_addr none = 0;
  rig.refused(rig.d.memory_alloc(rig.device, 0, &none), "memory_alloc(0)", {NPU_ERROR_INVALID});
  const std::string mine = rig.text();
  std::string other;
  std::thread([&] {
    char byte = 0;
    rig.d.copy_to_device(rig.stream, 0, &byte, 1, 0);
    other = rig.text();
  }).join();
  expect(rig.text() == mine, "error_text changed by another thread: expected '", mine, "', got '", rig.text(), "'");
  expect(other != mine, "two different failures on two threads have one text: '", mine, "'");
}

TEST("properties: they are filled and sane") {
  Rig rig(context);
  const npu_properties& p = rig.properties;
  expect(p.name[0] && std::memchr(p.name, 0, sizeof p.name), "name must be a non-empty string");
  expect(std::memchr(p.vendor, 0, sizeof p.vendor), "vendor must end in a zero");
  expect(p.alignment >= 64 && (p.alignment & (p.alignment - 1)) == 0,
         "alignment: expected a power of two, 64 or more, got ", p.alignment);
  expect(p.total_memory > 0, "total_memory: expected more than 0");
  expect(p.commands >> NPU_COMMAND_COUNT == 0, "commands: expected bits 0 to 7, got ", hex(p.commands));
  expect(p.greatest_priority <= p.least_priority, "priorities: the greatest is the smaller number, got greatest ",
         p.greatest_priority, ", least ", p.least_priority);
  uint64_t free_bytes = 0, total = 0;
  rig.ok(rig.d.memory_info(rig.device, &free_bytes, &total), "memory_info");
  expect(total == p.total_memory, "memory_info: expected a total of ", p.total_memory, ", got ", total);
  context.note = say(p.name, ", commands ", hex(p.commands));
}

TEST("properties: no more than struct_size is written") {
  Rig rig(context);
  const uint32_t short_size = offsetof(npu_properties, units);
  union {
    npu_properties p;
    unsigned char bytes[sizeof(npu_properties) + 64];
  } out;
  std::memset(&out, 0xA5, sizeof out);
  out.p.struct_size = short_size;
  rig.ok(rig.d.device_properties(rig.device, &out.p), "device_properties");
  for (size_t i = short_size; i < sizeof out; i++)
    expect(out.bytes[i] == 0xA5, "device_properties wrote byte ", i, " though struct_size is ", short_size);
  expect(out.p.total_memory == rig.properties.total_memory, "device_properties: a known field was not filled");
  std::memset(&out, 0xA5, sizeof out);
  out.p.struct_size = sizeof out;  // a younger host
  rig.ok(rig.d.device_properties(rig.device, &out.p), "device_properties of a younger host");
  expect(out.p.total_memory == rig.properties.total_memory, "device_properties: a known field was not filled");
}
