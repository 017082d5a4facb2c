// Streams and events: order, waiting, and what a destroyed object still promises.
#include <chrono>
#include <thread>

#include "tools/driver_test/command/case.h"

using namespace driver_test;

namespace {

// Work that takes a while and is right only if it runs in order: every copy moves the block one step along.
void chain(const Rig& rig, npu_stream* stream, npu_addr room, uint64_t block, int steps) {
  for (int i = 0; i < steps; i++) {
    const npu_addr from = room + static_cast<uint64_t>(i % 2) * block,
                   to = room + static_cast<uint64_t>(1 - i % 2) * block;
    rig.ok(rig.d.copy_on_device(stream, to, from, block), "copy_on_device");
  }
}

}  // namespace

TEST("stream: work on one stream runs in the order given") {
  Rig rig(context);
  const uint64_t block = 1 << 16;
  npu_addr room = rig.alloc(block * 9);
  Bytes want = pattern(block, 1);
  rig.upload(room, want);
  for (int round = 0; round < 20; round++)
    for (uint64_t i = 0; i < 8; i++)
      rig.ok(rig.d.copy_on_device(rig.stream, room + (i + 1) * block, room + i * block, block), "copy_on_device");
  expect_equal(rig.download(room + 8 * block, block), want, "the end of a chain of copies");
  Random random = context.random();
  Bytes image = pattern(block * 9, 2);
  rig.upload(room, image);
  for (int i = 0; i < 500; i++) {  // each depends on the ones before
    const auto size = static_cast<uint64_t>(random.between(1, 5000));
    const auto from = static_cast<uint64_t>(random.below(static_cast<int64_t>(block * 9 - size)));
    const auto to = static_cast<uint64_t>(random.below(static_cast<int64_t>(block * 9 - size)));
    rig.ok(rig.d.copy_on_device(rig.stream, room + to, room + from, size), "copy_on_device");
    std::memmove(image.data() + to, image.data() + from, size);
  }
  expect_equal(rig.download(room, block * 9), image, "500 copies that depend on each other");
}

TEST("stream: query says idle after synchronize, and never an error") {
  Rig rig(context);
  npu_addr room = rig.alloc(8 << 20);
  rig.ok(rig.d.stream_query(rig.stream), "stream_query of a new stream");
  for (int i = 0; i < 20; i++) {
    chain(rig, rig.stream, room, 4 << 20, 4);
    const npu_status status = rig.d.stream_query(rig.stream);
    expect(status == NPU_OK || status == NPU_NOT_READY, "stream_query: expected NPU_OK or NPU_NOT_READY, got ",
           status_name(status));
    rig.sync();
    rig.ok(rig.d.stream_query(rig.stream), "stream_query after stream_synchronize");
  }
  rig.ok(rig.d.device_synchronize(rig.device), "device_synchronize");
}

TEST("stream: when query says idle, the work is done") {
  Rig rig(context);
  const uint64_t block = 4 << 20;
  npu_addr room = rig.alloc(block * 2);
  auto* out = static_cast<uint8_t*>(rig.new_host(block));
  for (uint64_t round = 0; round < 4; round++) {
    const Bytes want = pattern(block, round);
    rig.upload(room, want);
    chain(rig, rig.stream, room, block, 7);
    rig.ok(rig.d.copy_to_host(rig.stream, out, room + block, block, NPU_COPY_PINNED), "copy_to_host");
    while (rig.d.stream_query(rig.stream) == NPU_NOT_READY) std::this_thread::yield();
    expect_equal(Bytes(out, out + block), want, "a copy to the host when stream_query says NPU_OK");
  }
  rig.ok(rig.d.host_free(rig.device, out), "host_free");
}

TEST("stream: every announced priority works") {
  Rig rig(context);
  npu_addr room = rig.alloc(1 << 16);
  for (int p = rig.properties.greatest_priority; p <= rig.properties.least_priority; p++) {
    npu_stream* stream = rig.new_stream(p);
    Bytes want = pattern(1 << 16, static_cast<uint64_t>(p + 100));
    rig.upload(room, want.data(), want.size(), stream);
    expect_equal(rig.download(room, 1 << 16, stream), want, say("priority ", p));
    rig.d.stream_destroy(stream);
  }
}

TEST("stream: destroy waits for the stream's work") {
  Rig rig(context);
  const uint64_t block = 4 << 20;
  npu_addr room = rig.alloc(block * 2);
  for (int i = 0; i < 5; i++) {
    Bytes want = pattern(block, static_cast<uint64_t>(i));
    rig.upload(room, want);
    rig.sync();
    npu_stream* stream = rig.new_stream();
    chain(rig, stream, room, block, 9);
    rig.d.stream_destroy(stream);
    expect_equal(rig.download(room + block, block), want, "the work of a destroyed stream");
  }
}

TEST("stream: device_synchronize waits for all streams") {
  Rig rig(context);
  const uint64_t block = 2 << 20;
  std::vector<npu_stream*> streams;
  std::vector<npu_addr> rooms;
  for (uint64_t i = 0; i < 4; i++) {
    streams.push_back(rig.new_stream());
    rooms.push_back(rig.alloc(block * 2));
    rig.upload(rooms[i], pattern(block, i).data(), block, streams[i]);
    chain(rig, streams[i], rooms[i], block, 7);
  }
  rig.ok(rig.d.device_synchronize(rig.device), "device_synchronize");
  for (uint64_t i = 0; i < 4; i++) {
    rig.ok(rig.d.stream_query(streams[i]), "stream_query after device_synchronize");
    expect_equal(rig.download(rooms[i] + block, block), pattern(block, i), "a stream after device_synchronize");
  }
}

TEST("stream: two streams overlap, or the driver is synchronous or runs one at a time") {
  // No clock decides: B is given less work than A, later than A, and is waited for. If A is still busy then, B did not
  // wait for A. The load is doubled until that is seen, so a slow machine only needs more rounds.
  Rig rig(context);
  const uint64_t block = 16 << 20;
  npu_stream *a = rig.new_stream(), *b = rig.new_stream();
  npu_addr room = rig.alloc(block * 2), small = rig.alloc(8192);
  rig.upload(room, Bytes(block * 2, 7));
  rig.upload(small, Bytes(8192, 9));
  rig.sync();
  bool busy = false;
  for (int steps = 4; steps <= 256; steps *= 2) {
    chain(rig, a, room, block, steps);
    busy |= rig.d.stream_query(a) == NPU_NOT_READY;
    chain(rig, b, small, 4096, 2);
    rig.sync(b);
    const bool overlap = rig.d.stream_query(a) == NPU_NOT_READY;
    rig.sync(a);
    if (overlap) {
      context.note = "overlap";
      return;
    }
  }
  context.note = busy ? "one stream at a time" : "synchronous";
}

TEST("event: one that was never recorded is reached and orders nothing") {
  Rig rig(context);
  npu_event* event = rig.new_event(NPU_EVENT_TIMING);
  npu_event* other = rig.new_event(NPU_EVENT_TIMING);
  rig.ok(rig.d.event_query(event), "event_query");
  rig.ok(rig.d.event_synchronize(event), "event_synchronize");
  rig.ok(rig.d.stream_wait_event(rig.stream, event), "stream_wait_event");
  rig.sync();
  rig.ok(rig.d.event_record(other, rig.stream), "event_record");
  rig.sync();
  double ms = 0;
  rig.refused(rig.d.event_elapsed(other, event, &ms), "event_elapsed with an event never recorded",
              {NPU_ERROR_INVALID});
  rig.d.event_destroy(event);
  rig.d.event_destroy(other);
  rig.still_works();
}

TEST("event: synchronize means that the work before it is done") {
  Rig rig(context);
  const uint64_t block = 4 << 20;
  npu_addr room = rig.alloc(block * 2);
  auto* out = static_cast<uint8_t*>(rig.new_host(block));
  for (int i = 0; i < 10; i++) {
    Bytes want = pattern(block, static_cast<uint64_t>(i));
    rig.upload(room, want);
    chain(rig, rig.stream, room, block, 5);
    rig.ok(rig.d.copy_to_host(rig.stream, out, room + block, block, NPU_COPY_PINNED), "copy_to_host");
    npu_event* event = rig.new_event();
    rig.ok(rig.d.event_record(event, rig.stream), "event_record");
    npu_status status = rig.d.event_query(event);
    expect(status == NPU_OK || status == NPU_NOT_READY, "event_query: got ", status_name(status));
    rig.ok(rig.d.event_synchronize(event), "event_synchronize");
    expect_equal(Bytes(out, out + block), want, "memory behind an event");
    rig.ok(rig.d.event_query(event), "event_query of a reached event");
    rig.d.event_destroy(event);
  }
  rig.sync();
  rig.ok(rig.d.host_free(rig.device, out), "host_free");
}

TEST("event: a stream waits for another's work, through chains of streams") {
  Rig rig(context);
  const uint64_t block = 1 << 20;
  const int n = 6;
  std::vector<npu_stream*> streams;
  for (int i = 0; i < n; i++) streams.push_back(rig.new_stream());
  npu_addr room = rig.alloc(block * (n + 1));
  npu_event* event = rig.new_event();
  for (int round = 0; round < 10; round++) {
    Bytes want = pattern(block, static_cast<uint64_t>(round));
    rig.upload(room, want.data(), block, streams[0]);
    for (uint64_t i = 0; i < n; i++) {
      if (i) rig.ok(rig.d.stream_wait_event(streams[i], event), "stream_wait_event");
      rig.ok(rig.d.copy_on_device(streams[i], room + (i + 1) * block, room + i * block, block), "copy_on_device");
      rig.ok(rig.d.event_record(event, streams[i]), "event_record");  // one event, recorded again and again
    }
    rig.ok(rig.d.event_synchronize(event), "event_synchronize");
    expect_equal(rig.download(room + n * block, block, streams[0]), want, "the end of a chain over streams");
    rig.ok(rig.d.stream_wait_event(streams[0], event), "stream_wait_event");
  }
  rig.d.event_destroy(event);
}

TEST("event: a wait is for the last record before it, not for later ones") {
  Rig rig(context);
  npu_stream *a = rig.new_stream(), *b = rig.new_stream();
  npu_event *first = rig.new_event(), *second = rig.new_event();
  npu_addr room = rig.alloc(2 << 20);
  // b waits for a's first record; then a waits for b and records again. A wait for the later record would be a
  // deadlock.
  for (int i = 0; i < 20; i++) {
    chain(rig, a, room, 1 << 20, 2);
    rig.ok(rig.d.event_record(first, a), "event_record");
    rig.ok(rig.d.stream_wait_event(b, first), "stream_wait_event");
    rig.ok(rig.d.event_record(second, b), "event_record");
    rig.ok(rig.d.stream_wait_event(a, second), "stream_wait_event");
    rig.ok(rig.d.event_record(first, a), "event_record");
  }
  rig.sync(a);
  rig.sync(b);
  rig.ok(rig.d.event_query(first), "event_query");
  rig.ok(rig.d.event_query(second), "event_query");
}

TEST("event: a destroyed event still orders the work that waits for it") {
  Rig rig(context);
  const uint64_t block = 4 << 20;
  npu_stream *a = rig.new_stream(), *b = rig.new_stream();
  npu_addr room = rig.alloc(block * 2), copy = rig.alloc(block);
  for (int i = 0; i < 10; i++) {
    Bytes want = pattern(block, static_cast<uint64_t>(i));
    rig.upload(room, want.data(), block, a);
    chain(rig, a, room, block, 5);
    npu_event* event = rig.new_event();
    rig.ok(rig.d.event_record(event, a), "event_record");
    rig.ok(rig.d.stream_wait_event(b, event), "stream_wait_event");
    rig.d.event_destroy(event);
    rig.ok(rig.d.copy_on_device(b, copy, room + block, block), "copy_on_device");
    expect_equal(rig.download(copy, block, b), want, "work behind a destroyed event");
    rig.sync(a);
  }
}

TEST("event: one outlives the stream it was recorded on") {
  Rig rig(context);
  npu_stream* stream = rig.new_stream();
  npu_addr room = rig.alloc(2 << 20);
  npu_event* event = rig.new_event();
  chain(rig, stream, room, 1 << 20, 5);
  rig.ok(rig.d.event_record(event, stream), "event_record");
  rig.d.stream_destroy(stream);
  rig.ok(rig.d.event_query(event), "event_query");
  rig.ok(rig.d.event_synchronize(event), "event_synchronize");
  rig.ok(rig.d.stream_wait_event(rig.stream, event), "stream_wait_event");
  rig.sync();
  rig.d.event_destroy(event);
}

TEST("event: elapsed time is not negative, and grows with the span") {
  Rig rig(context);
  npu_event* events[3];
  for (auto& event : events) event = rig.new_event(NPU_EVENT_TIMING);
  npu_addr room = rig.alloc(8 << 20);
  for (int i = 0; i < 3; i++) {
    rig.ok(rig.d.event_record(events[i], rig.stream), "event_record");
    chain(rig, rig.stream, room, 4 << 20, 4);
  }
  rig.sync();
  double first = -1, second = -1, whole = -1, back = 1;
  rig.ok(rig.d.event_elapsed(events[0], events[1], &first), "event_elapsed");
  rig.ok(rig.d.event_elapsed(events[1], events[2], &second), "event_elapsed");
  rig.ok(rig.d.event_elapsed(events[0], events[2], &whole), "event_elapsed");
  rig.ok(rig.d.event_elapsed(events[2], events[0], &back), "event_elapsed backwards");
  expect(first > 0 && second > 0, "event_elapsed over 16 MiB of copies: expected more than 0 ms, got ", first, " and ",
         second);
  const double slack = 1e-3;  // a microsecond of rounding
  expect(whole >= first + second - slack && whole <= first + second + slack, "event_elapsed: expected ", first, " + ",
         second, " = ", whole);
  expect(back <= 0, "event_elapsed backwards: expected a negative time, got ", back);
  npu_event* plain = rig.new_event();
  rig.ok(rig.d.event_record(plain, rig.stream), "event_record");
  rig.sync();
  rig.refused(rig.d.event_elapsed(plain, events[0], &whole), "event_elapsed of an event without NPU_EVENT_TIMING",
              {NPU_ERROR_INVALID});
}
