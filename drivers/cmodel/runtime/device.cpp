#include "drivers/cmodel/runtime/device.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <unordered_set>

#include "drivers/cmodel/threads/pool.h"

namespace cmodel {
namespace {

// Open instances, so that the end of the process finds the threads to stop. Never destroyed.
struct Instances {
  std::mutex mutex;
  std::unordered_set<npu_instance*> open;
  uint64_t count = 0;
  int pid = 0;
  static Instances& get() {
    static Instances* instances = new Instances;
    return *instances;
  }
};

// Runs when the library is unloaded and at exit. Nobody synchronised with what is still queued: it is dropped.
__attribute__((destructor)) void stop_threads() {
  Instances& instances = Instances::get();
  if (instances.pid != getpid()) return;  // never opened, or a forked child: the threads are the parent's
  std::vector<std::shared_ptr<npu_stream>> streams;
  {
    std::lock_guard<std::mutex> lock(instances.mutex);
    for (npu_instance* instance : instances.open)
      for (auto& stream : instance->all_streams()) streams.push_back(stream);
  }
  for (auto& stream : streams) stream->drop_queued(UINT64_MAX);
  for (auto& stream : streams) stream->wake_waiters();
  for (auto& stream : streams) stream->stop_worker();
  stop_pool();
}

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::invalid_argument("expected a file that can be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

Timing* open_timing() {
  Instances& instances = Instances::get();
  std::lock_guard<std::mutex> lock(instances.mutex);
  npu_instance* first = nullptr;
  for (npu_instance* instance : instances.open)
    if (instance->timing && (!first || instance->number < first->number)) first = instance;
  return first ? first->timing.get() : nullptr;
}

}  // namespace cmodel

using namespace cmodel;

namespace npu::driver {

npu_status open(const char* text, npu_instance** out) {
  if (!out) return null_pointer();
  auto instance = std::make_unique<npu_instance>();
  std::string why;
  if (!parse_options(text, &instance->options, &why)) return error(NPU_ERROR_INVALID, why);
  if (!instance->options.chip.empty()) {
    try {
      instance->timing = std::make_unique<Timing>(npu::parse_chip(file_text(instance->options.chip)));
    } catch (const std::invalid_argument& wrong) {
      return error(NPU_ERROR_INVALID, "chip " + instance->options.chip + ": " + wrong.what());
    }
  }
  instance->devices.resize(instance->options.devices);
  if (instance->options.threads > 0) set_pool_threads(instance->options.threads);
  Instances& instances = Instances::get();
  std::lock_guard<std::mutex> lock(instances.mutex);
  instance->number = instances.count++;
  instances.pid = getpid();
  instances.open.insert(instance.get());
  *out = instance.release();
  return NPU_OK;
}

void close(npu_instance* instance) {
  if (!instance) return;
  Instances& instances = Instances::get();
  {
    std::lock_guard<std::mutex> lock(instances.mutex);
    instances.open.erase(instance);
  }
  for (npu_device* device : instance->devices) delete device;
  delete instance;
}

npu_status device_open(npu_instance* instance, uint32_t index, npu_device** out) {
  if (!instance || !out) return null_pointer();
  std::lock_guard<std::mutex> lock(instance->mutex);
  if (const npu_status status = check_device(instance->devices, index); status != NPU_OK) return status;
  try {
    *out = instance->devices[index] = new npu_device(instance, index);
  } catch (const std::runtime_error& why) {
    return error(NPU_ERROR_MEMORY, why.what());
  }
  return NPU_OK;
}

void device_close(npu_device* device) {
  if (!device) return;
  device->wait_all();
  {
    std::lock_guard<std::mutex> lock(device->instance->mutex);
    device->instance->devices[device->index] = nullptr;
  }
  delete device;
}

npu_status device_synchronize(npu_device* device) {
  if (!device) return null_pointer();
  const auto streams = device->live_streams();
  npu_stream* first = nullptr;
  int64_t when = INT64_MAX;
  for (auto& stream : streams) stream->wait(stream->last_submitted());
  for (auto& stream : streams) {
    const int64_t time = stream->failure_time();
    if (time < when) when = time, first = stream.get();
  }
  Failure failure;
  if (first && first->take_failure(UINT64_MAX, &failure)) return error(failure.status, failure.text);
  return NPU_OK;
}

npu_status device_reset(npu_device* device) {
  if (!device) return null_pointer();
  const auto streams = device->live_streams();
  std::vector<uint64_t> last;
  for (auto& stream : streams) {
    last.push_back(stream->last_submitted());
    stream->drop_queued(last.back());
  }
  // A stream of this device may wait for an event of another one.
  for (auto& stream : device->instance->all_streams()) stream->wake_waiters();
  Failure dropped;
  for (size_t i = 0; i < streams.size(); ++i) {
    streams[i]->wait(last[i]);
    streams[i]->take_failure(UINT64_MAX, &dropped);
  }
  return NPU_OK;
}

}  // namespace npu::driver

std::vector<std::shared_ptr<npu_stream>> npu_instance::all_streams() {
  std::vector<std::shared_ptr<npu_stream>> all;
  std::lock_guard<std::mutex> lock(mutex);
  for (npu_device* device : devices) {
    if (!device) continue;
    for (auto& stream : device->live_streams()) all.push_back(std::move(stream));
  }
  return all;
}

// Instances differ in four bits of the default base, so that addresses of one are refused by another.
npu_device::npu_device(npu_instance* instance, uint32_t index)
    : instance(instance),
      index(index),
      options(instance->options),
      memory(options.regions, index,
             (static_cast<uint64_t>(index) << kDeviceShift) +
                 (options.regions[0].base == kDefaultBase ? (instance->number & 15) << 52 : 0)) {}

npu_device::~npu_device() {
  for (auto& [stream, owned] : streams) stream->stop_worker();
}

std::vector<std::shared_ptr<npu_stream>> npu_device::live_streams() {
  std::vector<std::shared_ptr<npu_stream>> all;
  std::lock_guard<std::mutex> lock(objects);
  all.reserve(streams.size());
  for (auto& [raw, stream] : streams) all.push_back(stream);
  return all;
}

void npu_device::wait_all() {
  for (auto& stream : live_streams()) stream->wait(stream->last_submitted());
}
