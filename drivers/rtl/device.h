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
#include <unordered_set>
#include <vector>

#include "drivers/rtl/memory.h"
#include "drivers/rtl/processor.h"
#include "drivers/rtl/simulation.h"
#include "support/program.h"

namespace rtl {

void set_error(const std::string& text);
const char* error_text();
npu_status error(npu_status status, const std::string& text);

struct Job {
  std::shared_ptr<npu_stream> stream;
  std::function<Failure()> run;
};

constexpr uint32_t kClockMhz = 200;  // what simulated time is reported at

}  // namespace rtl

struct npu_instance {
  rtl::SimulationOptions options;
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
  npu_device* const device;
  const bool timing;
  std::mutex mutex;
  std::shared_ptr<npu_stream> stream;  // of the last record; null: never
  uint64_t seq = 0;
  std::shared_ptr<std::atomic<uint64_t>> time;  // nanoseconds of simulated time
};

struct npu_program {
  npu_device* const device;
  const npu::Program program;
};

struct npu_device {
  npu_device(npu_instance* instance, uint32_t index, npu_addr window);
  ~npu_device();

  // Queues work and gives its number. Nothing in it is called once the queue has been dropped.
  uint64_t give(npu_stream* stream, std::function<rtl::Failure()> run);
  void wait(uint64_t seq);
  bool reached(uint64_t seq);
  // Waits, then hands out the stream's failure if it belongs to work up to `seq`.
  npu_status wait_and_report(npu_stream* stream, uint64_t seq);
  npu_status synchronize();
  npu_status reset();
  uint64_t simulated_ns();  // only on the worker

  npu_instance* const instance;
  const uint32_t index;
  std::unique_ptr<rtl::Processor> processor;  // used by the worker only
  uint64_t scratch, scratch_size;             // device memory for the values between the packets of one command
  std::unique_ptr<rtl::Memory> memory;
  uint64_t host_lines = 0;  // that host copies moved; the worker's, as the processor

  std::mutex mutex;  // guards all below
  std::unordered_map<npu_stream*, std::shared_ptr<npu_stream>> streams;
  std::unordered_set<npu_event*> events;
  std::unordered_set<npu_program*> programs;
  std::unordered_set<void*> pinned;

 private:
  void work();
  std::condition_variable given_, done_;
  std::deque<rtl::Job> queue_;
  uint64_t submitted_ = 0, completed_ = 0, dropped_ = 0;
  bool closing_ = false;
  std::thread worker_;
};

namespace rtl {

// Entries of the driver's table, by file.
npu_status copy_to_device(npu_stream* stream, npu_addr dst, const void* src, uint64_t size, uint32_t flags);
npu_status copy_to_host(npu_stream* stream, void* dst, npu_addr src, uint64_t size, uint32_t flags);
npu_status copy_on_device(npu_stream* stream, npu_addr dst, npu_addr src, uint64_t size);
npu_status create_event(npu_device* device, uint32_t flags, npu_event** out);
void destroy_event(npu_event* event);
npu_status record_event(npu_event* event, npu_stream* stream);
npu_status wait_event(npu_stream* stream, npu_event* event);
npu_status query_event(npu_event* event);
npu_status synchronize_event(npu_event* event);
npu_status elapsed(npu_event* start, npu_event* end, double* out);
npu_status create_program(npu_device* device, const npu_program_desc* desc, npu_program** out);
void destroy_program(npu_program* program);
npu_status supports(npu_device* device, const npu_command* command);
npu_status submit(npu_stream* stream, const npu_command* command);

}  // namespace rtl
