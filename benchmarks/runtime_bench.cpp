// What the C model's runtime costs per call, in nanoseconds of the calling thread's CPU time (so that a busy machine
// does not count). The commands run on 4 elements: little of it is the engine.
#include <algorithm>
#include <cstdio>
#include <ctime>

#include "tests/cpp/cmodel/rig.h"

namespace {

double cpu_ns() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

template <class F>
void measure(const char* what, int count, F&& body) {
  double best = 1e18;
  for (int round = 0; round < 5; ++round) {
    const double start = cpu_ns();
    for (int i = 0; i < count; ++i) body();
    best = std::min(best, (cpu_ns() - start) / count);
  }
  std::printf("%-42s %8.1f ns\n", what, best);
}

constexpr const char* kAddF32 =
    "program add(x, y, out)\neach:\n  %0 = load x : f32\n  %1 = load y : f32\n  %2 = add %0, %1\n  store out, %2\n";

void measure_calls(const char* options) {
  std::printf("options %s\n", options);
  Rig rig(options);
  npu_stream *stream = rig.stream(), *other = rig.stream();
  npu_program* program = rig.program(rig.device(), kAddF32);
  const npu_addr a = rig.alloc(64), b = rig.alloc(64), c = rig.alloc(64);
  float values[4] = {1, 2, 3, 4};
  for (npu_addr x : {a, b, c}) OK(driver()->copy_to_device(stream, x, values, sizeof values, 0));
  Command add(NPU_MAP, program, 4, "add");
  add.memory(a, NPU_F32).memory(b, NPU_F32).memory(c, NPU_F32);
  Command nothing(NPU_MAP, program, 0, "add");
  nothing.memory(a, NPU_F32).memory(b, NPU_F32).memory(c, NPU_F32);
  npu_event *event = rig.event(rig.device()), *timing = rig.event(rig.device(), NPU_EVENT_TIMING);
  measure("submit add of 4 f32", 1000, [&] { OK(add.submit(stream)); });
  OK(driver()->stream_synchronize(stream));
  measure("submit add of 0 f32", 1000, [&] { OK(nothing.submit(stream)); });
  OK(driver()->stream_synchronize(stream));
  measure("submit add of 4 f32 and synchronize", 1000, [&] {
    OK(add.submit(stream));
    OK(driver()->stream_synchronize(stream));
  });
  measure("event_record, stream_wait_event, idle", 1000, [&] {
    OK(driver()->event_record(event, stream));
    OK(driver()->stream_wait_event(other, event));
  });
  measure("event_record with timing, idle", 1000, [&] { OK(driver()->event_record(timing, stream)); });
  measure("copy_to_device of 16 bytes, idle", 1000,
          [&] { OK(driver()->copy_to_device(stream, a, values, sizeof values, 0)); });
  measure("memory_alloc and memory_free of 4 KB", 1000, [&] {
    npu_addr x = 0;
    OK(driver()->memory_alloc(rig.device(), 4096, &x));
    OK(driver()->memory_free(rig.device(), x));
  });
}

}  // namespace

TEST(calls_that_run_at_once) {
  measure_calls("memory=64M");
}

TEST(calls_for_a_worker) {
  measure_calls("memory=64M:inline_ns=0");
}
