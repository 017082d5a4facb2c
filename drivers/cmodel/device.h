// The objects behind the handles of the contract, other than streams.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "drivers/cmodel/access.h"
#include "drivers/cmodel/job.h"
#include "drivers/cmodel/memory.h"
#include "drivers/cmodel/options.h"
#include "drivers/cmodel/stream.h"
#include "drivers/cmodel/timing.h"

namespace cmodel {

// The text of the last error on this thread.
void set_error(const std::string& text);
const char* error_text();
// Sets the text and passes the status through.
npu_status error(npu_status status, const std::string& text);

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
  std::unordered_set<npu_event*> events;
  std::unordered_set<npu_program*> programs;
  std::unordered_set<void*> pinned;
};

namespace cmodel {

// Of the first open instance that has one; null: none has.
Timing* open_timing();

// Entries of the driver's table, by file.
npu_status open_instance(const char* options, npu_instance** out);
void close_instance(npu_instance* instance);
npu_status open_device(npu_instance* instance, uint32_t index, npu_device** out);
void close_device(npu_device* device);
npu_status synchronize_device(npu_device* device);
npu_status reset_device(npu_device* device);

npu_status copy_to_device(npu_stream* stream, npu_addr dst, const void* src, uint64_t size, uint32_t flags);
npu_status copy_to_host(npu_stream* stream, void* dst, npu_addr src, uint64_t size, uint32_t flags);
npu_status copy_on_device(npu_stream* stream, npu_addr dst, npu_addr src, uint64_t size);

npu_status wait_event(npu_stream* stream, npu_event* event);
npu_status create_event(npu_device* device, uint32_t flags, npu_event** out);
void destroy_event(npu_event* event);
npu_status record_event(npu_event* event, npu_stream* stream);
npu_status query_event(npu_event* event);
npu_status synchronize_event(npu_event* event);
npu_status elapsed(npu_event* start, npu_event* end, double* out);
npu_status synchronize_stream(npu_stream* stream);

npu_status create_program(npu_device* device, const npu_program_desc* desc, npu_program** out);
void destroy_program(npu_program* program);
npu_status supports(npu_device* device, const npu_command* command);
npu_status list_choices(npu_device* device, const npu_command* command, npu_choice* out, uint32_t capacity,
                        uint32_t* count);
npu_status submit(npu_stream* stream, const npu_command* command);

}  // namespace cmodel
