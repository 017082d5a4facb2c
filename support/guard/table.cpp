#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "support/guard/calls.h"
#include "support/guard/guard.h"
#include "support/guard/watchdog.h"
#include "support/loading/driver_entries.h"
#include "support/loading/driver_table.h"

namespace npu::guard {
namespace {

constexpr size_t kMostTables = 16;  // different drivers in one process
std::array<const npu_driver*, kMostTables> g_drivers{};
std::array<npu_driver, kMostTables> g_tables{};

template <auto Entry>
constexpr const char* kName = nullptr;
#define NAME(entry) \
  template <>       \
  constexpr const char* kName<&npu_driver::entry> = #entry;
NPU_DEVICE_ENTRIES(NAME)
NPU_PROGRAM_ENTRIES(NAME)
#undef NAME

// One call: the thread's place says so from here until the end of it.
class Inside {
 public:
  Inside(const npu_driver& driver, const char* function, const void* object)
      : calls_(this_thread()), outer_(calls_.inside()) {
    calls_.has_own_text = false;
    if (outer_) return;  // a driver that calls a driver
    calls_.enter(driver, function, object);
    wake_watchdog();
  }
  ~Inside() {
    if (!outer_ && !left_) calls_.leave();
  }
  Inside(const Inside&) = delete;

  Calls& calls() { return calls_; }

  // The driver has answered. What the host gets to hear.
  npu_status answer(npu_status status) {
    if (outer_) return status;
    const uint64_t turn = calls_.turn.load(std::memory_order_relaxed);
    calls_.leave();
    left_ = true;
    if (calls_.broken_turn.load(std::memory_order_acquire) == turn) [[unlikely]] {
      say(calls_.broken_text);
      return NPU_ERROR_TIMEOUT;
    }
    if (static_cast<uint32_t>(status) > NPU_ERROR_INTERNAL) [[unlikely]] {
      const char* more = calls_.driver.load()->error_text();
      say(std::string(calls_.function.load()) + ": expected a status of the contract, got " +
          std::to_string(static_cast<int>(status)) + (more && *more ? std::string(": ") + more : ""));
      return NPU_ERROR_INTERNAL;
    }
    return status;
  }

 private:
  void say(std::string text) {
    calls_.own_text = std::move(text);
    calls_.has_own_text = true;
  }

  Calls& calls_;
  bool outer_, left_ = false;
};

template <class First, class... Rest>
const void* first(First value, Rest...) {
  return value;
}
template <int Table, auto Entry, class Type>
struct Guarded;

template <int Table, auto Entry, class R, class... Args>
struct Guarded<Table, Entry, R (*npu_driver::*)(Args...)> {
  static constexpr bool is(auto other) {
    if constexpr (std::is_same_v<decltype(other), decltype(Entry)>) return Entry == other;
    return false;
  }
  static constexpr bool kWaits =
      is(&npu_driver::stream_synchronize) || is(&npu_driver::device_synchronize) || is(&npu_driver::copy_to_host);
  static constexpr bool kMakes = is(&npu_driver::stream_create) || is(&npu_driver::event_create);
  static constexpr bool kEnds =
      is(&npu_driver::stream_destroy) || is(&npu_driver::event_destroy) || is(&npu_driver::device_close);

  static R call(Args... args) {
    const npu_driver& driver = *g_drivers[Table];
    Inside inside(driver, kName<Entry>, first(args...));
    if constexpr (is(&npu_driver::submit)) note(inside.calls(), args...);
    if constexpr (std::is_void_v<R>) {
      if constexpr (kEnds) disown(first(args...));  // before: another object may get the handle at once
      (driver.*Entry)(args...);
    } else {
      const uint64_t wait = kWaits ? begin_wait() : 0;
      const npu_status status = inside.answer((driver.*Entry)(args...));
      if (status == NPU_OK) succeeded(driver, wait, args...);
      return status;
    }
  }

  static void note(Calls& calls, npu_stream* stream, const npu_command* command) {
    if (command) calls.note(stream, *command);
  }

  static void succeeded(const npu_driver& driver, uint64_t wait, Args... args) {
    const auto all = std::tuple(args...);
    if constexpr (is(&npu_driver::device_open)) {
      own(*std::get<2>(all), driver, *std::get<2>(all));
    } else if constexpr (kMakes) {
      own(*std::get<2>(all), driver, std::get<0>(all));
    } else if constexpr (is(&npu_driver::copy_to_host)) {
      // A copy to pinned memory does not wait, and this one has ended.
      if (!(std::get<4>(all) & NPU_COPY_PINNED)) waited(std::get<0>(all), wait);
    } else if constexpr (kWaits) {
      waited(std::get<0>(all), wait);
    }
  }
};

template <int Table>
const char* error_text() {
  const Calls& calls = this_thread();
  return calls.has_own_text ? calls.own_text.c_str() : g_drivers[Table]->error_text();
}

template <int Table>
npu_driver make() {
  const npu_driver& driver = *g_drivers[Table];
  npu_driver table{};
  // A driver of a lower minor version has a shorter table; the rest stays null.
  std::memcpy(&table, &driver, std::min<size_t>(driver.struct_size, sizeof table));
  table.error_text = error_text<Table>;
#define GUARD(entry) \
  if (table.entry) table.entry = Guarded<Table, &npu_driver::entry, decltype(&npu_driver::entry)>::call;
  NPU_DEVICE_ENTRIES(GUARD)
  NPU_PROGRAM_ENTRIES(GUARD)
#undef GUARD
  return table;
}

template <size_t... Table>
npu_driver make(size_t wanted, std::index_sequence<Table...>) {
  npu_driver table{};
  ((Table == wanted ? void(table = make<Table>()) : void()), ...);
  return table;
}

}  // namespace

const npu_driver* guarded(const npu_driver* driver) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  for (size_t table = 0; table < kMostTables; ++table) {
    if (g_drivers[table] == driver) return &g_tables[table];
    if (g_drivers[table]) continue;
    g_drivers[table] = driver;
    g_tables[table] = make(table, std::make_index_sequence<kMostTables>());
    return &g_tables[table];
  }
  return nullptr;
}

}  // namespace npu::guard
