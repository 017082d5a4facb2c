// Copies: host to device, back, and within a device.
#include "tools/driver_test/frame/rig.h"

using namespace driver_test;

TEST("copy: every small size at every small alignment") {
  Rig rig(context);
  const uint64_t room = 512;
  npu_addr addr = rig.alloc(room);
  Bytes image = pattern(room, 1);
  rig.upload(addr, image);
  Bytes source = pattern(room + 16, 2);
  for (uint64_t offset = 0; offset < 9; offset++)
    for (uint64_t host = 0; host < 5; host++)
      for (uint64_t size : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 300}) {
        rig.upload(addr + 100 + offset, source.data() + host, size);
        std::memcpy(image.data() + 100 + offset, source.data() + host, size);
        Bytes got = rig.download(addr + 3, room - 3);  // neighbours are untouched
        expect_equal(got, Bytes(image.begin() + 3, image.end()), say("copy of ", size, " bytes to offset ", offset));
      }
  rig.free(addr);
}

TEST("copy: large sizes") {
  Rig rig(context);
  for (uint64_t size : {(1u << 16) - 1, (1u << 20) + 3, 5u << 20, (32u << 20) + 1}) {
    npu_addr addr = rig.alloc(size + 7);
    Bytes want = pattern(size, size);
    rig.upload(addr + 7, want);
    expect_equal(rig.download(addr + 7, size), want, say("copy of ", size, " bytes"));
    rig.free(addr);
  }
}

TEST("copy: without the pinned flag the host's memory is free at once") {
  Rig rig(context);
  npu_addr addr = rig.alloc(1 << 20);
  for (int i = 0; i < 20; i++) {
    Bytes source = pattern(1 << 20, static_cast<uint64_t>(i));
    rig.upload(addr, source);
    std::memset(source.data(), 0xEE, source.size());  // the copy must not see this
    expect_equal(rig.download(addr, 1 << 20), pattern(1 << 20, static_cast<uint64_t>(i)), "a copy of reused memory");
  }
}

TEST("copy: pinned copies are right after synchronising, also many in a row") {
  Rig rig(context);
  const uint64_t size = 1 << 18;
  const int n = 16;
  npu_addr addr = rig.alloc(size * n);
  auto* in = static_cast<uint8_t*>(rig.new_host(size * n));
  auto* out = static_cast<uint8_t*>(rig.new_host(size * n));
  Bytes want = pattern(size * n, 4);
  std::memcpy(in, want.data(), want.size());
  std::memset(out, 0, want.size());
  for (uint64_t i = 0; i < n; i++)
    rig.ok(rig.d.copy_to_device(rig.stream, addr + i * size, in + i * size, size, NPU_COPY_PINNED), "copy_to_device");
  for (uint64_t i = 0; i < n; i++)
    rig.ok(rig.d.copy_to_host(rig.stream, out + i * size, addr + i * size, size, NPU_COPY_PINNED), "copy_to_host");
  rig.sync();
  expect_equal(Bytes(out, out + size * n), want, "pinned copies");
  rig.ok(rig.d.host_free(rig.device, in), "host_free");
  rig.ok(rig.d.host_free(rig.device, out), "host_free");
}

TEST("copy: overlapping copies on the device behave as memmove") {
  Rig rig(context);
  const uint64_t room = 300000;
  npu_addr addr = rig.alloc(room);
  Bytes image = pattern(room, 5);
  rig.upload(addr, image);
  Random random = context.random();
  for (int i = 0; i < 200; i++) {
    const auto size = static_cast<uint64_t>(random.between(0, random.chance(50) ? 100 : 200000));
    const auto from = static_cast<uint64_t>(random.below(static_cast<int64_t>(room - size)));
    auto to = static_cast<uint64_t>(random.below(static_cast<int64_t>(room - size)));
    if (random.chance(60) && from + 40 < room - size) to = from + static_cast<uint64_t>(random.below(40));
    rig.ok(rig.d.copy_on_device(rig.stream, addr + to, addr + from, size), "copy_on_device");
    std::memmove(image.data() + to, image.data() + from, size);
    if (i % 10 == 9) expect_equal(rig.download(addr, room), image, say("after overlapping copy ", i));
  }
  rig.free(addr);
}

TEST("copy: a copy that touches anything outside one live allocation is refused and changes nothing") {
  Rig rig(context);
  const uint64_t size = 1 << 16;
  npu_addr addr = rig.alloc(size), gone = rig.alloc(size);
  Bytes want = pattern(size, 6), byte(size + 1, 0x11);
  rig.upload(addr, want);
  rig.free(gone);
  const std::vector<npu_status> bad = {NPU_ERROR_ADDRESS, NPU_ERROR_INVALID};
  npu_stream* s = rig.stream;
  const uint64_t far = rig.properties.total_memory;
  struct {
    const char* what;
    npu_addr addr;
    uint64_t size;
  } cases[] = {{"past the end", addr, size + rig.properties.alignment * 2},
               {"freed memory", gone, 8},
               {"address 0", 0, 8},
               {"far behind the device", addr + far * 2, 8},
               {"before the block", addr - far, 8},
               {"a size that wraps around", addr + 16, ~uint64_t{0} - 8},
               {"the last address", ~uint64_t{0}, 1},
               {"a host pointer", reinterpret_cast<uintptr_t>(want.data()), 8}};
  Bytes large(size + rig.properties.alignment * 4, 0x22);
  for (auto& c : cases) {
    rig.refused(rig.d.copy_to_device(s, c.addr, large.data(), c.size, 0), say("copy_to_device: ", c.what).c_str(), bad);
    if (c.addr) rig.names("copy_to_device", c.addr);
    rig.refused(rig.d.copy_to_host(s, large.data(), c.addr, c.size, 0), say("copy_to_host: ", c.what).c_str(), bad);
    if (c.addr) rig.names("copy_to_host", c.addr);
    rig.refused(rig.d.copy_on_device(s, addr, c.addr, c.size), say("copy_on_device from: ", c.what).c_str(), bad);
    rig.refused(rig.d.copy_on_device(s, c.addr, addr, c.size), say("copy_on_device to: ", c.what).c_str(), bad);
  }
  rig.refused(rig.d.copy_to_device(s, addr, nullptr, 8, 0), "copy_to_device from null", bad);
  rig.refused(rig.d.copy_to_host(s, nullptr, addr, 8, 0), "copy_to_host to null", bad);
  rig.sync();  // a refused call is not an asynchronous failure
  expect_equal(rig.download(addr, size), want, "memory after refused copies");
  rig.still_works();
}
