// Every function from any thread at any time.
#include <mutex>
#include <optional>
#include <thread>

#include "tools/driver_test/command/case.h"
#include "tools/driver_test/command/line.h"

using namespace driver_test;

namespace {

// Runs body(0) .. body(3) on four threads and passes on the first failure, or what is not supported.
void on_four(const std::function<void(int)>& body) {
  std::mutex lock;
  std::string first, missing;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&, t] {
      try {
        body(t);
      } catch (const Failed& e) {
        std::lock_guard guard(lock);
        if (first.empty()) first = say("thread ", t, ": ", e.text);
      } catch (const NotSupported& e) {
        std::lock_guard guard(lock);
        missing = e.text;
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (!first.empty()) fail(first);
  if (!missing.empty()) throw NotSupported{missing};
}

}  // namespace

TEST("threads: four threads use one device, each its own stream") {
  Rig rig(context);
  const uint64_t before = rig.free_memory();
  on_four([&](int t) {
    Random random = context.random(static_cast<uint64_t>(t));
    npu_stream* stream = rig.new_stream();
    npu_event* event = rig.new_event(NPU_EVENT_TIMING);
    for (int i = 0; i < 150; i++) {
      const auto size = static_cast<uint64_t>(random.between(1, 60000));
      npu_addr a = rig.alloc(size), b = rig.alloc(size);
      Bytes want = pattern(size, random.next());
      rig.upload(a, want.data(), size, stream);
      rig.ok(rig.d.copy_on_device(stream, b, a, size), "copy_on_device");
      rig.ok(rig.d.event_record(event, stream), "event_record");
      if (random.chance(30)) rig.ok(rig.d.event_synchronize(event), "event_synchronize");
      if (random.chance(20))
        rig.refused(rig.d.memory_free(rig.device, 1), "memory_free(1)", {NPU_ERROR_ADDRESS, NPU_ERROR_INVALID});
      expect_equal(rig.download(b, size, stream), want, "a copy beside other threads");
      rig.sync(stream);
      rig.free(a);
      rig.free(b);
      if (random.chance(10)) {
        rig.d.stream_destroy(stream);
        stream = rig.new_stream();
      }
    }
    rig.d.event_destroy(event);
    rig.d.stream_destroy(stream);
  });
  expect(rig.free_memory() == before, "free memory: expected ", before, " at the end, got ", rig.free_memory());
}

TEST("threads: four threads use one stream and one event") {
  Rig rig(context);
  npu_event* event = rig.new_event();
  on_four([&](int t) {
    const uint64_t size = 10000;
    npu_addr addr = rig.alloc(size);
    for (uint64_t i = 0; i < 150; i++) {
      Bytes want = pattern(size, i * 4 + static_cast<uint64_t>(t));
      rig.upload(addr, want);
      rig.ok(rig.d.event_record(event, rig.stream), "event_record");
      rig.ok(rig.d.stream_wait_event(rig.stream, event), "stream_wait_event");
      const npu_status status = rig.d.event_query(event);
      expect(status == NPU_OK || status == NPU_NOT_READY, "event_query: got ", status_name(status));
      expect_equal(rig.download(addr, size), want, "a copy on a shared stream");
      if (i % 10 == 0) rig.sync();
      if (i % 50 == 0) rig.ok(rig.d.device_synchronize(rig.device), "device_synchronize");
    }
    rig.free(addr);
  });
  rig.d.event_destroy(event);
}

TEST("threads: four threads submit commands and make programs") {
  Rig rig(context);
  on_four([&](int t) {
    npu_stream* stream = rig.new_stream();
    for (int i = 0; i < 40; i++) {
      Builder b("mul");
      const double factor = t * 100 + i + 1;
      b.store(0, b.op(NPU_OP_MUL, b.load(1, NPU_F32), b.constant(NPU_F32, factor)));
      const int64_t n = 3000;
      const std::vector<float> in(n, 2.0f);
      std::optional<Line> line(std::in_place, rig, b, n, std::vector<int>{NPU_F32, NPU_F32}, "threads");
      const std::vector<npu_operand> operands = line->operands;
      rig.upload(operands[1].addr, in.data(), n * 4, stream);
      line->submit(stream);
      line.reset();  // the program goes while the command may still be queued
      Bytes got = rig.download(operands[0].addr, n * 4, stream);
      for (size_t k = 0; k < n; k++) {
        float value = 0;
        std::memcpy(&value, &got[k * 4], 4);
        expect(value == 2 * factor, "MAP mul beside other threads: element ", k, ": expected ", 2 * factor, ", got ",
               value);
      }
      rig.sync(stream);
      for (const npu_operand& o : operands) rig.free(o.addr);
    }
    rig.d.stream_destroy(stream);
  });
}
