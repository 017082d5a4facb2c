// The objects behind the handles of the contract. A device has one queue, in the order in which work was given to any
// of its streams: that order keeps every promise about streams and events, and there is one NPU to run it anyway.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "drivers/rtl/board/transport.h"
#include "drivers/rtl/device/memory.h"
#include "drivers/rtl/device/processor.h"
#include "support/driver/base.h"
#include "support/driver/functions.h"
#include "support/program/program.h"

namespace rtl {

using npu::driver::error;
using npu::driver::set_error;

struct Job {
  std::shared_ptr<npu_stream> stream;
  std::string what;  // begins the text of its failure
  std::function<Failure()> run;
};

}  // namespace rtl

struct npu_instance {
  std::vector<rtl::OpenBoard> boards;
  uint64_t number = 0;
  std::mutex mutex;
  std::vector<npu_device*> devices;  // by index; null where closed
};

struct npu_stream {
  explicit npu_stream(npu_device* d) : device(d) {}
  npu_device* const device;
  uint64_t last = 0;     // number of its last piece of work; under the device's mutex, as the failure
  rtl::Failure failure;  // the first one that nobody was told of
  uint64_t failed = 0;   // the work that failed
};

struct npu_event {
  npu_event(npu_device* d, bool takes_times) : device(d), timing(takes_times) {}
  npu_device* const device;
  const bool timing;
  std::mutex mutex;
  std::shared_ptr<npu_stream> stream;  // of the last record; null: never
  uint64_t seq = 0;
  std::shared_ptr<std::atomic<uint64_t>> time;  // nanoseconds of the NPU's clock
};

struct npu_program {
  npu_device* const device;
  const npu::Program program;
};

struct npu_device {
  npu_device(npu_instance* instance, uint32_t index, npu_addr window);
  ~npu_device();

  // Queues work and gives its number. Nothing in it is called once the queue has been dropped.
  uint64_t give(npu_stream* stream, std::string what, std::function<rtl::Failure()> run);
  void wait(uint64_t seq);
  bool reached(uint64_t seq);
  // Waits, then hands out the stream's failure if it belongs to work up to `seq`.
  npu_status wait_and_report(npu_stream* stream, uint64_t seq);
  npu_status synchronize();
  npu_status reset();
  uint64_t clock_ns();  // only on the worker

  npu_instance* const instance;
  const uint32_t index;
  std::unique_ptr<rtl::Processor> processor;  // used by the worker only
  uint64_t scratch, scratch_size;             // device memory for the values between the packets of one command
  std::unique_ptr<rtl::Memory> memory;

  npu::driver::Owned<npu_event> events;
  npu::driver::Owned<npu_program> programs;
  npu::driver::PinnedMemory pinned;

  std::mutex mutex;  // guards all below
  std::unordered_map<npu_stream*, std::shared_ptr<npu_stream>> streams;

 private:
  void work();
  std::condition_variable given_, done_;
  std::deque<rtl::Job> queue_;
  uint64_t submitted_ = 0, completed_ = 0, dropped_ = 0;
  bool closing_ = false;
  std::thread worker_;
};
