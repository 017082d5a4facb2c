// What the sanitizer knows, for its own files.
#pragma once
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "csrc/core/device/driver_watch.h"
#include "csrc/core/observe/sanitizer/order.h"
#include "csrc/core/observe/sanitizer/record.h"
#include "csrc/core/observe/sanitizer/sanitizer.h"

namespace torch_npu::sanitizer {

// A copy that uses pinned memory until the host has waited for it.
struct PinnedCopy {
  const char* begin;
  const char* end;
  bool writes;  // to the host
  Stamp stamp;
  RecordPtr record;
};

struct State {
  std::mutex mutex;  // innermost: neither Python's lock nor the cache's is taken under it
  Options options{0, true};
  uint64_t generation = 0;  // of what is known; disable() begins the next one
  Order order;
  std::map<c10::DeviceIndex, Shadow> shadows;
  std::map<uint32_t, std::vector<EarlyFree>> early;  // by the stream that owned the memory
  std::vector<PinnedCopy> pinned;
};

extern std::atomic<bool> g_has_pinned;  // copies in the list

State& state();

// What a thread is about to do: checked before the driver's call, and done behind it.
struct Work {
  c10::DeviceIndex device = -1;
  uint64_t generation = 0;  // that `stream` is of
  uint32_t stream = 0;
  RecordPtr record;
  std::vector<Touch> touches;
  Bytes unwritten;  // among the results: chosen from what nobody has written
};

struct Thread {
  std::optional<Work> work;
  RecordPtr replay;  // who replays a graph; null: nobody
  const Bytes* elements = nullptr;
  Bytes own_elements;
};

Thread& this_thread();

// "aten::zeros (an allocation)": of what has no name of its own.
std::string named(const std::string& what);

// pinned.cpp; the mutex is held.
void forget_done_copies(State& all);

// watch.cpp
DriverWatcher* watcher();

}  // namespace torch_npu::sanitizer
