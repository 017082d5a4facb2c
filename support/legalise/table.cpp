#include "support/legalise/table.h"

#include <array>
#include <unordered_map>

#include "support/legalise/stream_memory.h"

namespace npu::legalise {
namespace {

// What stands behind one device.
struct Behind {
  Behind(const npu_driver& driver, npu_device* device, Legaliser::FindProgram find, Legaliser::Tell tell)
      : memory(driver, device), legaliser(driver, device, memory, std::move(find), std::move(tell)) {}
  StreamMemory memory;
  Legaliser legaliser;
};

struct All {
  std::mutex mutex;
  std::unordered_map<npu_device*, std::unique_ptr<Behind>> devices;
  std::unordered_map<npu_stream*, npu_device*> streams;
  std::unordered_map<const npu_program*, std::shared_ptr<const Program>> programs;
  Legaliser::Tell tell;
};

// Never destroyed: a driver may be used while statics end.
All& all() {
  static auto* all = new All;
  return *all;
}

Behind* behind(npu_device* device) {
  std::lock_guard lock(all().mutex);
  const auto found = all().devices.find(device);
  return found == all().devices.end() ? nullptr : found->second.get();
}

Behind* behind(npu_stream* stream) {
  std::unique_lock lock(all().mutex);
  const auto found = all().streams.find(stream);
  if (found == all().streams.end()) return nullptr;
  npu_device* device = found->second;
  lock.unlock();
  return behind(device);
}

std::shared_ptr<const Program> find_program(const npu_program* handle) {
  std::lock_guard lock(all().mutex);
  const auto found = all().programs.find(handle);
  return found == all().programs.end() ? nullptr : found->second;
}

constexpr int kMost = 8;
std::array<const npu_driver*, kMost> g_drivers{};
std::array<npu_driver, kMost> g_tables{};

template <int Slot>
struct Table {
  static const npu_driver& driver() { return *g_drivers[Slot]; }

  static npu_status device_open(npu_instance* instance, uint32_t index, npu_device** out) {
    const npu_status status = driver().device_open(instance, index, out);
    if (status != NPU_OK) return status;
    std::lock_guard lock(all().mutex);
    all().devices[*out] = std::make_unique<Behind>(driver(), *out, find_program, all().tell);
    return status;
  }

  static void device_close(npu_device* device) {
    driver().device_synchronize(device);
    {
      std::lock_guard lock(all().mutex);
      all().devices.erase(device);
    }
    driver().device_close(device);
  }

  // A device with one command has, in part, those that are made from it.
  static npu_status device_properties(npu_device* device, npu_properties* out) {
    const npu_status status = driver().device_properties(device, out);
    if (status == NPU_OK && out->commands) out->commands = (1u << NPU_COMMAND_COUNT) - 1;
    return status;
  }

  static npu_status stream_create(npu_device* device, int32_t priority, npu_stream** out) {
    const npu_status status = driver().stream_create(device, priority, out);
    std::lock_guard lock(all().mutex);
    if (status == NPU_OK) all().streams[*out] = device;
    return status;
  }

  static void stream_destroy(npu_stream* stream) {
    Behind* const here = behind(stream);
    driver().stream_destroy(stream);
    if (here) here->memory.forget(stream);
    std::lock_guard lock(all().mutex);
    all().streams.erase(stream);
  }

  static npu_status program_create(npu_device* device, const npu_program_desc* desc, npu_program** out) {
    const npu_status status = driver().program_create(device, desc, out);
    Behind* const here = device && desc && out ? behind(device) : nullptr;
    if (status == NPU_UNSUPPORTED && here) return here->legaliser.program_create(*desc, out);
    std::lock_guard lock(all().mutex);
    if (status == NPU_OK) all().programs[*out] = std::make_shared<const Program>(Program::copy_of(*desc));
    return status;
  }

  static void program_destroy(npu_program* program) {
    if (const RefusedProgram* own = refused_program(program)) return Legaliser::program_destroy(own);
    {
      std::lock_guard lock(all().mutex);
      all().programs.erase(program);
    }
    driver().program_destroy(program);
  }

  static npu_status supports(npu_device* device, const npu_command* command) {
    npu_status status = NPU_UNSUPPORTED;
    if (!command || !refused_program(command->program)) status = driver().supports(device, command);
    Behind* const here = status == NPU_UNSUPPORTED ? behind(device) : nullptr;
    return here ? here->legaliser.supports(*command) : status;
  }

  static npu_status submit(npu_stream* stream, const npu_command* command) {
    npu_status status = NPU_UNSUPPORTED;
    if (!command || !refused_program(command->program)) status = driver().submit(stream, command);
    Behind* const here = status == NPU_UNSUPPORTED ? behind(stream) : nullptr;
    return here ? here->legaliser.submit(stream, *command) : status;
  }

  static npu_status choices(npu_device* device, const npu_command* command, npu_choice* out, uint32_t capacity,
                            uint32_t* count) {
    if (!command || !refused_program(command->program)) return driver().choices(device, command, out, capacity, count);
    *count = 0;
    return NPU_OK;
  }

  static npu_driver make() {
    npu_driver table = driver();
    table.device_open = device_open;
    table.device_close = device_close;
    table.device_properties = device_properties;
    table.stream_create = stream_create;
    table.stream_destroy = stream_destroy;
    table.program_create = program_create;
    table.program_destroy = program_destroy;
    table.supports = supports;
    table.submit = submit;
    if (table.abi_minor >= 1 && table.choices) table.choices = choices;
    return table;
  }
};

template <size_t... Slot>
npu_driver make_table(size_t wanted, std::index_sequence<Slot...>) {
  npu_driver table{};
  ((Slot == wanted ? void(table = Table<Slot>::make()) : void()), ...);
  return table;
}

}  // namespace

const npu_driver* legalised(const npu_driver* driver) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  for (size_t slot = 0; slot < kMost; ++slot) {
    if (g_drivers[slot] == driver) return &g_tables[slot];
    if (g_drivers[slot]) continue;
    g_drivers[slot] = driver;
    g_tables[slot] = make_table(slot, std::make_index_sequence<kMost>());
    return &g_tables[slot];
  }
  return nullptr;
}

void tell_decisions(Legaliser::Tell tell) {
  std::lock_guard lock(all().mutex);
  all().tell = std::move(tell);
}

}  // namespace npu::legalise
