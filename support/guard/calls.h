// What every thread of the host does with drivers at this moment, and what it gave them last. Written by the threads
// themselves, without a lock; read by who looks after them: the watchdog, and the handler of crashes.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "npu/runtime.h"

namespace npu::guard {

// A command as it was given: what a sentence about it needs, and nothing that must be freed.
struct Given {
  const npu_stream* stream = nullptr;
  const char* label = nullptr;
  uint64_t epoch = 0;  // how many waits had begun by then
  int64_t size[NPU_MAX_RANK] = {};
  int64_t k = 0;  // of a MATMUL
  uint8_t kind = 0, rank = 0, inner_rank = 0, operands = 0;
  uint8_t dtype[4] = {};  // of the first operands
};

// One thread's. `turn` is odd while a driver works for it; only the thread itself writes, but for the verdict.
class Calls {
 public:
  void enter(const npu_driver& driver, const char* function, const void* object);
  void leave() { turn.store(turn.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  bool inside() const { return turn.load(std::memory_order_relaxed) & 1; }
  void note(const npu_stream* stream, const npu_command& command);
  // The last ones, oldest first. Of another thread: as far as it does not write meanwhile.
  std::vector<Given> recent() const;
  // The same without an allocation, for a handler of signals: the `age`th last. False: there is none.
  bool recent(size_t age, Given* out) const;

  std::atomic<uint64_t> turn{0};
  std::atomic<const npu_driver*> driver{nullptr};
  std::atomic<const char*> function{nullptr};
  std::atomic<const void*> object{nullptr};  // the device, stream or event that the call is about
  // Set by the watchdog while the thread is inside: the turn whose answer is replaced, and by what text.
  std::atomic<uint64_t> broken_turn{0};
  std::string broken_text;
  std::string own_text;  // what error_text says next on this thread, instead of the driver
  bool has_own_text = false;
  bool is_main = false;

 private:
  static constexpr size_t kKept = 32;
  // Stream, label, epoch, k, and kind to types as bytes; then as many sizes as there are dimensions.
  static constexpr size_t kSizes = 5, kWords = kSizes + NPU_MAX_RANK;
  std::atomic<uint64_t> count_{0};
  std::array<std::array<std::atomic<uint64_t>, kWords>, kKept> kept_{};
};

// The calling thread's.
Calls& this_thread();
const Calls* this_thread_if_known();  // null: it has never called a driver
// Of every thread that has called a driver. They are kept for ever; one that ended leaves its place to the next.
constexpr size_t kMostThreads = 1024;
size_t thread_count();
const Calls& thread_calls(size_t number);
Calls& mutable_thread_calls(size_t number);

// Which device a stream or an event belongs to, and which of a stream's commands are known to be done.
void own(const void* object, const npu_driver& driver, npu_device* device);
void disown(const void* object);
struct Owner {
  const npu_driver* driver = nullptr;
  npu_device* device = nullptr;
};
Owner owner_of(const void* object);

uint64_t epoch_now();
uint64_t begin_wait();  // a number for `waited`
// Work that was given to the stream (to all streams of the device) before the wait began is done.
void waited(const npu_stream* stream, uint64_t wait);
void waited(const npu_device* device, uint64_t wait);
// False also where that cannot be told without waiting for somebody.
bool is_known_done(const Given& given);

// "MATMUL aten::addmm [64, 10], k = 32, f32": written to `to`, cut off at `room`. No allocation.
void write_text(const Given& given, char* to, size_t room);
std::string text(const Given& given);

}  // namespace npu::guard
