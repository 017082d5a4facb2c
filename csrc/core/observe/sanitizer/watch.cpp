// What is asked of the drivers: checked before the call, and noted behind it.
#include <string_view>

#include "csrc/core/device/device.h"
#include "csrc/core/device/internal.h"
#include "csrc/core/memory/quarantine.h"
#include "csrc/core/observe/sanitizer/report.h"
#include "csrc/core/observe/sanitizer/state.h"
#include "support/program/program.h"

namespace torch_npu::sanitizer {
namespace {

constexpr size_t kMostPinned = 4096;  // copies of a program that never waits; the oldest are forgotten

bool is_copy_command(const DriverCall& call) {
  return call.command && call.command->kind == NPU_COPY;
}

std::string name_of(const DriverCall& call) {
  if (call.command) return call.command->label ? call.command->label : npu::command_name(call.command->kind);
  const std::string_view function(call.function);
  return named(function == "copy_to_host"     ? "a copy to the host"
               : function == "copy_to_device" ? "a copy from the host"
                                              : "a copy on the device");
}

ReadMemory reader_for(const DriverCall& call) {
  return [&call](npu_addr addr, uint64_t size, void* out) {
    return call.api->copy_to_host(call.stream, out, addr, size, 0) == NPU_OK;
  };
}

std::vector<Touch> touches_of_call(const DriverCall& call, const npu_program_desc* program) {
  if (call.command) return touches_of(*call.command, program, reader_for(call));
  const std::string_view function(call.function);
  const Run run{call.addr, call.addr + call.size};
  if (call.size == 0) return {};
  if (function == "copy_on_device") {
    return {{1, false, false, Bytes(Run{call.source, call.source + call.size})}, {0, true, false, Bytes(run)}};
  }
  const Bytes* elements = this_thread().elements;
  return {{0, function == "copy_to_device", false, elements ? *elements : Bytes(run)}};
}

npu_addr base_of(const DriverCall& call, uint32_t operand) {
  if (call.command) return call.command->operands[operand].addr;
  return operand == 1 ? call.source : call.addr;
}

// The mutex is held. The touch at fault goes to `place`.
std::optional<Fault> check(const DriverCall& call, const Work& work, bool in_replay, size_t* place) {
  State& all = state();
  const Shadow& shadow = all.shadows[work.device];
  const uint32_t checks = all.options.checks;
  // Copying what nobody wrote is no use of it: see Shadow::copied.
  const bool moves = is_copy_command(call) || std::string_view(call.function) == "copy_on_device";
  const Clock& now = all.order.now(work.stream);
  for (size_t k = 0; k < work.touches.size(); ++k) {
    const Touch& touch = work.touches[k];
    std::optional<Fault> fault;
    if (checks & kMemory) fault = shadow.check_memory(touch, base_of(call, touch.operand), in_replay);
    if (!fault && (checks & kInit) && !moves) {
      fault = shadow.check_written(touch, work.touches.data(), k, in_replay);
    }
    if (!fault && (checks & kRace)) fault = shadow.check_race(touch, now);
    *place = k;
    if (fault) return fault;
  }
  return std::nullopt;
}

// A program that chooses between values, as torch.where and masked_fill do, uses what it chooses. Asked only where it
// could choose what nobody has written: the conditions have to be computed.
void look_at_choices(const DriverCall& call, const npu_program_desc& program, Work& work, Touch& touch) {
  touch.used = used_bytes(*call.command, program, reader_for(call), touch);
  if (!work.unwritten.empty()) return;
  work.unwritten = unwritten_results(*call.command, program, reader_for(call), [&](Run element) {
    std::lock_guard lock(state().mutex);
    return state().shadows[work.device].is_written(Bytes(element));
  });
}

// Returns whether there is work to be told of when the call has succeeded.
bool begin(const DriverCall& call) {
  Thread& thread = this_thread();
  const auto stream = find_stream(call.stream);
  if (!stream) return false;  // of somebody who uses a driver past us
  Work work;
  work.device = stream->device_index();
  work.record = thread.replay ? nullptr : make_record(name_of(call), call.stream);
  if (thread.replay) {
    auto record = std::make_shared<Record>(*thread.replay);
    record->what = name_of(call);
    record->stream = stream->device().str() + " stream " + std::to_string(stream->id());
    work.record = std::move(record);
  }
  const auto program = call.command && call.command->program ? program_of(call.command->program) : nullptr;
  const npu_program_desc desc = program ? program->desc() : npu_program_desc{};
  work.touches = touches_of_call(call, program ? &desc : nullptr);
  std::optional<Fault> fault;
  bool raises = false;
  while (true) {
    size_t place = 0;
    {
      State& all = state();
      std::lock_guard lock(all.mutex);
      work.generation = all.generation;
      work.stream = all.order.stream(call.stream, work.device);
      fault = check(call, work, thread.replay != nullptr, &place);
      raises = all.options.raises;
    }
    if (!fault || fault->kind != Fault::kUnwritten) break;
    Touch& touch = work.touches[place];
    if (!touch.is_choice || touch.used) break;
    look_at_choices(call, desc, work, touch);
  }
  if (fault && fault->kind == Fault::kNoTensor && fault->touched.begin != 0 &&
      !is_cached_memory(work.device, fault->bytes.begin)) {
    fault.reset();  // memory of another allocator, which is not followed
  }
  if (fault) deliver(describe(*fault, *work.record, call.command), raises);
  thread.work = std::move(work);
  return true;
}

void end(const DriverCall& call) {
  Work work = std::move(*this_thread().work);
  this_thread().work.reset();
  State& all = state();
  std::lock_guard lock(all.mutex);
  // Off meanwhile, and perhaps on again: the stream's number is of an order that is gone.
  if (all.options.checks == 0 || work.generation != all.generation) return;
  Shadow& shadow = all.shadows[work.device];
  const Clock& now = all.order.now(work.stream);
  const std::string_view function(call.function);
  if (all.options.checks & kRace) {
    const Stamp stamp = all.order.step(work.stream);
    for (const Touch& touch : work.touches) shadow.accessed(touch, stamp, now, all.order.host(), work.record);
    if (call.host && (call.flags & NPU_COPY_PINNED)) {
      const auto* begin = static_cast<const char*>(call.host);
      forget_done_copies(all);
      if (all.pinned.size() >= kMostPinned) all.pinned.erase(all.pinned.begin());
      all.pinned.push_back({begin, begin + call.size, function == "copy_to_host", stamp, work.record});
      g_has_pinned = true;
    }
  }
  if (is_copy_command(call)) {
    if (!work.touches.empty()) shadow.copied(*call.command, work.record);
  } else if (function == "copy_on_device") {
    const int64_t size = static_cast<int64_t>(call.size), stride = 1;
    shadow.copied(Box(call.addr, &size, &stride, 1, 1), Box(call.source, &size, &stride, 1, 1), work.record);
  } else {
    for (const Touch& touch : work.touches) {
      if (touch.write) shadow.wrote(touch.bytes);
    }
    shadow.left_unwritten(work.unwritten, work.record);
  }
  if (function == "copy_to_host" && !(call.flags & NPU_COPY_PINNED)) all.order.finished(work.stream);
}

// Waits and events. The mutex is taken here.
void note_order(const DriverCall& call, std::string_view function, npu_status status) {
  if (status != NPU_OK) return;
  State& all = state();
  const auto on = call.stream ? find_stream(call.stream) : std::nullopt;
  std::lock_guard lock(all.mutex);
  const int device = on ? on->device_index() : -1;
  const auto stream = [&] { return all.order.stream(call.stream, device); };
  if (function == "event_record" && on) {
    all.order.recorded(call.event, stream());
  } else if (function == "stream_wait_event" && on) {
    all.order.waits(stream(), call.event);
  } else if (function == "event_synchronize" || function == "event_query") {
    all.order.reached(call.event);
  } else if ((function == "stream_synchronize" || function == "stream_query") && on) {
    all.order.finished(stream());
  } else if (function == "device_synchronize" || function == "device_reset") {
    for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
      if (is_opened(index) && opened_device(index).handle == call.device) all.order.finished_all(index);
    }
  }
}

struct Watcher final : DriverWatcher {
  uint64_t started(const DriverCall& call) override {
    const std::string_view function(call.function);
    if (function == "submit" || function.starts_with("copy_")) return begin(call);
    if (function == "event_destroy") {
      std::lock_guard lock(state().mutex);
      state().order.destroyed(call.event);
    }
    return 0;
  }

  void finished(const DriverCall& call, npu_status status, uint64_t works) override {
    const std::string_view function(call.function);
    if (works) {
      if (status == NPU_OK) end(call);
      this_thread().work.reset();
    } else {
      note_order(call, function, status);
    }
  }
};

Watcher g_watcher;

}  // namespace

DriverWatcher* watcher() {
  return &g_watcher;
}

}  // namespace torch_npu::sanitizer
