#include "drivers/cmodel/runtime/stream.h"

#include <sys/resource.h>

#include <system_error>

#include "drivers/cmodel/runtime/device.h"
#include "drivers/cmodel/runtime/run_job.h"
#include "drivers/cmodel/threads/pool.h"
#include "support/driver/after_fork.h"

using namespace cmodel;

namespace {

constexpr int64_t kSpinNs = Patience::kShortNs;
constexpr int kUrgentNice = -5;

}  // namespace

npu_stream::~npu_stream() {
  stop_worker();
}

void* npu_stream::room(uint64_t bytes) {
  if (!ring_.create() || !start_worker()) {
    set_error("expected the host to give memory and a thread for the queue of a stream, got a refusal");
    return nullptr;
  }
  void* place = ring_.reserve(bytes);
  if (!place) done_.wait(kSpinNs, [&] { return (place = ring_.reserve(bytes)) != nullptr; });
  return place;
}

void npu_stream::enqueue(Record* record) {
  submitted_.store(record->seq, std::memory_order_release);
  ring_.publish();
  work_.notify();
}

bool npu_stream::start_worker() {
  if (worker_.joinable() || stop_.load(std::memory_order_relaxed)) return true;
  try {
    owner_pid_ = getpid();
    worker_ = std::thread([this] { work(); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

void npu_stream::work() {
  if (priority < 0) {
    // Best effort: needs a right that most processes do not have.
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kUrgentNice);
  }
  const auto ready = [this] {
    return stop_.load(std::memory_order_acquire) || (!ring_.empty() && !consumer_.load(std::memory_order_acquire));
  };
  Patience patience;
  for (;;) {
    const int64_t since = now_ns();
    work_.wait(patience.spin_ns(), ready);
    patience.waited(now_ns() - since);
    if (stop_.load(std::memory_order_acquire)) return;
    try_consume(UINT64_MAX);
  }
}

// Takes the role, if free, and runs records until number `until` is done, the ring is empty or the worker must stop.
bool npu_stream::try_consume(uint64_t until) {
  if (consumer_.exchange(true, std::memory_order_acquire)) return false;
  set_pool_priority(priority);
  while (!reached(until) && consume_one()) {
  }
  set_pool_priority(0);
  consumer_.store(false, std::memory_order_release);
  // Records may have come in while the worker saw the role taken; waiters may want the role.
  if (work_.has_waiters() && !ring_.empty()) work_.notify();
  done_.notify();
  return true;
}

bool npu_stream::consume_one() {
  Record* record = ring_.front();
  if (!record) return false;
  const uint64_t seq = record->seq;
  const uint32_t bytes = record->bytes;
  running_ = seq;
  switch (record->type) {
    case Record::kCommand: {
      auto* r = static_cast<CommandRecord*>(record);
      if (!dropped(*r)) run_job(*this, r->job);
      r->~CommandRecord();
      break;
    }
    case Record::kTransfer: {
      auto* r = static_cast<TransferRecord*>(record);
      if (!dropped(*r)) copy_bytes(r->dst, r->src, r->size);
      r->~TransferRecord();
      break;
    }
    case Record::kWait: {
      auto* r = static_cast<WaitRecord*>(record);
      r->other->done_.wait(kSpinNs, [&] { return r->other->reached(r->until) || dropped(*r); });
      r->~WaitRecord();
      break;
    }
    case Record::kStamp: {
      auto* r = static_cast<StampRecord*>(record);
      r->stamp->store(now_ns(), std::memory_order_release);
      r->~StampRecord();
      break;
    }
    case Record::kSkip:
      break;
  }
  running_ = 0;
  ring_.pop(bytes);
  completed_.store(seq, std::memory_order_release);
  done_.notify();
  return !stop_.load(std::memory_order_relaxed) || dropped({0, Record::kSkip, seq});
}

void npu_stream::wait(uint64_t seq) {
  while (!reached(seq)) {
    if (owner_pid_ != 0 && owner_pid_ != getpid()) return;  // a forked child: the work stayed with the parent
    if (try_consume(seq)) continue;
    done_.wait(kSpinNs, [&] { return reached(seq) || !consumer_.load(std::memory_order_acquire); });
  }
}

uint64_t npu_stream::last_submitted() {
  std::lock_guard<std::mutex> lock(submit);
  return submitted();
}

void npu_stream::fail(npu_status status, const std::string& text) {
  std::lock_guard<std::mutex> lock(failure_mutex_);
  if (failure_.status != NPU_OK) return;
  failure_ = {status, text};
  failure_seq_ = running_ ? running_ : submitted();
  failure_time_ = now_ns();
  failed_.store(true, std::memory_order_release);
}

bool npu_stream::take_failure(uint64_t up_to, Failure* out) {
  if (!has_failure()) return false;
  std::lock_guard<std::mutex> lock(failure_mutex_);
  if (failure_.status == NPU_OK || failure_seq_ > up_to) return false;
  *out = std::move(failure_);
  failure_ = {};
  failed_.store(false, std::memory_order_release);
  return true;
}

int64_t npu_stream::failure_time() {
  if (!has_failure()) return INT64_MAX;
  std::lock_guard<std::mutex> lock(failure_mutex_);
  return failure_.status == NPU_OK ? INT64_MAX : failure_time_;
}

void npu_stream::drop_queued(uint64_t up_to) {
  drop_until_.store(up_to, std::memory_order_release);
}

void npu_stream::stop_worker() {
  std::lock_guard<std::mutex> lock(submit);
  if (!worker_.joinable()) return;
  if (owner_pid_ != getpid()) {
    npu::driver::abandon(worker_);
    return;
  }
  stop_.store(true, std::memory_order_release);
  work_.notify();
  worker_.join();
}
