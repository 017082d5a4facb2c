#include "support/guard/calls.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <iterator>
#include <mutex>
#include <unordered_map>

#include "support/program/program.h"

namespace npu::guard {
namespace {

std::array<std::atomic<Calls*>, kMostThreads> g_threads{};
std::atomic<size_t> g_thread_count{0};
std::atomic<uint64_t> g_epoch{1};

struct Known {
  std::mutex mutex;
  std::unordered_map<const void*, Owner> owners;
  std::unordered_map<const npu_stream*, uint64_t> done;  // commands of an earlier epoch are done
  std::vector<Calls*> free;                              // of threads that ended
};

// Never destroyed: threads and devices may outlive every static.
Known& known() {
  static auto* known = new Known;
  return *known;
}

Calls* take_calls() {
  std::lock_guard lock(known().mutex);
  if (!known().free.empty()) {
    Calls* calls = known().free.back();
    known().free.pop_back();
    return calls;
  }
  auto* calls = new Calls;
  const size_t number = g_thread_count.load();
  if (number == kMostThreads) return calls;  // nobody looks after the rest
  g_threads[number].store(calls);
  g_thread_count.store(number + 1);
  return calls;
}

struct Place {
  Calls* calls = take_calls();
  Place() { calls->is_main = getpid() == gettid(); }
  ~Place() {
    std::lock_guard lock(known().mutex);
    known().free.push_back(calls);
  }
};

constinit thread_local Calls* tls_calls = nullptr;

constexpr size_t kTypes = std::size(Given().dtype);

}  // namespace

void Calls::enter(const npu_driver& of, const char* name, const void* about) {
  driver.store(&of, std::memory_order_relaxed);
  function.store(name, std::memory_order_relaxed);
  object.store(about, std::memory_order_relaxed);
  turn.store(turn.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

// On every command's way: no more is written than what a sentence needs.
void Calls::note(const npu_stream* stream, const npu_command& command) {
  const uint64_t count = count_.load(std::memory_order_relaxed);
  auto& place = kept_[count % kKept];
  const auto put = [&](size_t word, uint64_t value) { place[word].store(value, std::memory_order_relaxed); };
  std::array<uint8_t, 8> bytes = {command.kind, std::min<uint8_t>(command.rank, NPU_MAX_RANK), command.inner_rank,
                                  static_cast<uint8_t>(std::min(command.operand_count, 255u))};
  for (uint32_t o = 0; o < command.operand_count && o < kTypes && command.operands; ++o)
    bytes[4 + o] = command.operands[o].dtype;
  put(0, reinterpret_cast<uint64_t>(stream));
  put(1, reinterpret_cast<uint64_t>(command.label));
  put(2, epoch_now());
  put(3, command.kind == NPU_MATMUL ? static_cast<uint64_t>(command.u.matmul.k) : 0);
  put(4, std::bit_cast<uint64_t>(bytes));
  for (size_t d = 0; d < bytes[1]; ++d) put(kSizes + d, static_cast<uint64_t>(command.size[d]));
  count_.store(count + 1, std::memory_order_release);
}

bool Calls::recent(size_t age, Given* out) const {
  const uint64_t count = count_.load(std::memory_order_acquire);
  if (age >= count || age >= kKept) return false;
  const auto& place = kept_[(count - 1 - age) % kKept];
  const auto get = [&](size_t word) { return place[word].load(std::memory_order_relaxed); };
  const auto bytes = std::bit_cast<std::array<uint8_t, 8>>(get(4));
  *out = {};
  out->stream = reinterpret_cast<const npu_stream*>(get(0));
  out->label = reinterpret_cast<const char*>(get(1));
  out->epoch = get(2);
  out->k = static_cast<int64_t>(get(3));
  out->kind = bytes[0];
  out->rank = std::min<uint8_t>(bytes[1], NPU_MAX_RANK);
  out->inner_rank = bytes[2];
  out->operands = bytes[3];
  for (size_t o = 0; o < kTypes; ++o) out->dtype[o] = bytes[4 + o];
  for (size_t d = 0; d < out->rank; ++d) out->size[d] = static_cast<int64_t>(get(kSizes + d));
  return true;
}

std::vector<Given> Calls::recent() const {
  std::vector<Given> out;
  Given given;
  for (size_t age = 0; recent(age, &given); ++age) out.insert(out.begin(), given);
  return out;
}

Calls& this_thread() {
  if (!tls_calls) [[unlikely]] {
    static thread_local Place place;
    tls_calls = place.calls;
  }
  return *tls_calls;
}

const Calls* this_thread_if_known() {
  return tls_calls;
}

size_t thread_count() {
  return g_thread_count.load(std::memory_order_acquire);
}
Calls& mutable_thread_calls(size_t number) {
  return *g_threads[number].load(std::memory_order_relaxed);
}
const Calls& thread_calls(size_t number) {
  return mutable_thread_calls(number);
}

void own(const void* object, const npu_driver& driver, npu_device* device) {
  std::lock_guard lock(known().mutex);
  known().owners[object] = {&driver, device};
}

void disown(const void* object) {
  std::lock_guard lock(known().mutex);
  known().owners.erase(object);
  known().done.erase(static_cast<const npu_stream*>(object));
}

Owner owner_of(const void* object) {
  std::lock_guard lock(known().mutex);
  const auto found = known().owners.find(object);
  return found == known().owners.end() ? Owner{} : found->second;
}

uint64_t epoch_now() {
  return g_epoch.load(std::memory_order_relaxed);
}
uint64_t begin_wait() {
  return g_epoch.fetch_add(1) + 1;
}

void waited(const npu_stream* stream, uint64_t wait) {
  std::lock_guard lock(known().mutex);
  uint64_t& done = known().done[stream];
  done = std::max(done, wait);
}

void waited(const npu_device* device, uint64_t wait) {
  std::lock_guard lock(known().mutex);
  for (const auto& [object, owner] : known().owners)
    if (owner.device == device) {
      uint64_t& done = known().done[static_cast<const npu_stream*>(object)];
      done = std::max(done, wait);
    }
}

bool is_known_done(const Given& given) {
  const std::unique_lock lock(known().mutex, std::try_to_lock);
  if (!lock) return false;
  const auto found = known().done.find(given.stream);
  return found != known().done.end() && given.epoch < found->second;
}

void write_text(const Given& given, char* to, size_t room) {
  size_t at = 0;
  const auto add = [&](const char* format, auto... values) {
    if (at >= room) return;
    const int more = std::snprintf(to + at, room - at, format, values...);
    if (more > 0) at += static_cast<size_t>(more);
  };
  add("%s %s [", command_name(given.kind), given.label ? given.label : "");
  for (int d = 0; d < given.rank; ++d) add(d ? ", %lld" : "%lld", static_cast<long long>(given.size[d]));
  add("]");
  if (given.kind == NPU_MATMUL) add(", k = %lld", static_cast<long long>(given.k));
  for (int o = 0; o < given.operands && o < 4; ++o) add(o ? " %s" : ", %s", dtype_name(given.dtype[o]));
  if (given.operands > 4) add(" and %d more", given.operands - 4);
}

std::string text(const Given& given) {
  char out[400];
  write_text(given, out, sizeof out);
  return out;
}

}  // namespace npu::guard
