// The driver around a mutant: the template's memory, and queues of its own that a thread each empties. Bugs of
// lifetimes, order, events and failures are here, where a right driver does the right thing.
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "support/program/validate.h"
#include "tests/drivers/mutants/mutant.h"

extern "C" {
const npu_driver* template_driver_get(void);
void* template_memory(npu_stream* stream, npu_addr addr, uint64_t size);
npu_device* template_device(npu_stream* stream);
NPU_EXPORT const char* npu_mutants(void);
}

struct npu_program {
  std::shared_ptr<npu::Program> source;
  npu_program_desc borrowed{};  // a pointer into memory of the caller, which one bug keeps
};

namespace mutant {
namespace {

const npu_driver& base = *template_driver_get();

struct Failure {
  npu_status status = NPU_OK;
  std::string text;
  uint64_t number = 0;
};

struct Queue {
  npu_device* device = nullptr;
  std::deque<std::function<Failure()>> jobs;
  uint64_t given = 0, done = 0, dropped = 0;  // jobs up to `dropped` do nothing
  Failure failure;
  bool closing = false;
  std::thread worker;
};

struct Mark {
  std::shared_ptr<Queue> queue;
  uint64_t number = 0;
  bool reached = false;
  double time = 0;
};

struct Event {
  uint32_t flags = 0;
  std::shared_ptr<Mark> mark = {};
};

std::mutex lock;  // guards all below
std::condition_variable moved;
std::map<npu_stream*, std::shared_ptr<Queue>> queues;
std::map<npu_event*, Event> events;
std::map<std::string, std::shared_ptr<npu::Program>> by_name;
thread_local std::string text;
thread_local bool mine = false;
std::string shared_text;

using Guard = std::unique_lock<std::mutex>;

npu_status fail(npu_status status, const std::string& why) {
  text = has("error-text-empty") ? "" : why;
  shared_text = text;
  mine = true;
  return status;
}

const char* error_text() {
  if (has("error-text-shared")) return shared_text.c_str();
  return mine ? text.c_str() : base.error_text();
}

template <auto Member, class... Args>
npu_status forward(Args... args) {
  mine = false;
  const npu_status status = (base.*Member)(args...);
  if (status != NPU_OK) shared_text = base.error_text();
  return status;
}

void work(const std::shared_ptr<Queue>& queue) {
  Guard guard(lock);
  for (;;) {
    moved.wait(guard, [&] { return queue->closing || !queue->jobs.empty(); });
    if (queue->jobs.empty()) return;
    const std::function<Failure()> job = std::move(queue->jobs.front());
    queue->jobs.pop_front();
    const bool drop = queue->done < queue->dropped || (has("failure-stops-queue") && queue->failure.status != NPU_OK);
    guard.unlock();
    Failure failure = drop ? Failure{} : job();
    guard.lock();
    queue->done++;
    if (failure.status != NPU_OK && (queue->failure.status == NPU_OK || has("last-failure")) && !has("failure-lost")) {
      queue->failure = failure;
      queue->failure.number = queue->done;
    }
    moved.notify_all();
  }
}

void give(Queue& queue, std::function<Failure()> job) {
  queue.jobs.push_back(std::move(job));
  queue.given++;
  moved.notify_all();
}

void wait_for(Guard& guard, const Queue& queue, uint64_t number) {
  moved.wait(guard, [&] { return queue.done >= number; });
}

npu_status report(Queue& queue, uint64_t number) {
  const Failure failure = queue.failure;
  if (failure.status == NPU_OK || failure.number > number) return NPU_OK;
  if (!has("failure-twice")) queue.failure = {};
  return fail(failure.status, failure.text);
}

npu_status stream_create(npu_device* device, int32_t priority, npu_stream** out) {
  if (const npu_status status = base.stream_create(device, priority, out); status != NPU_OK) return status;
  auto queue = std::make_shared<Queue>();
  queue->device = device;
  queue->worker = std::thread(work, queue);
  Guard guard(lock);
  queues[*out] = queue;
  return NPU_OK;
}

void stop(const std::shared_ptr<Queue>& queue) {
  {
    Guard guard(lock);
    if (has("destroy-drops")) queue->given -= queue->jobs.size(), queue->jobs.clear();
    queue->closing = true;
    moved.notify_all();
  }
  queue->worker.join();
}

void stream_destroy(npu_stream* stream) {
  std::shared_ptr<Queue> queue;
  {
    Guard guard(lock);
    queue = queues[stream];
    queues.erase(stream);
  }
  stop(queue);
  base.stream_destroy(stream);
}

npu_status stream_query(npu_stream* stream) {
  Guard guard(lock);
  const Queue& queue = *queues[stream];
  return queue.done == queue.given || has("query-idle") ? NPU_OK : NPU_NOT_READY;
}

npu_status stream_synchronize(npu_stream* stream) {
  Guard guard(lock);
  const std::shared_ptr<Queue> queue = queues[stream];
  const uint64_t number = queue->given;
  if (!has("sync-returns")) wait_for(guard, *queue, number);
  if (has("failure-of-others"))
    for (auto& [other, one] : queues)
      if (one->failure.status != NPU_OK) return report(*one, one->given);
  return report(*queue, number);
}

std::vector<std::shared_ptr<Queue>> queues_of(npu_device* device) {
  std::vector<std::shared_ptr<Queue>> out;
  for (auto& [stream, queue] : queues)
    if (queue->device == device) out.push_back(queue);
  return out;
}

npu_status device_synchronize(npu_device* device) {
  Guard guard(lock);
  npu_status status = NPU_OK;
  for (const auto& queue : queues_of(device)) {
    wait_for(guard, *queue, queue->given);
    if (status == NPU_OK) status = report(*queue, queue->given);
    if (has("device-sync-one")) break;
    if (has("device-sync-drops")) queue->failure = {};
  }
  return status;
}

npu_status device_reset(npu_device* device) {
  Guard guard(lock);
  for (const auto& queue : queues_of(device)) queue->dropped = queue->given;
  moved.notify_all();  // what waits for an event goes on
  for (const auto& queue : queues_of(device)) {
    wait_for(guard, *queue, queue->given);
    if (!has("reset-keeps-failures")) queue->failure = {};
  }
  // A record that was dropped counts as reached.
  for (auto& [event, state] : events)
    if (state.mark && state.mark->queue->device == device) state.mark->reached = !has("reset-loses-events");
  moved.notify_all();
  return NPU_OK;
}

void device_close(npu_device* device) {
  std::vector<std::shared_ptr<Queue>> left;
  {
    Guard guard(lock);
    left = queues_of(device);
    for (auto at = queues.begin(); at != queues.end();) at = at->second->device == device ? queues.erase(at) : ++at;
  }
  for (const auto& queue : left) stop(queue);
  base.device_close(device);
}

npu_status event_create(npu_device* device, uint32_t flags, npu_event** out) {
  const npu_status status = base.event_create(device, flags, out);
  Guard guard(lock);
  if (status == NPU_OK) events[*out] = {flags};
  return status;
}

void event_destroy(npu_event* event) {
  Guard guard(lock);
  if (has("event-destroy-forgets") && events[event].mark) events[event].mark->reached = true, moved.notify_all();
  events.erase(event);
  base.event_destroy(event);
}

double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

npu_status event_record(npu_event* event, npu_stream* stream) {
  auto mark = std::make_shared<Mark>();
  Guard guard(lock);
  mark->queue = queues[stream];
  mark->number = mark->queue->given + 1;
  if (has("event-early")) mark->reached = true, mark->time = now();
  events[event].mark = mark;
  give(*mark->queue, [mark] {
    Guard inner(lock);
    mark->time = now();
    mark->reached = true;
    return Failure{};
  });
  return NPU_OK;
}

npu_status stream_wait_event(npu_stream* stream, npu_event* event) {
  Guard guard(lock);
  const std::shared_ptr<Mark> mark = events[event].mark;
  if (!mark || has("wait-ignored")) return NPU_OK;
  const std::shared_ptr<Queue> queue = queues[stream];
  give(*queue, [mark, queue, event] {
    Guard inner(lock);
    const auto reached = [&] {
      const auto latest = events.find(event);
      const bool other = has("wait-for-latest") && latest != events.end() && latest->second.mark;
      return other ? latest->second.mark->reached : mark->reached;
    };
    moved.wait(inner, [&] { return reached() || queue->closing || queue->done < queue->dropped; });
    return Failure{};
  });
  return NPU_OK;
}

npu_status event_query(npu_event* event) {
  Guard guard(lock);
  const auto& mark = events[event].mark;
  return !mark || mark->reached ? NPU_OK : NPU_NOT_READY;
}

npu_status event_synchronize(npu_event* event) {
  Guard guard(lock);
  const auto mark = events[event].mark;
  if (!mark) return NPU_OK;
  if (!has("event-sync-returns")) moved.wait(guard, [&] { return mark->reached; });
  return report(*mark->queue, has("event-reports-later") ? mark->queue->given : mark->number);
}

npu_status event_elapsed(npu_event* start, npu_event* end, double* out) {
  Guard guard(lock);
  const Event &a = events[start], &b = events[end];
  if (!(a.flags & b.flags & NPU_EVENT_TIMING) || !a.mark || !b.mark)
    return fail(NPU_ERROR_INVALID, "event_elapsed: expected two recorded events made with NPU_EVENT_TIMING");
  *out = has("elapsed-absolute") && b.mark->time < a.mark->time ? a.mark->time - b.mark->time
                                                                : b.mark->time - a.mark->time;
  return NPU_OK;
}

npu_status move(npu_stream* stream, void* to, const void* from, uint64_t size, bool wait) {
  if (has("copies-overtake")) return std::memmove(to, from, size), NPU_OK;
  Guard guard(lock);
  Queue& queue = *queues[stream];
  give(queue, [=] { return std::memmove(to, from, size), Failure{}; });
  if (wait) wait_for(guard, queue, queue.given);
  return NPU_OK;
}

npu_status copy_to_device(npu_stream* stream, npu_addr dst, const void* src, uint64_t size, uint32_t flags) {
  void* to = template_memory(stream, dst, size);
  if (!to || !src || size == 0) return forward<&npu_driver::copy_to_device>(stream, dst, src, size, flags);
  if ((flags & NPU_COPY_PINNED) || has("keeps-source")) return move(stream, to, src, size, false);
  auto staged = std::make_shared<std::string>(static_cast<const char*>(src), size);
  Guard guard(lock);
  give(*queues[stream], [=] { return std::memcpy(to, staged->data(), size), Failure{}; });
  return NPU_OK;
}

npu_status copy_to_host(npu_stream* stream, void* dst, npu_addr src, uint64_t size, uint32_t flags) {
  const void* from = template_memory(stream, src, size);
  if (!from || !dst || size == 0) return forward<&npu_driver::copy_to_host>(stream, dst, src, size, flags);
  return move(stream, dst, from, size, !(flags & NPU_COPY_PINNED) && !has("download-returns"));
}

npu_status copy_on_device(npu_stream* stream, npu_addr dst, npu_addr src, uint64_t size) {
  void* to = template_memory(stream, dst, size);
  const void* from = template_memory(stream, src, size);
  if (!to || !from || size == 0) return forward<&npu_driver::copy_on_device>(stream, dst, src, size);
  if (has("copy-forwards")) {
    Guard guard(lock);
    give(*queues[stream], [=] {
      for (uint64_t i = 0; i < size; i++) static_cast<volatile char*>(to)[i] = static_cast<const char*>(from)[i];
      return Failure{};
    });
    return NPU_OK;
  }
  return move(stream, to, from, size, false);
}

npu_status memory_free(npu_device* device, npu_addr addr) {
  return has("free-any") ? (base.memory_free(device, addr), NPU_OK) : forward<&npu_driver::memory_free>(device, addr);
}

npu_status memory_alloc(npu_device* device, uint64_t size, npu_addr* out) {
  const npu_status status =
      forward<&npu_driver::memory_alloc>(device, has("alloc-less") && size > 4096 ? size / 2 : size, out);
  return status;
}

npu_status properties(npu_device* device, npu_properties* out) {
  npu_properties whole{};
  whole.struct_size = sizeof whole;
  const npu_status status = base.device_properties(device, &whole);
  whole.commands = 0xff;
  const uint32_t size = out->struct_size;
  whole.struct_size = size;
  std::memcpy(out, &whole, has("properties-whole") ? sizeof whole : std::min<size_t>(size, sizeof whole));
  return status;
}

npu_status program_create(npu_device*, const npu_program_desc* desc, npu_program** out) {
  if (std::string broken = npu::validate(*desc); !broken.empty() && !has("program-unchecked"))
    return fail(NPU_ERROR_INVALID, broken);
  auto source = std::make_shared<npu::Program>(npu::Program::copy_of(*desc));
  Guard guard(lock);
  if (has("program-by-name")) {
    auto& kept = by_name[desc->name];
    if (!kept || kept->operand_count != source->operand_count || kept->param_count != source->param_count)
      kept = source;
    source = kept;
  }
  *out = new npu_program{source, *desc};
  return NPU_OK;
}

void program_destroy(npu_program* program) {
  if (has("program-destroyed-early")) program->source->instrs.clear();
  delete program;
}

npu_status supports(npu_device*, const npu_command* command) {
  return has("supports-less") && command->kind == NPU_SORT ? fail(NPU_UNSUPPORTED, "no SORT here") : NPU_OK;
}

std::string name_of(const npu_command& command) {
  return std::string(npu::command_name(command.kind)) + " (" + command.label + "): ";
}

Failure run(Work& work) {
  Failure failure;
  std::string why;
  if (has("crashes") && work.kind() == NPU_CONV) std::abort();
  if (has("hangs") && work.kind() == NPU_SCAN)
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  const std::string name = name_of(work.command);
  failure.status = current && current->run ? current->run(work, &why) : run_right(work, &why);
  failure.text = has("error-without-name") ? why : name + why;
  return failure;
}

npu_status submit(npu_stream* stream, const npu_command* command) {
  npu_program_desc desc{};
  if (command->program) desc = command->program->source->desc();
  const npu_program_desc* program = command->program ? &desc : nullptr;
  if (std::string broken = npu::validate_command(*command, program); !broken.empty())
    return fail(NPU_ERROR_INVALID, broken);
  auto made = std::make_shared<Work>();
  made->command = *command;
  if (command->operands) made->operands.assign(command->operands, command->operands + command->operand_count);
  if (command->params) made->params.assign(command->params, command->params + command->param_count);
  std::shared_ptr<npu::Program> source = command->program ? command->program->source : nullptr;
  const npu_program_desc borrowed = command->program ? command->program->borrowed : npu_program_desc{};
  const npu_operand* operands = command->operands;
  const npu_scalar* params = command->params;
  made->translate = [stream](npu_addr addr, uint64_t size, bool) { return template_memory(stream, addr, size); };
  Guard guard(lock);
  static std::vector<npu_scalar> last_params;
  if (has("params-of-the-last")) std::swap(last_params, made->params), made->params.resize(last_params.size());
  const auto job = [=] {
    if (has("keeps-params")) made->params.assign(params, params + made->params.size());
    if (has("keeps-operands")) made->operands.assign(operands, operands + made->operands.size());
    made->has_program = source != nullptr;
    if (source) made->program = has("keeps-instructions") ? npu::Program::copy_of(borrowed) : *source;
    return run(*made);
  };
  if (has("commands-overtake") && command->kind == NPU_MATMUL) return job(), NPU_OK;
  give(*queues[stream], job);
  return NPU_OK;
}

npu_status driver_open(const char* options, npu_instance** out) {
  const std::string wanted = options;
  current = nullptr;
  for (const Bug& bug : bugs())
    if (wanted == std::string("bug=") + bug.name) current = &bug;
  if (!wanted.empty() && !current)
    return fail(NPU_ERROR_INVALID, "expected bug=NAME of a known bug, got '" + wanted + "'");
  mine = false;
  return base.open("", out);
}

}  // namespace

}  // namespace mutant

using namespace mutant;

// For tests: a line for each bug, its parts between tabs.
const char* npu_mutants(void) {
  static const std::string all = [] {
    std::string out;
    for (const Bug& bug : bugs())
      out += std::string(bug.name) + "\t" + bug.command + "\t" + bug.what + "\t" + bug.looks + "\n";
    return out;
  }();
  return all.c_str();
}

const npu_driver* npu_driver_get(void) {
  static const npu_driver driver = [] {
    npu_driver d = base;
    d.name = "mutant";
    d.error_text = error_text;
    d.open = driver_open;
    d.device_open = forward<&npu_driver::device_open>;
    d.device_close = device_close;
    d.device_properties = properties;
    d.device_synchronize = device_synchronize;
    d.device_reset = device_reset;
    d.memory_alloc = memory_alloc;
    d.memory_free = memory_free;
    d.host_alloc = forward<&npu_driver::host_alloc>;
    d.host_free = forward<&npu_driver::host_free>;
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
    d.event_synchronize = event_synchronize;
    d.event_elapsed = event_elapsed;
    d.program_create = program_create;
    d.program_destroy = program_destroy;
    d.supports = supports;
    d.submit = submit;
    return d;
  }();
  return &driver;
}
