// The objects behind the handles of the contract, other than streams.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/memory/access.h"
#include "drivers/cmodel/memory/memory.h"
#include "drivers/cmodel/runtime/options.h"
#include "drivers/cmodel/runtime/stream.h"
#include "drivers/cmodel/runtime/timing.h"
#include "support/driver/base.h"
#include "support/driver/functions.h"

namespace cmodel {

using npu::driver::error;
using npu::driver::set_error;

}  // namespace cmodel

struct npu_instance {
  cmodel::Options options;
  uint64_t number = 0;                     // of this instance in the process
  std::unique_ptr<cmodel::Timing> timing;  // with option chip
  std::mutex mutex;
  std::vector<npu_device*> devices;  // by index; null where closed

  std::vector<std::shared_ptr<npu_stream>> all_streams();
};

struct npu_event {
  npu_event(npu_device* device, bool timing) : device(device), timing(timing) {}

  npu_device* const device;
  const bool timing;

  // The last record: reached when `stream` has completed number `seq`. No stream: reached.
  std::mutex mutex;
  bool recorded = false;
  std::shared_ptr<npu_stream> stream;
  uint64_t seq = 0;
  std::shared_ptr<cmodel::Stamp> stamp;  // of a queued record
  int64_t time = 0;                      // of an inline one
};

struct npu_program {
  npu_device* const device;
  const uint64_t id;  // never used again in this process
  const uint32_t params;
  std::shared_ptr<const cmodel::Program> program;
  cmodel::ProgramAccess access;
};

struct npu_device {
  npu_device(npu_instance* instance, uint32_t index);
  ~npu_device();

  npu_instance* const instance;
  const uint32_t index;
  const cmodel::Options& options;
  cmodel::Memory memory;

  std::vector<std::shared_ptr<npu_stream>> live_streams();
  void wait_all();

  // What is left when the device closes.
  std::mutex objects;
  std::unordered_map<npu_stream*, std::shared_ptr<npu_stream>> streams;
  npu::driver::Owned<npu_event> events;
  npu::driver::Owned<npu_program> programs;
  npu::driver::PinnedMemory pinned;
};

namespace cmodel {

// Of the first open instance that has one; null: none has.
Timing* open_timing();

}  // namespace cmodel
