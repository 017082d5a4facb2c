// Device memory, host memory and address ranges.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "tools/driver_test/frame/rig.h"

using namespace driver_test;

TEST("memory: allocations are aligned, apart, and never at 0") {
  Rig rig(context);
  std::map<npu_addr, uint64_t> live;
  for (uint64_t size : {1, 2, 63, 64, 65, 511, 512, 513, 4095, 4096, 4097, 100000, 1 << 20}) {
    for (int i = 0; i < 3; i++) {
      npu_addr addr = rig.alloc(size);
      expect(addr % rig.properties.alignment == 0, "memory_alloc(", size, "): expected a multiple of ",
             rig.properties.alignment, ", got ", hex(addr));
      auto after = live.lower_bound(addr);
      expect(after == live.end() || addr + size <= after->first, "memory_alloc(", size, ") overlaps the next block");
      expect(after == live.begin() || std::prev(after)->first + std::prev(after)->second <= addr, "memory_alloc(", size,
             ") overlaps the previous block");
      live[addr] = size;
    }
  }
  for (auto& [addr, size] : live) rig.upload(addr, pattern(size, addr));
  for (auto& [addr, size] : live) expect_equal(rig.download(addr, size), pattern(size, addr), "a block beside others");
  for (auto& [addr, size] : live) rig.free(addr);
}

TEST("memory: a size of 0 is refused") {
  Rig rig(context);
  npu_addr addr = 0;
  rig.refused(rig.d.memory_alloc(rig.device, 0, &addr), "memory_alloc(0)", {NPU_ERROR_INVALID});
  void* ptr = nullptr;
  rig.refused(rig.d.host_alloc(rig.device, 0, &ptr), "host_alloc(0)", {NPU_ERROR_INVALID});
  rig.still_works();
}

TEST("memory: more than there is is refused as NPU_ERROR_MEMORY, and nothing is lost") {
  Rig rig(context);
  const uint64_t before = rig.free_memory();
  for (uint64_t size : {rig.properties.total_memory + 1, uint64_t{1} << 62, ~uint64_t{0} - 4096, ~uint64_t{0}}) {
    npu_addr addr = 0;
    rig.refused(rig.d.memory_alloc(rig.device, size, &addr), say("memory_alloc(", size, ")").c_str(),
                {NPU_ERROR_MEMORY});
  }
  npu_addr rest = 0;  // all but a little, then more than the rest
  const uint64_t most = before / 4 * 3;
  rig.ok(rig.d.memory_alloc(rig.device, most, &rest), "memory_alloc of three quarters");
  npu_addr addr = 0;
  rig.refused(rig.d.memory_alloc(rig.device, most, &addr), "memory_alloc of three quarters again", {NPU_ERROR_MEMORY});
  rig.still_works();
  rig.free(rest);
  expect(rig.free_memory() == before, "free memory: expected ", before, " again, got ", rig.free_memory());
}

TEST("memory: freed memory is used again, also when neighbours are freed in any order") {
  Rig rig(context);
  const uint64_t quarter = rig.free_memory() / 4 / rig.properties.alignment * rig.properties.alignment;
  const int orders[4][3] = {{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}};
  for (auto& order : orders) {
    npu_addr parts[3];
    for (npu_addr& part : parts) part = rig.alloc(quarter);
    for (int i : order) rig.free(parts[i]);
    npu_addr whole = rig.alloc(quarter * 3);  // fits only if the three pieces became one
    rig.free(whole);
  }
}

TEST("memory: memory_info counts what is live") {
  Rig rig(context);
  const uint64_t before = rig.free_memory();
  npu_addr addr = rig.alloc(10 << 20);
  const uint64_t during = rig.free_memory();
  expect(before - during >= 10 << 20, "memory_info: expected at least 10 MiB less, got ", before - during);
  rig.free(addr);
  expect(rig.free_memory() == before, "memory_info: expected ", before, " after the free, got ", rig.free_memory());
}

TEST("memory: memory_free refuses what is not the start of a live allocation") {
  Rig rig(context);
  npu_addr addr = rig.alloc(1 << 16);
  const std::vector<npu_status> allowed = {NPU_ERROR_ADDRESS, NPU_ERROR_INVALID};
  rig.refused(rig.d.memory_free(rig.device, 0), "memory_free(0)", allowed);
  rig.refused(rig.d.memory_free(rig.device, addr + 64), "memory_free in the middle", allowed);
  rig.names("memory_free in the middle", addr + 64);
  rig.free(addr);
  rig.refused(rig.d.memory_free(rig.device, addr), "memory_free twice", allowed);
  int on_stack = 0;
  rig.refused(rig.d.memory_free(rig.device, reinterpret_cast<uintptr_t>(&on_stack)), "memory_free of a host pointer",
              allowed);
  rig.still_works();
}

TEST("memory: a device address is not a host pointer") {
  Rig rig(context);
  for (uint64_t size : {64, 1 << 16, 8 << 20}) {
    npu_addr addr = rig.alloc(size);
    rig.upload(addr, pattern(size, 5));
    rig.sync();
    // The kernel copies from the address without a crash, or says that there is nothing.
    for (npu_addr at : {addr, addr + size - 1}) {
      char byte = 0;
      iovec to{&byte, 1}, from{reinterpret_cast<void*>(static_cast<uintptr_t>(at)), 1};
      const ssize_t got = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
      expect(got != 1, "device address ", hex(at), " can be read by the host: code that mixes the two up would seem ",
             "to work");
    }
    rig.free(addr);
  }
}

TEST("memory: host_alloc gives aligned memory of its own") {
  Rig rig(context);
  std::vector<std::pair<uint8_t*, uint64_t>> live;
  for (uint64_t size : {1, 63, 64, 65, 4096, 100001, 4 << 20}) {
    auto* ptr = static_cast<uint8_t*>(rig.new_host(size));
    expect(reinterpret_cast<uintptr_t>(ptr) % 64 == 0, "host_alloc(", size, "): expected a multiple of 64");
    std::memset(ptr, static_cast<int>(live.size() + 1), size);
    live.push_back({ptr, size});
  }
  for (size_t i = 0; i < live.size(); i++)
    expect(std::all_of(live[i].first, live[i].first + live[i].second, [&](uint8_t b) { return b == i + 1; }),
           "host_alloc: two blocks share memory");
  for (auto& [ptr, size] : live) rig.ok(rig.d.host_free(rig.device, ptr), "host_free");
  rig.refused(rig.d.host_free(rig.device, live[0].first), "host_free twice", {NPU_ERROR_INVALID, NPU_ERROR_ADDRESS});
  int on_stack = 0;
  rig.refused(rig.d.host_free(rig.device, &on_stack), "host_free of the stack", {NPU_ERROR_INVALID, NPU_ERROR_ADDRESS});
  void* huge = nullptr;
  rig.refused(rig.d.host_alloc(rig.device, ~uint64_t{0} - 100, &huge), "host_alloc of 2^64", {NPU_ERROR_MEMORY});
  rig.still_works();
}

TEST("memory: 2,000 random allocs and frees keep contents and lose nothing") {
  Rig rig(context);
  Random random = context.random();
  const uint64_t before = rig.free_memory();
  std::vector<std::pair<npu_addr, Bytes>> live;
  for (int i = 0; i < 2000; i++) {
    if (live.size() < 40 && (live.empty() || random.chance(55))) {
      const auto size = static_cast<uint64_t>(random.between(1, random.chance(10) ? 300000 : 3000));
      npu_addr addr = rig.alloc(size);
      live.emplace_back(addr, pattern(size, random.next()));
      rig.upload(addr, live.back().second);
    } else {
      const size_t k = static_cast<size_t>(random.below(static_cast<int64_t>(live.size())));
      expect_equal(rig.download(live[k].first, live[k].second.size()), live[k].second, "a block before its free");
      rig.free(live[k].first);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
  for (auto& [addr, bytes] : live) rig.free(addr);
  expect(rig.free_memory() == before, "free memory: expected ", before, " at the end, got ", rig.free_memory());
}

TEST("memory: a range is mapped, used, unmapped and released") {
  Rig rig(context);
  if (!rig.d.range_reserve) throw NotSupported{"the driver has no range functions; they are optional"};
  const uint64_t before = rig.free_memory();
  const uint64_t unit = std::max<uint64_t>(rig.properties.alignment, 2 << 20);
  npu_addr range = 0;
  rig.ok(rig.d.range_reserve(rig.device, 8 * unit, &range), "range_reserve");
  expect(range != 0 && range % rig.properties.alignment == 0, "range_reserve: expected an aligned address, got ",
         hex(range));
  expect(rig.free_memory() == before, "range_reserve must take no memory");
  const std::vector<npu_status> address = {NPU_ERROR_ADDRESS};
  uint8_t byte = 1;
  rig.refused(rig.d.copy_to_device(rig.stream, range, &byte, 1, 0), "a copy to unmapped addresses", address);
  rig.ok(rig.d.range_map(rig.device, range, 2 * unit), "range_map");
  rig.ok(rig.d.range_map(rig.device, range + 2 * unit, unit), "range_map behind");
  expect(rig.free_memory() <= before - 3 * unit, "range_map must take memory");
  Bytes want = pattern(3 * unit, 9);
  rig.upload(range, want);  // across the seam
  expect_equal(rig.download(range, 3 * unit), want, "a mapped range");
  rig.refused(rig.d.copy_to_device(rig.stream, range + 3 * unit - 1, want.data(), 2, 0), "a copy past the map",
              address);
  rig.refused(rig.d.range_map(rig.device, range + unit, unit), "range_map of a mapped part",
              {NPU_ERROR_INVALID, NPU_ERROR_ADDRESS});
  rig.refused(rig.d.range_map(rig.device, range + 7 * unit, 2 * unit), "range_map past the end",
              {NPU_ERROR_INVALID, NPU_ERROR_ADDRESS});
  rig.refused(rig.d.range_release(rig.device, range), "range_release of a mapped range",
              {NPU_ERROR_INVALID, NPU_ERROR_ADDRESS});
  rig.sync();
  rig.ok(rig.d.range_unmap(rig.device, range + unit, unit), "range_unmap of a part");
  rig.refused(rig.d.copy_to_device(rig.stream, range + unit, &byte, 1, 0), "a copy to unmapped addresses", address);
  want.resize(unit);
  expect_equal(rig.download(range, unit), want, "what stayed mapped");
  rig.ok(rig.d.range_unmap(rig.device, range, unit), "range_unmap");
  rig.ok(rig.d.range_unmap(rig.device, range + 2 * unit, unit), "range_unmap");
  rig.ok(rig.d.range_release(rig.device, range), "range_release");
  expect(rig.free_memory() == before, "free memory: expected ", before, " at the end, got ", rig.free_memory());
}
