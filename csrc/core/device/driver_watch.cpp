#include "csrc/core/device/driver_watch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "support/legalise/legaliser.h"
#include "support/loading/driver_entries.h"
#include "support/program/program.h"

namespace torch_npu {
namespace {

template <auto Entry>
constexpr const char* kName = nullptr;
#define NAME(entry) \
  template <>       \
  constexpr const char* kName<&npu_driver::entry> = #entry;
NPU_DEVICE_ENTRIES(NAME)
NPU_PROGRAM_ENTRIES(NAME)
#undef NAME

constexpr int kMaxTables = 16;  // different drivers in one process
constexpr int kMaxWatchers = 4;

struct Tables {
  std::mutex mutex;
  int count = 0;
  std::array<const npu_driver*, kMaxTables> originals{};
  std::array<npu_driver, kMaxTables> copies{};
};

// Never destroyed: tensors and threads may outlive every static.
Tables& tables() {
  static auto* tables = new Tables;
  return *tables;
}

std::array<std::atomic<DriverWatcher*>, kMaxWatchers> g_watchers{};

// Programs are kept by those who watch from the beginning and by those who begin later, so all of them are kept. Making
// one is slow and rare.
struct Programs {
  std::mutex mutex;
  std::unordered_map<const npu_program*, std::shared_ptr<const npu::Program>> all;
};

Programs& programs() {
  static auto* programs = new Programs;
  return *programs;
}

// After a success of an entry with these arguments: program_create and program_destroy, and nothing for all others.
void keep_program(npu_device*, const npu_program_desc* desc, npu_program** made) {
  auto copy = std::make_shared<const npu::Program>(npu::Program::copy_of(*desc));
  std::lock_guard lock(programs().mutex);
  programs().all[*made] = std::move(copy);
}
void keep_program(npu_program* destroyed) {
  std::lock_guard lock(programs().mutex);
  programs().all.erase(destroyed);
}
template <class... Args>
void keep_program(Args...) {}

// Arguments by their types. Of numbers the first is an address, the last a size and one between them the source of a
// copy; memory_alloc, host_alloc and range_reserve have a size alone, which the entry's own line below corrects.
void note(DriverCall& call, npu_device* device) {
  call.device = device;
}
void note(DriverCall& call, npu_stream* stream) {
  call.stream = stream;
}
void note(DriverCall& call, npu_event* event) {
  call.event = event;
}
void note(DriverCall& call, const npu_command* command) {
  call.command = command;
}
void note(DriverCall& call, const npu_program_desc* program) {
  call.program = program;
}
void note(DriverCall& call, uint64_t number) {
  if (call.size) call.source = call.size;
  (call.addr ? call.size : call.addr) = number;
}
void note(DriverCall& call, const void* host) {
  call.host = host;
}
void note(DriverCall& call, void* host) {
  call.host = host;
}
void note(DriverCall& call, uint32_t flags) {
  call.flags = flags;
}
void note(DriverCall& call, npu_addr* result) {
  call.result = result;
}
template <class T>
void note(DriverCall&, T) {}

bool has_size_only(const char* function) {
  return std::strcmp(function, "memory_alloc") == 0 || std::strcmp(function, "host_alloc") == 0 ||
         std::strcmp(function, "range_reserve") == 0;
}

template <class... Args>
DriverCall describe(const char* function, const npu_driver* api, Args... args) {
  DriverCall call;
  call.function = function;
  call.api = api;
  (note(call, args), ...);
  if (has_size_only(function)) std::swap(call.addr, call.size);
  return call;
}

template <int Table, auto Entry, class Type>
struct Hop;

template <int Table, auto Entry, class R, class... Args>
struct Hop<Table, Entry, R (*npu_driver::*)(Args...)> {
  static R call(Args... args) {
    const npu_driver* api = tables().originals[Table];
    const DriverCall call = describe(kName<Entry>, api, args...);
    std::array<std::pair<DriverWatcher*, uint64_t>, kMaxWatchers> seen{};
    const auto finish = [&](npu_status status) {
      for (const auto& [watcher, number] : seen) {
        if (watcher) watcher->finished(call, status, number);
      }
    };
    try {
      for (int k = 0; k < kMaxWatchers; ++k) {
        DriverWatcher* watcher = g_watchers[k].load(std::memory_order_acquire);
        if (watcher) seen[k] = {watcher, watcher->started(call)};
      }
    } catch (...) {
      finish(NPU_ERROR_INVALID);
      throw;
    }
    if constexpr (std::is_void_v<R>) {
      keep_program(args...);  // before: another program may get the handle at once
      (api->*Entry)(args...);
      finish(NPU_OK);
    } else {
      const R status = (api->*Entry)(args...);
      if (status == NPU_OK) keep_program(args...);
      finish(status);
      return status;
    }
  }
};

// Other threads call through the entry meanwhile, and find either function: both are right.
template <class F>
void put(F& entry, F function) {
  __atomic_store_n(&entry, function, __ATOMIC_RELEASE);
}

template <int Table>
void set_hops(bool on) {
  const npu_driver* original = tables().originals[Table];
  npu_driver& copy = tables().copies[Table];
#define SET_TO(entry, watched)                                                        \
  {                                                                                   \
    using Through = Hop<Table, &npu_driver::entry, decltype(&npu_driver::entry)>;     \
    if (original->entry) put(copy.entry, watched ? &Through::call : original->entry); \
  }
#define SET(entry) SET_TO(entry, on)
#define SET_ALWAYS(entry) SET_TO(entry, true)
  NPU_DEVICE_ENTRIES(SET)
  // Programs are always kept, so the way to their two entries always leads through here.
  NPU_PROGRAM_ENTRIES(SET_ALWAYS)
#undef SET_ALWAYS
#undef SET
#undef SET_TO
}

template <int... Table>
void set_hops(int table, bool on, std::integer_sequence<int, Table...>) {
  ((table == Table ? set_hops<Table>(on) : void()), ...);
}

bool anyone_watches() {
  return std::any_of(g_watchers.begin(), g_watchers.end(), [](const auto& watcher) { return watcher.load(); });
}

// The mutex is held.
void set_all_hops() {
  const bool on = anyone_watches();
  for (int table = 0; table < tables().count; ++table) {
    set_hops(table, on, std::make_integer_sequence<int, kMaxTables>{});
  }
}

}  // namespace

void add_watcher(DriverWatcher* watcher) {
  std::lock_guard lock(tables().mutex);
  auto* const free = std::find(g_watchers.begin(), g_watchers.end(), nullptr);
  if (free == g_watchers.end()) throw std::logic_error("expected at most four watchers of drivers, got one more");
  free->store(watcher, std::memory_order_release);
  set_all_hops();
}

void remove_watcher(DriverWatcher* watcher) {
  std::lock_guard lock(tables().mutex);
  for (auto& place : g_watchers) {
    if (place.load() == watcher) place.store(nullptr, std::memory_order_release);
  }
  set_all_hops();
}

const npu_driver* watchable(const npu_driver* driver) {
  Tables& all = tables();
  std::lock_guard lock(all.mutex);
  for (int table = 0; table < all.count; ++table) {
    if (all.originals[table] == driver) return &all.copies[table];
  }
  if (all.count == kMaxTables) {
    throw std::runtime_error("expected at most " + std::to_string(kMaxTables) + " different drivers, got one more");
  }
  // A driver of a lower minor version has a shorter table; the rest stays null.
  const int table = all.count;
  std::memcpy(&all.copies[table], driver, std::min<size_t>(driver->struct_size, sizeof(npu_driver)));
  all.originals[table] = driver;
  all.count = table + 1;
  set_all_hops();
  return &all.copies[table];
}

std::shared_ptr<const npu::Program> program_of(const npu_program* handle) {
  if (const auto* refused = npu::legalise::refused_program(handle)) return refused->program;
  std::lock_guard lock(programs().mutex);
  const auto found = programs().all.find(handle);
  return found == programs().all.end() ? nullptr : found->second;
}

const npu_driver* own_table(const npu_driver* copy) {
  const Tables& all = tables();
  return all.originals[copy - all.copies.data()];
}

}  // namespace torch_npu
