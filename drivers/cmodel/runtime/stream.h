// A stream: work in order. Every piece of accepted work has a number; `completed` follows `submitted`.
//
// Small work runs on the submitting thread when the stream is idle. The rest goes to the ring, and whoever holds the
// consumer role runs it: the stream's worker, which is started with the first queued record, or a thread that waits
// for the stream anyway.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "drivers/cmodel/job/job.h"
#include "support/driver/event_count.h"
#include "support/driver/ring.h"

// When a timing event was reached.
namespace cmodel {

using npu::driver::EventCount;
using npu::driver::now_ns;
using npu::driver::Patience;
using npu::driver::Record;
using npu::driver::Ring;
using Stamp = std::atomic<int64_t>;

// The records. Each is constructed in the ring and destroyed by the consumer.
struct CommandRecord : Record {
  Job job;
  std::shared_ptr<const Program> program;  // keeps a program alive that was destroyed meanwhile
};
struct TransferRecord : Record {
  char* dst = nullptr;
  const char* src = nullptr;  // of staged data: behind the record
  uint64_t size = 0;
};
struct WaitRecord : Record {
  std::shared_ptr<npu_stream> other;
  uint64_t until = 0;
};
struct StampRecord : Record {
  std::shared_ptr<Stamp> stamp;
};
}  // namespace cmodel

struct npu_stream : std::enable_shared_from_this<npu_stream> {
  npu_stream(npu_device* device, int priority) : device(device), priority(priority) {}
  ~npu_stream();

  npu_device* const device;
  const int priority;

  // -- giving work: all with `submit` held --
  std::mutex submit;
  bool idle() const { return completed_.load(std::memory_order_acquire) == submitted_.load(std::memory_order_relaxed); }
  double predicted_ns = 0;  // of the chip's clock (timing.h): when all that was given is done
  uint64_t submitted() const { return submitted_.load(std::memory_order_relaxed); }
  // Around work that runs on the calling thread. The stream is idle.
  void begin_inline() { submitted_.store(submitted() + 1, std::memory_order_relaxed); }
  void end_inline() { completed_.store(submitted(), std::memory_order_release); }
  // A new record of `extra` more bytes than R, waiting for room; enqueue() hands it over. nullptr: no memory or thread.
  template <class R>
  R* make_record(cmodel::Record::Type type, uint64_t extra = 0) {
    void* place = room(sizeof(R) + extra);
    if (!place) return nullptr;
    R* record = new (place) R;
    record->bytes = ring_.reserved();
    record->type = type;
    record->seq = submitted() + 1;
    return record;
  }
  void enqueue(cmodel::Record* record);

  // -- waiting --
  bool reached(uint64_t seq) const { return completed_.load(std::memory_order_acquire) >= seq; }
  bool busy() const { return !reached(submitted_.load(std::memory_order_acquire)); }
  void wait(uint64_t seq);    // helps if nobody runs the queue
  uint64_t last_submitted();  // takes `submit`

  // -- failures --
  void fail(npu_status status, const std::string& text);  // of the work that runs now
  bool has_failure() const { return failed_.load(std::memory_order_acquire); }
  bool take_failure(uint64_t up_to, cmodel::Failure* out);  // one of work number <= up_to
  int64_t failure_time();                                   // INT64_MAX: none

  // -- ending --
  void drop_queued(uint64_t up_to);  // records up to that number do nothing
  void wake_waiters() { done_.notify(); }
  void stop_worker();  // joins it; the queue stays usable through wait()

 private:
  void* room(uint64_t bytes);
  bool start_worker();
  void work();
  bool try_consume(uint64_t until);
  bool consume_one();
  bool dropped(const cmodel::Record& record) const { return record.seq <= drop_until_.load(std::memory_order_acquire); }

  std::atomic<uint64_t> submitted_{0};
  alignas(64) std::atomic<uint64_t> completed_{0};
  std::atomic<bool> consumer_{false};  // the consumer role is taken
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> drop_until_{0};
  cmodel::Ring ring_;
  cmodel::EventCount work_;  // for the worker: a record, or an end
  cmodel::EventCount done_;  // for everyone else: a completed record, or the role is free
  std::thread worker_;
  int owner_pid_ = 0;

  std::mutex failure_mutex_;
  std::atomic<bool> failed_{false};
  cmodel::Failure failure_;
  uint64_t failure_seq_ = 0;
  int64_t failure_time_ = 0;
  uint64_t running_ = 0;  // number of the record in work; 0: inline
};
