#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "support/loading/driver_table.h"
#include "support/verify/wrapper_calls.h"

namespace npu {
namespace wrapping {

thread_local std::string last_error = "no error";

const char* error_text() {
  return last_error.c_str();
}

npu_status fail(npu_status status, std::string text) {
  last_error = std::move(text);
  return status;
}

npu_status give(Outcome outcome) {
  return outcome.status == NPU_OK ? NPU_OK : fail(outcome.status, std::move(outcome.text));
}

Outcome failed(const npu_device& device, size_t side, npu_status status) {
  const char* text = api(device, side).error_text();
  std::string line = text && *text ? text : "the driver gave no reason";
  const auto& sides = device.instance->sides;
  if (sides.size() > 1 && status != NPU_UNSUPPORTED) line = sides[side].spec + ": " + line;
  return {status, line};
}

npu_status answer(const npu_device& device, size_t side, npu_status status) {
  return status == NPU_OK ? NPU_OK : give(failed(device, side, status));
}

Outcome waited(const npu_stream& stream, size_t side, npu_status status) {
  if (status == NPU_OK) status = api(*stream.device, side).stream_synchronize(stream.inner[side]);
  return status == NPU_OK ? Outcome{} : failed(*stream.device, side, status);
}

}  // namespace wrapping

namespace {

using namespace wrapping;

std::mutex instances_lock;
std::vector<npu_instance*> instances;  // open ones

npu_status open(const char* options, npu_instance** out) {
  auto made = std::make_unique<npu_instance>();
  try {
    made->options = options;
    made->watcher = make_watcher(options);
    for (const std::string& spec : made->watcher->sides) {
      made->sides.push_back(open_driver(spec));
      const uint32_t devices = made->sides.back().devices;
      made->devices = made->sides.size() == 1 ? devices : std::min(made->devices, devices);
    }
  } catch (const std::exception& problem) {
    for (const OpenedDriver& side : made->sides) side.api->close(side.instance);
    return fail(NPU_ERROR_INVALID, problem.what());
  }
  std::lock_guard guard(instances_lock);
  instances.push_back(made.get());
  *out = made.release();
  return NPU_OK;
}

void close(npu_instance* instance) {
  {
    std::lock_guard guard(instances_lock);
    std::erase(instances, instance);
  }
  for (const OpenedDriver& side : instance->sides) side.api->close(side.instance);
  delete instance;
}

npu_status device_count(npu_instance* instance, uint32_t* out) {
  *out = instance->devices;
  return NPU_OK;
}

npu_status stream_create(npu_device* device, int32_t priority, npu_stream** out) {
  Guard guard(device->lock);
  auto made = std::make_unique<npu_stream>();
  made->device = device;
  for (size_t side = 0; side < device->inner.size(); ++side) {
    npu_stream* inner = nullptr;
    // Priorities are those of side 0.
    const npu_status status = api(*device, side).stream_create(device->inner[side], side ? 0 : priority, &inner);
    if (status != NPU_OK) {
      const Outcome outcome = failed(*device, side, status);
      for (size_t k = 0; k < side; ++k) api(*device, k).stream_destroy(made->inner[k]);
      return give(outcome);
    }
    made->inner.push_back(inner);
  }
  device->streams.insert(made.get());
  *out = made.release();
  return NPU_OK;
}

void stream_destroy(npu_stream* stream) {
  npu_device* device = stream->device;
  Guard guard(device->lock);
  for (size_t side = 0; side < stream->inner.size(); ++side) api(*device, side).stream_destroy(stream->inner[side]);
  device->streams.erase(stream);
  delete stream;
}

void event_destroy(npu_event* event) {
  npu_device* device = event->device;
  Guard guard(device->lock);
  api(*device, 0).event_destroy(event->inner);
  device->events.erase(event);
  delete event;
}

void program_destroy(npu_program* program) {
  if (!program) return;
  npu_device* device = program->device;
  Guard guard(device->lock);
  for (size_t side = 0; side < program->inner.size(); ++side)
    if (program->inner[side]) api(*device, side).program_destroy(program->inner[side]);
  device->made.erase(program);
  delete program;
}

void device_close(npu_device* device) {
  {
    Guard guard(device->lock);
    if (device->inner.size() == device->instance->sides.size()) watcher(*device).closed(*device);
    while (!device->made.empty()) program_destroy(*device->made.begin());
    while (!device->events.empty()) event_destroy(*device->events.begin());
    while (!device->streams.empty()) stream_destroy(*device->streams.begin());
    for (size_t side = 0; side < device->inner.size(); ++side) api(*device, side).device_close(device->inner[side]);
  }
  delete device;
}

npu_status device_open(npu_instance* instance, uint32_t index, npu_device** out) {
  if (index >= instance->devices)
    return fail(NPU_ERROR_INVALID, "device_open: expected an index below " + std::to_string(instance->devices) +
                                       ", got " + std::to_string(index));
  auto* device = new npu_device;
  device->instance = instance;
  device->index = index;
  for (size_t side = 0; side < instance->sides.size(); ++side) {
    npu_device* inner = nullptr;
    const npu_status status = api(*device, side).device_open(instance->sides[side].instance, index, &inner);
    if (status != NPU_OK) {
      const Outcome outcome = failed(*device, side, status);
      device_close(device);
      return give(outcome);
    }
    device->inner.push_back(inner);
  }
  if (const npu_status status = stream_create(device, 0, &device->own); status != NPU_OK) {
    const std::string text = error_text();
    device_close(device);
    return fail(status, text);
  }
  *out = device;
  return NPU_OK;
}

npu_status device_properties(npu_device* device, npu_properties* out) {
  Guard guard(device->lock);
  npu_properties all{}, one{};
  std::string name = std::string(wrapper_name) + " of ";
  for (size_t side = 0; side < device->inner.size(); ++side) {
    one = {};
    one.struct_size = sizeof one;
    const npu_status status = api(*device, side).device_properties(device->inner[side], &one);
    if (status != NPU_OK) return give(failed(*device, side, status));
    const uint64_t least = side ? std::min(all.total_memory, one.total_memory) : one.total_memory;
    name += (side ? " and " : "") + std::string(one.name, strnlen(one.name, sizeof one.name));
    if (side == 0) all = one;
    all.total_memory = least;
  }
  all.struct_size = out->struct_size;
  std::memset(all.name, 0, sizeof all.name);
  std::memcpy(all.name, name.c_str(), std::min(name.size(), sizeof all.name - 1));
  std::memcpy(out, &all, std::min<size_t>(out->struct_size, sizeof all));
  return NPU_OK;
}

template <auto Function>
npu_status every_side(npu_device* device) {
  Outcome first;
  for (size_t side = 0; side < device->inner.size(); ++side) {
    const npu_status status = (api(*device, side).*Function)(device->inner[side]);
    if (status != NPU_OK && first.status == NPU_OK) first = failed(*device, side, status);
  }
  return give(first);
}

npu_status device_synchronize(npu_device* device) {
  Guard guard(device->lock);
  return every_side<&npu_driver::device_synchronize>(device);
}

// Without the lock: who holds it may wait for a side that hangs, and this is what ends that.
npu_status device_reset(npu_device* device) {
  return every_side<&npu_driver::device_reset>(device);
}

npu_status stream_query(npu_stream*) {
  return NPU_OK;  // nothing is ever left to do
}

npu_status stream_synchronize(npu_stream* stream) {
  Guard guard(stream->device->lock);
  for (size_t side = 0; side < stream->inner.size(); ++side)
    if (const Outcome outcome = waited(*stream, side, NPU_OK); outcome.status != NPU_OK) return give(outcome);
  return NPU_OK;
}

npu_status stream_wait_event(npu_stream*, npu_event*) {
  return NPU_OK;
}

npu_status event_create(npu_device* device, uint32_t flags, npu_event** out) {
  Guard guard(device->lock);
  auto made = std::make_unique<npu_event>();
  made->device = device;
  const npu_status status = api(*device, 0).event_create(device->inner[0], flags, &made->inner);
  if (status != NPU_OK) return give(failed(*device, 0, status));
  device->events.insert(made.get());
  *out = made.release();
  return NPU_OK;
}

npu_status event_record(npu_event* event, npu_stream* stream) {
  Guard guard(stream->device->lock);
  return give(waited(*stream, 0, api(*stream->device, 0).event_record(event->inner, stream->inner[0])));
}

npu_status event_query(npu_event*) {
  return NPU_OK;
}

npu_status event_elapsed(npu_event* start, npu_event* end, double* out) {
  Guard guard(start->device->lock);
  const npu_status status = api(*start->device, 0).event_elapsed(start->inner, end->inner, out);
  return answer(*start->device, 0, status);
}

npu_status program_create(npu_device* device, const npu_program_desc* desc, npu_program** out) {
  Guard guard(device->lock);
  auto made = std::make_unique<npu_program>();
  made->device = device;
  Outcome outcome;
  for (size_t side = 0; side < device->inner.size() && outcome.status == NPU_OK; ++side) {
    npu_program* inner = nullptr;
    const npu_status status = api(*device, side).program_create(device->inner[side], desc, &inner);
    // What only the reference lacks, docs/isa.md itself computes (lockstep).
    if (status != NPU_OK && !(side > 0 && status == NPU_UNSUPPORTED)) outcome = failed(*device, side, status);
    made->inner.push_back(status == NPU_OK ? inner : nullptr);
  }
  if (outcome.status != NPU_OK) {
    for (size_t side = 0; side < made->inner.size(); ++side)
      if (made->inner[side]) api(*device, side).program_destroy(made->inner[side]);
    return give(outcome);
  }
  made->source = Program::copy_of(*desc);
  made->number = ++device->programs;
  device->made.insert(made.get());
  *out = made.release();
  return NPU_OK;
}

npu_status supports(npu_device* device, const npu_command* command) {
  Guard guard(device->lock);
  npu_command inner = *command;
  if (command->program) inner.program = command->program->inner[0];
  const npu_status status = api(*device, 0).supports(device->inner[0], &inner);
  return answer(*device, 0, status);
}

npu_status choices(npu_device* device, const npu_command* command, npu_choice* out, uint32_t capacity,
                   uint32_t* count) {
  Guard guard(device->lock);
  *count = 0;
  const auto inner_choices = choices_of(api(*device, 0));
  if (!inner_choices) return NPU_OK;
  npu_command inner = *command;
  if (command->program) inner.program = command->program->inner[0];
  const npu_status status = inner_choices(device->inner[0], &inner, out, capacity, count);
  return answer(*device, 0, status);
}

npu_status submit(npu_stream* stream, const npu_command* command) {
  npu_device& device = *stream->device;
  Guard guard(device.lock);
  Launch launch;
  launch.stream = stream;
  launch.command = command;
  if (command->program) {
    launch.desc = command->program->source.desc();
    launch.program = &launch.desc;
  }
  // A command that breaks a rule may have fields that make no sense: side 0 says so, and its text is the answer.
  if (command->kind >= NPU_COMMAND_COUNT || command->rank > NPU_MAX_RANK || !command->operands ||
      command->inner_rank > command->rank || command->operand_count > NPU_MAX_OPERANDS)
    return give(submit_to(launch, 0, *command));
  launch.number = device.commands + 1;
  launch.regions = footprint(*command, launch.program, [&](npu_addr addr) { return device.mirror.allocation(addr); });
  for (const Region& region : launch.regions)  // watchers may look a little around them
    if (const Outcome ready = prepare(device, region.addr, region.size + 256); ready.status != NPU_OK)
      return give(ready);
  const Outcome outcome = watcher(device).run(launch);
  if (outcome.status != NPU_UNSUPPORTED) ++device.commands;
  return give(outcome);
}

npu_instance* instance_of(const char* options) {
  for (size_t k = instances.size(); k-- > 0;)
    if (instances[k]->options == options) return instances[k];
  return nullptr;
}

}  // namespace

Outcome submit_to(const Launch& launch, size_t side, const npu_command& command) {
  const npu_device& device = launch.device();
  npu_command inner = command;
  if (side > 0) inner.choice = 0;  // choices are those of side 0
  std::vector<npu_operand> operands;
  if (command.operands) {
    operands.assign(command.operands, command.operands + command.operand_count);
    for (npu_operand& operand : operands)
      if (!(operand.flags & NPU_OPERAND_IMMEDIATE)) operand.addr = device.mirror.on(side, operand.addr);
    inner.operands = operands.data();
  }
  if (command.program) {
    inner.program = command.program->inner[side];
    if (!inner.program) return {NPU_UNSUPPORTED, "the program is not supported"};
  }
  return waited(*launch.stream, side, api(device, side).submit(launch.stream->inner[side], &inner));
}

Outcome read_side(npu_stream& stream, size_t side, npu_addr addr, void* to, uint64_t size) {
  const npu_device& device = *stream.device;
  return waited(stream, side,
                api(device, side).copy_to_host(stream.inner[side], to, device.mirror.on(side, addr), size, 0));
}

Outcome write_side(npu_stream& stream, size_t side, npu_addr addr, const void* from, uint64_t size) {
  const npu_device& device = *stream.device;
  return waited(stream, side,
                api(device, side).copy_to_device(stream.inner[side], device.mirror.on(side, addr), from, size, 0));
}

}  // namespace npu

const char* npu_wrapper_report(const char* options) {
  thread_local std::string text;
  std::lock_guard guard(npu::instances_lock);
  npu_instance* instance = npu::instance_of(options);
  if (!instance) return nullptr;
  text = instance->watcher->report();
  return text.c_str();
}

void npu_wrapper_restart(const char* options) {
  std::lock_guard guard(npu::instances_lock);
  if (npu_instance* instance = npu::instance_of(options)) instance->watcher->restart();
}

const npu_driver* npu_driver_get(void) {
  using namespace npu;
  static const npu_driver driver = [] {
    npu_driver d{};
    d.abi_major = NPU_ABI_MAJOR;
    d.abi_minor = NPU_ABI_MINOR;
    d.struct_size = sizeof d;
    d.name = wrapper_name;
    d.version = "1.0";
    d.error_text = error_text;
    d.open = open;
    d.close = close;
    d.device_count = device_count;
    d.device_open = device_open;
    d.device_close = device_close;
    d.device_properties = device_properties;
    d.device_synchronize = device_synchronize;
    d.device_reset = device_reset;
    d.memory_info = memory_info;
    d.memory_alloc = memory_alloc;
    d.memory_free = memory_free;
    d.host_alloc = host_alloc;
    d.host_free = host_free;
    d.copy_to_device = copy_to_device;
    d.copy_to_host = copy_to_host;
    d.copy_on_device = copy_on_device;
    d.stream_create = stream_create;
    d.stream_destroy = stream_destroy;
    d.stream_query = stream_query;
    d.stream_synchronize = stream_synchronize;
    d.stream_wait_event = stream_wait_event;
    d.event_create = event_create;
    d.event_destroy = event_destroy;
    d.event_record = event_record;
    d.event_query = event_query;
    d.event_synchronize = event_query;
    d.event_elapsed = event_elapsed;
    d.program_create = program_create;
    d.program_destroy = program_destroy;
    d.supports = supports;
    d.submit = submit;
    d.choices = choices;
    return d;
  }();
  return &driver;
}
