// Random sequences on the C model against a model in host memory. Every thread owns buffers, streams and events on the
// shared devices; a buffer used on another stream than before is ordered by an event.
#include <algorithm>
#include <random>
#include <thread>

#include "tests/cpp/cmodel/rig.h"

namespace {

class Player {
 public:
  Player(const Rig& rig, uint32_t seed) : rig_(rig), random_(seed) {
    for (npu_device* device : rig.devices) {
      Side& side = sides_.emplace_back();
      side.device = device;
      side.add = rig.program(device, kAdd);
      for (int i = 0; i < 3; ++i) side.streams.push_back(rig.stream(device, i == 0 ? -1 : 0));
      OK(driver()->host_alloc(device, kMax * 4, &side.pinned));
    }
  }

  ~Player() {
    for (Side& side : sides_) {
      while (!side.buffers.empty()) release(side, 0);
      for (npu_stream* stream : side.streams) {
        OK(driver()->stream_synchronize(stream));
        driver()->stream_destroy(stream);
      }
      driver()->program_destroy(side.add);
      OK(driver()->host_free(side.device, side.pinned));
    }
  }

  void step() {
    Side& side = sides_[pick(sides_.size())];
    npu_stream* stream = side.streams[pick(side.streams.size())];
    if (side.buffers.size() < 3) return acquire(side, stream);
    Buffer &x = side.buffers[pick(side.buffers.size())], &y = side.buffers[pick(side.buffers.size())];
    switch (pick(12)) {
      case 0:
        return side.buffers.size() < 12 ? acquire(side, stream) : release(side, pick(side.buffers.size()));
      case 1:
        return release(side, pick(side.buffers.size()));
      case 2:
      case 3:
        return upload(side, x, stream);
      case 4:
        return download(side, x, stream);
      case 5:
        return clone(x, y, stream);
      case 6:
        return fill(x, stream);
      case 7:
        return swap_stream(side);
      default:
        return add(side, x, y, stream);
    }
  }

 private:
  static constexpr size_t kMax = 50'000;  // elements
  struct Buffer {
    npu_addr addr;
    std::vector<int32_t> model;
    npu_stream* last;  // the stream that used it last
  };
  struct Side {
    npu_device* device;
    npu_program* add;
    std::vector<npu_stream*> streams;
    std::vector<Buffer> buffers;
    void* pinned;
  };

  size_t pick(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  // Mostly small, so that inline and queued work alternate.
  size_t length() { return 1 + (pick(4) == 0 ? pick(kMax) : pick(64)); }

  void use(Buffer& buffer, npu_stream* stream) {
    if (buffer.last == stream) return;
    npu_event* event = rig_.event(rig_.devices[pick(rig_.devices.size())], pick(2) ? NPU_EVENT_TIMING : 0);
    OK(driver()->event_record(event, buffer.last));
    if (pick(8) == 0) OK(driver()->event_synchronize(event));
    OK(driver()->stream_wait_event(stream, event));
    driver()->event_destroy(event);
    buffer.last = stream;
  }

  void acquire(Side& side, npu_stream* stream) {
    Buffer buffer{0, std::vector<int32_t>(length()), stream};
    buffer.addr = rig_.alloc(side.device, buffer.model.size() * 4);
    side.buffers.push_back(std::move(buffer));
    fill(side.buffers.back(), stream);
  }

  void release(Side& side, size_t i) {
    Buffer& buffer = side.buffers[i];
    download(side, buffer, buffer.last);
    OK(driver()->stream_synchronize(buffer.last));
    OK(driver()->memory_free(side.device, buffer.addr));
    side.buffers.erase(side.buffers.begin() + static_cast<int64_t>(i));
  }

  void upload(Side& side, Buffer& x, npu_stream* stream) {
    use(x, stream);
    for (int32_t& v : x.model) v = static_cast<int32_t>(random_());
    if (pick(2)) {
      OK(driver()->copy_to_device(stream, x.addr, x.model.data(), x.model.size() * 4, 0));
    } else {
      std::memcpy(side.pinned, x.model.data(), x.model.size() * 4);
      OK(driver()->copy_to_device(stream, x.addr, side.pinned, x.model.size() * 4, NPU_COPY_PINNED));
      OK(driver()->stream_synchronize(stream));
    }
  }

  void download(Side& side, Buffer& x, npu_stream* stream) {
    use(x, stream);
    std::vector<int32_t> got(x.model.size());
    if (pick(2)) {
      OK(driver()->copy_to_host(stream, got.data(), x.addr, got.size() * 4, 0));
    } else {
      OK(driver()->copy_to_host(stream, side.pinned, x.addr, got.size() * 4, NPU_COPY_PINNED));
      OK(driver()->stream_synchronize(stream));
      std::memcpy(got.data(), side.pinned, got.size() * 4);
    }
    CHECK(got == x.model);
  }

  void clone(Buffer& x, Buffer& y, npu_stream* stream) {
    use(x, stream);
    use(y, stream);
    const size_t n = std::min(x.model.size(), y.model.size());
    OK(driver()->copy_on_device(stream, x.addr, y.addr, n * 4));
    std::copy_n(y.model.begin(), n, x.model.begin());
  }

  void fill(Buffer& x, npu_stream* stream) {
    use(x, stream);
    const auto value = static_cast<int32_t>(pick(1000));
    OK(Command(NPU_COPY, nullptr, static_cast<int64_t>(x.model.size()), "fill")
           .memory(x.addr, NPU_I32)
           .immediate(static_cast<uint64_t>(value), NPU_I32)
           .submit(stream));
    std::fill(x.model.begin(), x.model.end(), value);
  }

  void add(Side& side, Buffer& x, Buffer& y, npu_stream* stream) {
    use(x, stream);
    use(y, stream);
    const size_t n = std::min({x.model.size(), y.model.size(), size_t{2000}});
    npu_program* program = pick(4) ? side.add : rig_.program(side.device, kAdd);
    OK(Command(NPU_MAP, program, static_cast<int64_t>(n), "add")
           .memory(x.addr, NPU_I32)
           .memory(y.addr, NPU_I32)
           .memory(x.addr, NPU_I32)
           .submit(stream));
    if (program != side.add) driver()->program_destroy(program);
    for (size_t i = 0; i < n; ++i)
      x.model[i] = static_cast<int32_t>(static_cast<uint32_t>(x.model[i]) + static_cast<uint32_t>(y.model[i]));
  }

  void swap_stream(Side& side) {
    const size_t i = pick(side.streams.size());
    npu_stream *old = side.streams[i], *fresh = rig_.stream(side.device);
    for (Buffer& buffer : side.buffers)
      if (buffer.last == old) use(buffer, fresh);
    driver()->stream_destroy(old);
    side.streams[i] = fresh;
  }

  const Rig& rig_;
  std::mt19937 random_;
  std::vector<Side> sides_;
};

void stress(const char* options, int threads, int steps) {
  Rig rig(options);
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&rig, t, n = steps / threads] {
      Player player(rig, static_cast<uint32_t>(t + 1));
      for (int i = 0; i < n; ++i) player.step();
    });
  for (std::thread& thread : all) thread.join();
  for (npu_device* device : rig.devices) {
    OK(driver()->device_synchronize(device));
    CHECK(rig.used(device) == 0);
  }
}

// Several threads give work to one stream; every increment counts, and waiting threads help without losing any.
void shared_stream(const char* options, int threads, int steps) {
  Rig rig(options);
  npu_stream* stream = rig.stream();
  npu_program* add = rig.program(rig.device(), kAdd);
  const npu_addr x = rig.alloc(64);
  OK(Command(NPU_COPY, nullptr, 16, "fill").memory(x, NPU_I32).immediate(0, NPU_I32).submit(stream));
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&] {
      npu_event* event = rig.event(rig.device(), NPU_EVENT_TIMING);
      for (int i = 0; i < steps; ++i) {
        OK(Command(NPU_MAP, add, 16, "add").memory(x, NPU_I32).immediate(1, NPU_I32).memory(x, NPU_I32).submit(stream));
        if (i % 7 == 0) OK(driver()->stream_synchronize(stream));
        if (i % 11 == 0) {
          OK(driver()->event_record(event, stream));
          OK(driver()->event_synchronize(event));
          OK(driver()->event_query(event));
        }
      }
    });
  for (std::thread& thread : all) thread.join();
  std::vector<int32_t> got(16);
  OK(driver()->copy_to_host(stream, got.data(), x, 64, 0));
  CHECK(got == std::vector<int32_t>(16, threads * steps));
}

// Copies large enough for the pool, from several streams at once: no piece is lost or copied twice.
void large_copies(const char* options, int threads, int rounds) {
  Rig rig(options);
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&rig, t, rounds] {
      npu_stream* stream = rig.stream(rig.device(), t == 0 ? -1 : 0);
      const size_t bytes = (size_t{3} << 20) + static_cast<size_t>(t) * 12'345 + 1;
      const npu_addr a = rig.alloc(bytes), b = rig.alloc(bytes);
      std::vector<char> out(bytes), back(bytes);
      std::mt19937 random(static_cast<uint32_t>(t));
      for (int round = 0; round < rounds; ++round) {
        for (size_t i = 0; i < bytes; i += 61) out[i] = static_cast<char>(random());
        OK(driver()->copy_to_device(stream, a, out.data(), bytes, 0));
        OK(driver()->copy_on_device(stream, b, a, bytes));
        OK(driver()->copy_to_host(stream, back.data(), b, bytes, 0));
        CHECK(out == back);
      }
      OK(driver()->memory_free(rig.device(), a));
      OK(driver()->memory_free(rig.device(), b));
    });
  for (std::thread& thread : all) thread.join();
}

}  // namespace

TEST(threads_that_share_a_stream_lose_nothing) {
  for (const char* options : {"memory=64M", "memory=64M:inline_ns=0"}) shared_stream(options, 4, harness::work(1000));
}

TEST(random_sequences_agree_with_host_memory) {
  for (const char* options : {"devices=2:memory=256M:threads=3", "devices=2:memory=256M:inline_ns=0:threads=3",
                              "devices=2:memory=256M:mode=exact"})
    stress(options, 3, harness::work(10'000));
}

TEST(large_copies_by_several_threads_are_whole) {
  large_copies("memory=64M:threads=4", 3, 20);
}

// Left open with work in the queue: the end of the process has to cope.
TEST(a_process_may_end_with_work_in_the_queue) {
  static Rig* abandoned = new Rig("memory=128M:inline_ns=0");
  npu_stream* stream = abandoned->stream();
  const npu_addr a = abandoned->alloc(32 << 20), b = abandoned->alloc(32 << 20);
  for (int i = 0; i < 100; ++i) OK(driver()->copy_on_device(stream, b, a, 32 << 20));
}
