// A driver that runs every command with the reference, and fails one in the middle: command number `fail_at` of an
// instance (option fail_at=N, default 3; 0: never) is accepted and then reported as failed, as the contract asks, by
// the next synchronisation. With fail_at=0 it is docs/isa.md as a driver, which the driver test must find nothing wrong
// with.
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "npu/runtime.h"
#include "support/program/program.h"
#include "support/program/validate.h"
#include "support/reference/reference.h"

extern "C" {
const npu_driver* template_driver_get(void);
void* template_memory(npu_stream* stream, npu_addr addr, uint64_t size);
npu_device* template_device(npu_stream* stream);
}

struct npu_program {
  npu::Program source;
};

namespace {

const npu_driver& base = *template_driver_get();

struct Failure {
  npu_status status = NPU_OK;
  std::string text;
  uint64_t number = 0;
};

struct Mark {  // what an event saw when it was recorded
  npu_stream* stream = nullptr;
  uint64_t failures = 0;
};

std::mutex lock;  // guards all below; tests do not need more
std::map<npu_stream*, Failure> failures;
std::map<npu_event*, Mark> marks;
uint64_t failure_count = 0;
int64_t fail_at = 3, commands = 0;
thread_local std::string text;
thread_local bool mine = false;  // the last error of this thread is ours, not the template's

npu_status fail(npu_status status, const std::string& why) {
  text = why;
  mine = true;
  return status;
}

// Gives the stream's failure away, if it is one of the first `known`.
npu_status report(npu_stream* stream, uint64_t known) {
  auto found = failures.find(stream);
  if (found == failures.end() || found->second.number > known) return NPU_OK;
  const Failure failure = found->second;
  failures.erase(found);
  return fail(failure.status, failure.text);
}

const char* error_text() {
  if (mine) return text.c_str();
  return base.error_text();
}

// Every function of the template that can fail sets its own text: ours is then out of date.
template <auto Member, class... Args>
npu_status forward(Args... args) {
  mine = false;
  return (base.*Member)(args...);
}

npu_status driver_open(const char* options, npu_instance** out) {
  std::string rest = options;
  int64_t at = 3;
  if (size_t found = rest.find("fail_at="); found != std::string::npos) {
    at = std::stoll(rest.substr(found + 8));
    const size_t end = rest.find(':', found);
    rest.erase(found, end == std::string::npos ? end : end - found + 1);
  }
  if (!rest.empty() && rest.back() == ':') rest.pop_back();
  std::lock_guard guard(lock);
  fail_at = at;
  commands = 0;
  mine = false;
  return base.open(rest.c_str(), out);
}

npu_status properties(npu_device* device, npu_properties* out) {
  npu_status status = base.device_properties(device, out);
  if (out->struct_size >= offsetof(npu_properties, name) + sizeof out->name) {
    out->commands = 0xff;
    std::strncpy(out->name, "Failing", sizeof out->name - 1);
  }
  return status;
}

npu_status program_create(npu_device*, const npu_program_desc* desc, npu_program** out) {
  if (std::string broken = npu::validate(*desc); !broken.empty()) return fail(NPU_ERROR_INVALID, broken);
  *out = new npu_program{npu::Program::copy_of(*desc)};
  return NPU_OK;
}

void program_destroy(npu_program* program) {
  delete program;
}

npu_status supports(npu_device*, const npu_command*) {
  return NPU_OK;
}

npu_status submit(npu_stream* stream, const npu_command* command) {
  std::lock_guard guard(lock);
  npu_program_desc desc{};
  if (command->program) desc = command->program->source.desc();
  const npu_program_desc* program = command->program ? &desc : nullptr;
  if (std::string broken = npu::validate_command(*command, program); !broken.empty())
    return fail(NPU_ERROR_INVALID, broken);
  std::string why;
  const npu::Translate translate = [&](npu_addr addr, uint64_t size, bool) {
    return template_memory(stream, addr, size);
  };
  npu_status status = npu::run_reference(*command, program, translate, &why);
  if (++commands == fail_at) {
    status = NPU_ERROR_TIMEOUT;
    why = "expected an answer from the chip within 1 s, got none (the test driver fails command " +
          std::to_string(fail_at) + ")";
  }
  if (status == NPU_ERROR_INVALID || status == NPU_ERROR_ADDRESS)
    return fail(status, std::string(npu::command_name(command->kind)) + " (" + command->label + "): " + why);
  if (status != NPU_OK && !failures.count(stream))
    failures[stream] = {status, std::string(npu::command_name(command->kind)) + " (" + command->label + "): " + why,
                        ++failure_count};
  return NPU_OK;
}

npu_status stream_synchronize(npu_stream* stream) {
  std::lock_guard guard(lock);
  return report(stream, failure_count);
}

void stream_destroy(npu_stream* stream) {
  std::lock_guard guard(lock);
  failures.erase(stream);
  for (auto& [event, mark] : marks)
    if (mark.stream == stream) mark.stream = nullptr;
  base.stream_destroy(stream);
}

npu_status event_record(npu_event* event, npu_stream* stream) {
  std::lock_guard guard(lock);
  marks[event] = {stream, failure_count};
  return base.event_record(event, stream);
}

npu_status event_synchronize(npu_event* event) {
  std::lock_guard guard(lock);
  auto found = marks.find(event);
  return found == marks.end() || !found->second.stream ? NPU_OK : report(found->second.stream, found->second.failures);
}

void event_destroy(npu_event* event) {
  std::lock_guard guard(lock);
  marks.erase(event);
  base.event_destroy(event);
}

// The first failure; those of other streams are kept for later calls.
npu_status device_synchronize(npu_device* device) {
  std::lock_guard guard(lock);
  npu_stream* first = nullptr;
  for (const auto& [stream, failure] : failures)
    if (template_device(stream) == device && (!first || failure.number < failures[first].number)) first = stream;
  return first ? report(first, failure_count) : NPU_OK;
}

npu_status device_reset(npu_device* device) {
  std::lock_guard guard(lock);
  std::erase_if(failures, [&](const auto& one) { return template_device(one.first) == device; });
  return NPU_OK;
}

}  // namespace

const npu_driver* npu_driver_get(void) {
  static const npu_driver driver = [] {
    npu_driver d = base;
    d.name = "failing";
    d.error_text = error_text;
    d.open = driver_open;
    d.device_open = forward<&npu_driver::device_open>;
    d.memory_alloc = forward<&npu_driver::memory_alloc>;
    d.memory_free = forward<&npu_driver::memory_free>;
    d.host_alloc = forward<&npu_driver::host_alloc>;
    d.host_free = forward<&npu_driver::host_free>;
    d.copy_to_device = forward<&npu_driver::copy_to_device>;
    d.copy_to_host = forward<&npu_driver::copy_to_host>;
    d.copy_on_device = forward<&npu_driver::copy_on_device>;
    d.event_elapsed = forward<&npu_driver::event_elapsed>;
    d.device_properties = properties;
    d.device_synchronize = device_synchronize;
    d.device_reset = device_reset;
    d.stream_synchronize = stream_synchronize;
    d.stream_destroy = stream_destroy;
    d.event_record = event_record;
    d.event_synchronize = event_synchronize;
    d.event_destroy = event_destroy;
    d.program_create = program_create;
    d.program_destroy = program_destroy;
    d.supports = supports;
    d.submit = submit;
    return d;
  }();
  return &driver;
}
