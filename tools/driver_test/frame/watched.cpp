#include "tools/driver_test/frame/watched.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "support/loading/driver_table.h"
#include "support/verify/element.h"
#include "tools/driver_test/frame/flight.h"

namespace driver_test {

namespace {

const npu_driver* real = nullptr;

// Memory that a call lends to the driver: overwritten when the call returns, but not given back for a long time, so
// that a driver that kept a pointer reads nonsense and not what happens to be there.
class Lent {
 public:
  Lent() : shelf_(shelf()) {
    shelf_.next = (shelf_.next + 1) % shelf_.calls.size();
    shelf_.calls[shelf_.next].clear();
  }
  ~Lent() {
    for (Bytes& bytes : shelf_.calls[shelf_.next]) std::memset(bytes.data(), kOverwritten, bytes.size());
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  // A copy whose address has the remainder of the original's modulo 64.
  template <class T>
  T* copy(const T* from, size_t count) {
    if (!from) return nullptr;
    const size_t size = count * sizeof(T), shift = reinterpret_cast<uintptr_t>(from) % 64;
    Bytes& bytes = shelf_.calls[shelf_.next].emplace_back(size + 128);
    unsigned char* to = bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) + shift;
    if (size) std::memcpy(to, from, size);
    return reinterpret_cast<T*>(to);
  }
  const char* copy(const char* text) { return text ? copy(text, std::strlen(text) + 1) : nullptr; }

  npu_command* copy(const npu_command* from) {
    if (!from) return nullptr;
    npu_command* to = copy(from, 1);
    // A command that breaks a rule may say that it has more operands than there are.
    if (from->operand_count <= NPU_MAX_OPERANDS) to->operands = copy(from->operands, from->operand_count);
    if (from->param_count <= NPU_MAX_PARAMS) to->params = copy(from->params, from->param_count);
    return to;
  }

 private:
  using Bytes = std::vector<unsigned char>;
  // One per thread, so that no lock orders two threads. Kept for ever: a driver may look long after a thread has ended.
  struct Shelf {
    std::array<std::vector<Bytes>, 64> calls;
    size_t next = 0;
  };
  static Shelf& shelf() {
    static std::mutex mutex;
    static auto* all = new std::vector<Shelf*>;
    static thread_local Shelf* mine = [] {
      std::lock_guard lock(mutex);
      return all->emplace_back(new Shelf);
    }();
    return *mine;
  }
  Shelf& shelf_;
};

template <auto Member>
struct Watch;
template <class Result, class... Arguments, Result (*npu_driver::*Member)(Arguments...)>
struct Watch<Member> {
  static inline const char* name = "";
  static Result call(Arguments... arguments) {
    InCall in(name);
    return (real->*Member)(arguments...);
  }
};

npu_status watched_open(const char* options, npu_instance** out) {
  InCall in("open");
  Lent lent;
  return real->open(lent.copy(options), out);
}

npu_status watched_copy(npu_stream* stream, npu_addr dst, const void* src, uint64_t size, uint32_t flags) {
  InCall in("copy_to_device");
  constexpr uint64_t kMost = 1 << 20;  // large copies, and sizes that are no size, go as they are
  if ((flags & NPU_COPY_PINNED) || size > kMost) return real->copy_to_device(stream, dst, src, size, flags);
  Lent lent;
  return real->copy_to_device(stream, dst, lent.copy(static_cast<const char*>(src), size), size, flags);
}

npu_status watched_program(npu_device* device, const npu_program_desc* desc, npu_program** out) {
  InCall in("program_create");
  Lent lent;
  npu_program_desc* copy = lent.copy(desc, 1);
  if (copy) {
    if (copy->instr_count <= NPU_MAX_INSTRS) copy->instrs = lent.copy(desc->instrs, desc->instr_count);
    if (copy->const_count <= NPU_MAX_CONSTS) copy->consts = lent.copy(desc->consts, desc->const_count);
    copy->name = lent.copy(desc->name);
  }
  return real->program_create(device, copy, out);
}

npu_status watched_supports(npu_device* device, const npu_command* command) {
  InCall in("supports");
  Lent lent;
  return real->supports(device, lent.copy(command));
}

// A command that breaks a rule cannot be printed.
std::string text_of(const npu_command* command) {
  if (!command) return "no command";
  const bool whole = command->rank <= NPU_MAX_RANK && command->kind < NPU_COMMAND_COUNT && command->operands &&
                     command->operand_count <= NPU_MAX_OPERANDS;
  return whole ? npu::command_text(*command) : "a command that breaks a rule";
}

npu_status watched_submit(npu_stream* stream, const npu_command* command) {
  fly_command(text_of(command));
  InCall in("submit");
  Lent lent;
  return real->submit(stream, lent.copy(command));
}

npu_status watched_choices(npu_device* device, const npu_command* command, npu_choice* out, uint32_t capacity,
                           uint32_t* count) {
  InCall in("choices");
  Lent lent;
  return real->choices(device, lent.copy(command), out, capacity, count);
}

}  // namespace

const npu_driver* watched(const npu_driver* driver) {
  static npu_driver table;
  real = driver;
  table = {};
  std::memcpy(&table, driver, std::min<size_t>(driver->struct_size, sizeof table));
  table.struct_size = sizeof table;
#define WATCH(function)                                  \
  if (driver->function) {                                \
    Watch<&npu_driver::function>::name = #function;      \
    table.function = Watch<&npu_driver::function>::call; \
  }
  WATCH(close) WATCH(device_count) WATCH(device_open) WATCH(device_close) WATCH(device_properties);
  WATCH(device_synchronize) WATCH(device_reset) WATCH(memory_info) WATCH(memory_alloc) WATCH(memory_free);
  WATCH(host_alloc) WATCH(host_free) WATCH(range_reserve) WATCH(range_map) WATCH(range_unmap) WATCH(range_release);
  WATCH(copy_to_host) WATCH(copy_on_device) WATCH(stream_create) WATCH(stream_destroy) WATCH(stream_query);
  WATCH(stream_synchronize) WATCH(stream_wait_event) WATCH(event_create) WATCH(event_destroy) WATCH(event_record);
  WATCH(event_query) WATCH(event_synchronize) WATCH(event_elapsed) WATCH(program_destroy);
#undef WATCH
  table.open = watched_open;
  table.copy_to_device = watched_copy;
  table.program_create = watched_program;
  table.supports = watched_supports;
  table.submit = watched_submit;
  table.choices = npu::choices_of(*driver) ? watched_choices : nullptr;
  return &table;
}

}  // namespace driver_test
