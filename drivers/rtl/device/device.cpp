#include "drivers/rtl/device/device.h"

#include <exception>
#include <utility>

using namespace rtl;

npu_device::npu_device(npu_instance* instance, uint32_t index, npu_addr window) : instance(instance), index(index) {
  processor = std::make_unique<Processor>(instance->boards.at(index)());
  const uint64_t size = processor->board().memory_size();
  scratch = Processor::kRingBytes;
  scratch_size = size / 4;
  const uint64_t first = (scratch + scratch_size + kAlignment - 1) / kAlignment * kAlignment;
  memory = std::make_unique<Memory>(window, first, size / kAlignment * kAlignment);
  worker_ = std::thread([this] { work(); });
}

npu_device::~npu_device() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    closing_ = true;
  }
  given_.notify_all();
  worker_.join();  // it leaves when the queue is empty
}

uint64_t npu_device::give(npu_stream* stream, std::string what, std::function<Failure()> run) {
  std::lock_guard<std::mutex> lock(mutex);
  queue_.push_back({streams.at(stream), std::move(what), std::move(run)});
  stream->last = ++submitted_;
  given_.notify_one();
  return submitted_;
}

namespace {

Failure run(Job& job) {
  Failure failure;
  try {
    failure = job.run();
  } catch (const BoardLost& why) {
    failure = {NPU_ERROR_DEVICE_LOST, why.what()};
  } catch (const std::exception& why) {
    failure = {NPU_ERROR_INTERNAL, why.what()};
  }
  if (failure.status != NPU_OK) failure.text = job.what + ": " + failure.text;
  return failure;
}

}  // namespace

void npu_device::work() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    given_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    const uint64_t seq = completed_ + 1;
    Failure failure;
    if (seq > dropped_) {
      lock.unlock();
      failure = run(job);
      lock.lock();
    }
    if (failure.status != NPU_OK && job.stream->failure.status == NPU_OK && seq > dropped_) {
      job.stream->failure = std::move(failure);
      job.stream->failed = seq;
    }
    job = {};
    completed_ = seq;
    done_.notify_all();
  }
}

bool npu_device::reached(uint64_t seq) {
  std::lock_guard<std::mutex> lock(mutex);
  return completed_ >= seq;
}

void npu_device::wait(uint64_t seq) {
  std::unique_lock<std::mutex> lock(mutex);
  done_.wait(lock, [&] { return completed_ >= seq; });
}

npu_status npu_device::wait_and_report(npu_stream* stream, uint64_t seq) {
  wait(seq);
  std::lock_guard<std::mutex> lock(mutex);
  if (stream->failure.status == NPU_OK || stream->failed > seq) return NPU_OK;
  const Failure failure = std::exchange(stream->failure, {});
  return error(failure.status, failure.text);
}

npu_status npu_device::synchronize() {
  uint64_t last;
  {
    std::lock_guard<std::mutex> lock(mutex);
    last = submitted_;
  }
  wait(last);
  std::lock_guard<std::mutex> lock(mutex);
  npu_stream* first = nullptr;
  for (const auto& [stream, owner] : streams)
    if (stream->failure.status != NPU_OK && (!first || stream->failed < first->failed)) first = stream;
  if (!first) return NPU_OK;
  const Failure failure = std::exchange(first->failure, {});
  return error(failure.status, failure.text);
}

npu_status npu_device::reset() {
  uint64_t last;
  {
    std::lock_guard<std::mutex> lock(mutex);
    last = dropped_ = submitted_;
  }
  wait(last);
  std::lock_guard<std::mutex> lock(mutex);
  for (const auto& [stream, owner] : streams) stream->failure = {};
  if (!queue_.empty() || completed_ != submitted_) return NPU_OK;  // the worker is at it again already
  const Failure failure = processor->reset();
  return failure.status == NPU_OK ? NPU_OK : error(failure.status, failure.text);
}

uint64_t npu_device::clock_ns() {
  Board& board = processor->board();
  board.settle();
  return (processor->counter(npu_hw::REG_CYCLES_LO) + board.hidden_cycles()) * 1000 / board.clock_mhz();
}
