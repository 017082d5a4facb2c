// The rules of npu/runtime.h on the C model: memory, ranges, refusals, order, failures, reset. Stand-alone, so that it
// runs under the thread and address sanitizers.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <numeric>
#include <thread>

#include "support/driver/event_count.h"
#include "tests/cpp/cmodel/rig.h"

namespace {

// Inline where that pays, always in a worker, and element by element.
constexpr const char* kModes[] = {"memory=64M", "memory=64M:inline_ns=0", "memory=64M:mode=exact"};

std::vector<int32_t> read_back(npu_stream* stream, npu_addr addr, size_t n) {
  std::vector<int32_t> out(n);
  OK(driver()->copy_to_host(stream, out.data(), addr, n * 4, 0));
  return out;
}

TEST(options_are_checked) {
  npu_instance* instance = nullptr;
  for (const char* bad : {"speed=3", "memory=12Q", "memory=", "devices=0", "mode=slow", "threads=-1", "regions=a@1",
                          "regions=a@0x100000+1M/b@0x180000+1M", "regions=a@0x100000+1M:memory=1M", "base=7"}) {
    CHECK(driver()->open(bad, &instance) == NPU_ERROR_INVALID);
    CHECK(error_has("expected"));
  }
  CHECK(driver()->open("speed=3", &instance) == NPU_ERROR_INVALID && error_has("inline_ns"));
  Rig rig("devices=2:memory=64M:mode=fast");
  CHECK(rig.devices.size() == 2);
  npu_device* third = nullptr;
  CHECK(driver()->device_open(rig.instance, 2, &third) == NPU_ERROR_INVALID && error_has("below 2, got 2"));
  npu_properties properties{};
  properties.struct_size = sizeof properties;
  OK(driver()->device_properties(rig.device(), &properties));
  CHECK(properties.total_memory == 64 << 20 && properties.commands == 0xff && properties.units >= 1);
  CHECK(properties.least_priority == 0 && properties.greatest_priority == -1);
}

TEST(memory_is_bounded_and_exact) {
  Rig rig("memory=16M");
  npu_addr all = rig.alloc(16 << 20), more = 0;
  CHECK(driver()->memory_alloc(rig.device(), 1, &more) == NPU_ERROR_MEMORY && error_has("memory="));
  CHECK(driver()->memory_alloc(rig.device(), 0, &more) == NPU_ERROR_INVALID);
  OK(driver()->memory_free(rig.device(), all));
  CHECK(driver()->memory_free(rig.device(), all) == NPU_ERROR_ADDRESS);
  CHECK(rig.used(rig.device()) == 0);

  npu_stream* stream = rig.stream();
  const npu_addr a = rig.alloc(1000);
  char bytes[1001] = {};
  OK(driver()->copy_to_device(stream, a, bytes, 1000, 0));
  OK(driver()->copy_to_device(stream, a + 999, bytes, 1, 0));
  CHECK(driver()->copy_to_device(stream, a, bytes, 1001, 0) == NPU_ERROR_ADDRESS && error_has("past the end"));
  CHECK(driver()->copy_to_host(stream, bytes, a + 1000, 1, 0) == NPU_ERROR_ADDRESS && error_has("outside any live"));
  CHECK(driver()->copy_on_device(stream, a - 1, a, 8) == NPU_ERROR_ADDRESS);
  CHECK(driver()->memory_free(rig.device(), a + 512) == NPU_ERROR_ADDRESS);
  OK(driver()->memory_free(rig.device(), a));
  CHECK(driver()->copy_to_host(stream, bytes, a, 1, 0) == NPU_ERROR_ADDRESS);
  OK(driver()->copy_to_host(stream, bytes, a, 0, 0));

  void* pinned = nullptr;
  OK(driver()->host_alloc(rig.device(), 100, &pinned));
  CHECK(reinterpret_cast<uintptr_t>(pinned) % 64 == 0);
  CHECK(driver()->host_free(rig.device(), bytes) == NPU_ERROR_INVALID);
  OK(driver()->host_free(rig.device(), pinned));
}

TEST(regions_fill_in_order) {
  Rig rig("devices=2:regions=sram@0x10000000+1M/dram@0x80000000+8M");
  const npu_addr near = rig.alloc(768 << 10), far = rig.alloc(512 << 10);
  CHECK(near == 0x10000000 && far >= 0x80000000 && far < 0x80800000);
  CHECK(rig.alloc(rig.devices[1], 64) == 0x10000000 + (uint64_t{1} << 44));
  OK(driver()->memory_free(rig.device(), near));
  CHECK(rig.alloc(64) == near);
}

TEST(ranges_grow_and_shrink) {
  Rig rig("memory=8M");
  npu_device* device = rig.device();
  npu_stream* stream = rig.stream();
  npu_addr range = 0;
  OK(driver()->range_reserve(device, 64 << 20, &range));
  CHECK(rig.used(device) == 0);
  std::vector<char> bytes(3 << 20, 7), back(3 << 20);
  CHECK(driver()->copy_to_device(stream, range, bytes.data(), 1, 0) == NPU_ERROR_ADDRESS);
  OK(driver()->range_map(device, range, 1 << 20));
  OK(driver()->range_map(device, range + (2 << 20), 1 << 20));
  CHECK(driver()->copy_to_device(stream, range, bytes.data(), bytes.size(), 0) == NPU_ERROR_ADDRESS);
  OK(driver()->copy_to_device(stream, range + (2 << 20), bytes.data(), 1 << 20, 0));
  CHECK(driver()->range_map(device, range + 512, 512) == NPU_ERROR_INVALID);
  OK(driver()->range_map(device, range + (1 << 20), 1 << 20));
  OK(driver()->copy_to_device(stream, range, bytes.data(), bytes.size(), 0));  // across three parts
  OK(driver()->copy_to_host(stream, back.data(), range, back.size(), 0));
  CHECK(back == bytes);
  CHECK(rig.used(device) == 3 << 20);
  CHECK(driver()->range_map(device, range + (3 << 20), 6 << 20) == NPU_ERROR_MEMORY);
  CHECK(driver()->range_release(device, range) == NPU_ERROR_INVALID);
  CHECK(driver()->range_unmap(device, range + (3 << 20), 512) == NPU_ERROR_INVALID);
  OK(driver()->range_unmap(device, range + 512, 1024));
  CHECK(driver()->copy_to_host(stream, back.data(), range, 1024, 0) == NPU_ERROR_ADDRESS);
  OK(driver()->copy_to_host(stream, back.data(), range, 512, 0));
  OK(driver()->copy_to_host(stream, back.data(), range + 1536, 4096, 0));
  CHECK(back == bytes);
  OK(driver()->range_unmap(device, range, 512));
  OK(driver()->range_unmap(device, range + 1536, (3 << 20) - 1536));
  OK(driver()->range_release(device, range));
  CHECK(rig.used(device) == 0);
}

void bad_accesses_are_refused_at_once_with(const char* options) {
  Rig rig(options);
  npu_stream* stream = rig.stream();
  npu_program* add = rig.program(rig.device(), kAdd);
  const npu_addr a = rig.alloc(400), out = rig.alloc(400);
  const auto map = [&](int64_t n, npu_addr x, int64_t stride) {
    return Command(NPU_MAP, add, n, "aten::add")
        .memory(x, NPU_I32, stride)
        .immediate(1, NPU_I32)
        .memory(out, NPU_I32)
        .submit(stream);
  };
  OK(map(100, a, 1));
  OK(map(100, a + 396, -1));
  OK(map(0, 0, 1));
  CHECK(map(101, a, 1) == NPU_ERROR_ADDRESS && error_has("MAP (aten::add): operand 0 reads [0x"));
  CHECK(map(100, a + 392, -1) == NPU_ERROR_ADDRESS && error_has("before the begin of the live allocation"));
  CHECK(map(100, 0x1234, 1) == NPU_ERROR_ADDRESS && error_has("[0x1234, 0x13c4) outside any live allocation"));
  CHECK(map(4, a, INT64_MAX) == NPU_ERROR_ADDRESS && error_has("address space"));
  CHECK(map(-1, a, 1) == NPU_ERROR_INVALID);
  CHECK(Command(NPU_MAP, add, 4, nullptr)
            .immediate(1, NPU_I32)
            .immediate(1, NPU_I32)
            .immediate(0, NPU_I32)
            .submit(stream) == NPU_ERROR_INVALID);
  CHECK(Command(NPU_COPY, nullptr, 4, "fill").memory(out + 392, NPU_I32).immediate(1, NPU_I32).submit(stream) ==
            NPU_ERROR_ADDRESS &&
        error_has("COPY (fill): operand 0 writes"));
  OK(driver()->stream_synchronize(stream));
  OK(driver()->memory_free(rig.device(), a));
  CHECK(map(100, a, 1) == NPU_ERROR_ADDRESS);
}

TEST(bad_accesses_are_refused_at_once) {
  for (const char* options : kModes) bad_accesses_are_refused_at_once_with(options);
}

// A command like one that was valid is looked at less: the last of many operands counts all the same.
void many_operands_are_checked_with(const char* options) {
  Rig rig(options);
  npu_stream* stream = rig.stream();
  npu_program* sum = rig.program(rig.device(),
                                 "program sum(a, b, c, d, e, f, g, h, i, out)\neach:\n  %0 = load a : i32\n"
                                 "  %1 = load i : i32\n  %2 = add %0, %1\n  store out, %2\n");
  const npu_addr out = rig.alloc(400);
  const auto submit = [&](bool writes_memory) {
    Command command(NPU_MAP, sum, 100, "sum");
    for (int i = 0; i < 9; ++i) command.immediate(i, NPU_I32);
    writes_memory ? command.memory(out, NPU_I32) : command.immediate(0, NPU_I32);
    return command.submit(stream);
  };
  for (int i = 0; i < 3; ++i) {
    OK(submit(true));
    CHECK(submit(false) == NPU_ERROR_INVALID);
  }
  OK(driver()->stream_synchronize(stream));
}

TEST(many_operands_are_checked) {
  for (const char* options : kModes) many_operands_are_checked_with(options);
}

void failures_are_reported_once_with(const char* options) {
  Rig rig(options);
  npu_device* device = rig.device();
  npu_stream *stream = rig.stream(), *other = rig.stream();
  npu_program* pick = rig.program(device, kPick);
  const int64_t indices[5] = {0, 4, -1, 7, 1};
  const npu_addr table = rig.alloc(20), index = rig.alloc(40), out = rig.alloc(20);
  OK(driver()->copy_to_device(stream, index, indices, sizeof indices, 0));
  const auto gather = [&](int64_t n) {
    OK(Command(NPU_MAP, pick, n, "aten::index")
           .memory(table, NPU_I32, 0)
           .memory(index, NPU_I64)
           .memory(out, NPU_I32)
           .param(5)
           .submit(stream));
  };
  constexpr const char* kText = "MAP (aten::index): index 7 is out of bounds for dimension with size 5";
  npu_event *before = rig.event(device), *behind = rig.event(device);
  const auto fail = [&] {
    OK(driver()->event_record(before, stream));
    gather(5);
    OK(driver()->event_record(behind, stream));
    gather(3);
  };
  fail();
  CHECK(driver()->stream_synchronize(stream) == NPU_ERROR_INDEX && error_has(kText));
  OK(driver()->stream_synchronize(stream));
  OK(driver()->event_synchronize(behind));
  fail();
  OK(driver()->stream_synchronize(other));
  OK(driver()->event_synchronize(before));
  CHECK(driver()->event_synchronize(behind) == NPU_ERROR_INDEX && error_has(kText));
  OK(driver()->device_synchronize(device));
  fail();
  CHECK(driver()->device_synchronize(device) == NPU_ERROR_INDEX && error_has(kText));
  OK(driver()->stream_synchronize(stream));
  fail();
  OK(driver()->device_reset(device));
  OK(driver()->device_synchronize(device));
  int32_t values[5] = {10, 11, 12, 13, 14};
  OK(driver()->copy_to_device(stream, table, values, sizeof values, 0));
  gather(3);
  CHECK((read_back(stream, out, 3) == std::vector<int32_t>{10, 14, 14}));
}

TEST(failures_are_reported_once) {
  for (const char* options : kModes) failures_are_reported_once_with(options);
}

void events_order_and_measure_with(const char* options) {
  Rig rig(options);
  npu_device* device = rig.device();
  npu_stream *first = rig.stream(), *second = rig.stream(rig.devices.back(), -1);
  constexpr size_t kBytes = 8 << 20;
  void* pinned = nullptr;
  OK(driver()->host_alloc(device, kBytes, &pinned));
  std::memset(pinned, 1, kBytes);
  const npu_addr a = rig.alloc(kBytes), b = rig.alloc(kBytes);
  npu_event *start = rig.event(device, NPU_EVENT_TIMING), *end = rig.event(device, NPU_EVENT_TIMING);
  double ms = 0;
  OK(driver()->event_query(start));
  CHECK(driver()->event_elapsed(start, end, &ms) == NPU_ERROR_INVALID && error_has("never recorded"));
  OK(driver()->event_record(start, first));
  for (int i = 0; i < 4; ++i) {
    OK(driver()->copy_to_device(first, a, pinned, kBytes, NPU_COPY_PINNED));
    OK(driver()->copy_on_device(first, b, a, kBytes));
  }
  OK(driver()->event_record(end, first));
  npu_event* gone = rig.event(device);
  OK(driver()->event_record(gone, first));
  OK(driver()->stream_wait_event(second, gone));
  driver()->event_destroy(gone);  // still orders
  const npu_addr c = rig.alloc(rig.devices.back(), 64);
  OK(Command(NPU_COPY, nullptr, 16, "fill").memory(c, NPU_I32).immediate(9, NPU_I32).submit(second));
  npu_event* tail = rig.event(rig.devices.back());
  OK(driver()->event_record(tail, second));
  OK(driver()->event_synchronize(tail));
  OK(driver()->event_query(end));
  OK(driver()->event_elapsed(start, end, &ms));
  CHECK(ms > 0);
  OK(driver()->stream_query(first));
  CHECK(read_back(second, c, 16) == std::vector<int32_t>(16, 9));
  CHECK(read_back(first, b + kBytes - 64, 16) == std::vector<int32_t>(16, 0x01010101));
  driver()->stream_destroy(first);
  OK(driver()->event_synchronize(end));
  CHECK(driver()->event_elapsed(start, tail, &ms) == NPU_ERROR_INVALID && error_has("without timing"));
}

TEST(events_order_and_measure) {
  for (const char* options : kModes) events_order_and_measure_with(options);
  events_order_and_measure_with("devices=2:memory=64M:inline_ns=0");
}

// Queues work behind large copies, destroys its program, and lets some of it be dropped by a reset.
TEST(programs_and_resets_while_queued) {
  Rig rig("memory=128M:inline_ns=0");
  npu_device* device = rig.device();
  npu_stream *stream = rig.stream(), *waiting = rig.stream();
  const npu_addr a = rig.alloc(32 << 20), b = rig.alloc(32 << 20), x = rig.alloc(64);
  OK(Command(NPU_COPY, nullptr, 16, "fill").memory(x, NPU_I32).immediate(1, NPU_I32).submit(stream));
  for (int i = 0; i < 100; ++i) {
    npu_program* add = rig.program(device, kAdd);
    if (i % 25 == 0) OK(driver()->copy_on_device(stream, b, a, 32 << 20));
    OK(Command(NPU_MAP, add, 16, "add").memory(x, NPU_I32).immediate(1, NPU_I32).memory(x, NPU_I32).submit(stream));
    driver()->program_destroy(add);
  }
  CHECK(read_back(stream, x, 16) == std::vector<int32_t>(16, 101));
  npu_event* event = rig.event(device);
  for (int i = 0; i < 2000; ++i) OK(driver()->copy_on_device(stream, b, a, 32 << 20));
  OK(driver()->event_record(event, stream));
  OK(driver()->stream_wait_event(waiting, event));
  CHECK(driver()->stream_query(stream) == NPU_NOT_READY && driver()->event_query(event) == NPU_NOT_READY);
  OK(driver()->device_reset(device));
  OK(driver()->stream_query(stream));
  OK(driver()->event_query(event));
  OK(driver()->stream_synchronize(waiting));
  CHECK(read_back(stream, x, 16) == std::vector<int32_t>(16, 101));
}

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// A worker spins longer behind short waits, and not for ever.
TEST(an_idle_stream_sleeps) {
  npu::driver::Patience patience;
  CHECK(patience.spin_ns() == npu::driver::Patience::kShortNs);
  patience.waited(npu::driver::Patience::kLongNs - 1);
  CHECK(patience.spin_ns() == npu::driver::Patience::kLongNs);
  patience.waited(npu::driver::Patience::kLongNs);
  CHECK(patience.spin_ns() == npu::driver::Patience::kShortNs);

  Rig rig("memory=16M:inline_ns=0");
  npu_stream* stream = rig.stream();
  const npu_addr row = rig.alloc(4096);
  for (int k = 0; k < 100; ++k) {  // waits of the worker are short
    OK(Command(NPU_COPY, nullptr, 1024, "fill").memory(row, NPU_I32).immediate(7, NPU_I32).submit(stream));
    OK(driver()->stream_synchronize(stream));
  }
  const double before = processor_seconds();
  usleep(200'000);
  CHECK(processor_seconds() - before < 0.1);
}

// A child that never touches the device ends normally, while the parent's threads work.
TEST(a_forked_child_exits) {
  Rig rig("memory=64M:inline_ns=0");
  npu_stream* stream = rig.stream();
  const npu_addr a = rig.alloc(16 << 20), b = rig.alloc(16 << 20);
  for (int i = 0; i < 8; ++i) OK(driver()->copy_on_device(stream, b, a, 16 << 20));
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  OK(driver()->stream_synchronize(stream));
}

// Behind the fork: LeakSanitizer counts what helper threads keep for themselves as leaks of a child without them.
// A padded row whose padding lies in memory that was given back, on both sides: the mask alone says what is touched.
void masks_decide_at_the_edges_of_memory_with(const char* options) {
  Rig rig(options);
  npu_stream* stream = rig.stream();
  constexpr int64_t kPiece = 2 << 20, kLength = kPiece / 4, kPad = 1000, kAll = kLength + 2 * kPad;
  const npu_addr before = rig.alloc(kPiece), row = rig.alloc(kPiece), behind = rig.alloc(kPiece);
  const npu_addr out = rig.alloc(2 * kPiece);
  CHECK(before + kPiece == row && row + kPiece == behind);
  OK(Command(NPU_COPY, nullptr, kLength, "fill").memory(row, NPU_I32).immediate(7, NPU_I32).submit(stream));
  OK(driver()->stream_synchronize(stream));
  OK(driver()->memory_free(rig.device(), before));
  OK(driver()->memory_free(rig.device(), behind));
  npu_program* pad =
      rig.program(rig.device(),
                  "program pad(x, out; first, last)\neach:\n  %i = index 0 : i64\n  %a = param first : i64\n"
                  "  %b = param last : i64\n  %ge = ge %i, %a\n  %lt = lt %i, %b\n  %m = and %ge, %lt\n"
                  "  %x = load x, mask %m : i32\n  store out, %x\n");
  const auto run = [&](int64_t first, int64_t last) {
    return Command(NPU_MAP, pad, kAll, "pad")
        .memory(row - 4 * kPad, NPU_I32)
        .memory(out, NPU_I32)
        .param(first)
        .param(last)
        .submit(stream);
  };
  OK(run(kPad, kPad + kLength));
  const std::vector<int32_t> got = read_back(stream, out, kAll);
  for (int64_t i = 0; i < kAll; ++i) CHECK(got[i] == (i >= kPad && i < kPad + kLength ? 7 : 0));
  // A mask that lets one more point through, on either side, is an error and not a crash.
  for (const auto& [first, last] : {std::pair(kPad - 1, kPad + kLength), std::pair(kPad, kPad + kLength + 1)}) {
    OK(run(first, last));
    CHECK(driver()->stream_synchronize(stream) == NPU_ERROR_ADDRESS && error_has("MAP (pad)"));
    OK(driver()->device_reset(rig.device()));
  }
}

TEST(masks_decide_at_the_edges_of_memory) {
  for (const char* options : kModes) masks_decide_at_the_edges_of_memory_with(options);
}

}  // namespace
