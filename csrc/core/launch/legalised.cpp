#include "csrc/core/launch/legalised.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "csrc/core/device/driver_watch.h"
#include "csrc/core/device/internal.h"
#include "csrc/core/device/thread_state.h"

namespace torch_npu {
namespace {

std::atomic<void (*)(c10::DeviceIndex, const Decision&)> g_tell{nullptr};

// Scratch is cached like tensors' memory: what is given back serves the stream's next request.
class CachedScratch : public npu::legalise::Memory {
 public:
  explicit CachedScratch(c10::DeviceIndex device) : device_(device) {}
  // Throws where there is no memory, as for a tensor.
  npu_status take(npu_stream*, uint64_t bytes, npu_addr* out) override {
    *out = allocate_scratch(device_, bytes);
    return NPU_OK;
  }
  void give(npu_stream*, npu_addr addr) override { free_scratch(device_, addr); }

 private:
  c10::DeviceIndex device_;
};

struct Behind {
  explicit Behind(const Device& device)
      : scratch(device.index),
        legaliser(*device.api, device.handle, scratch, &program_of, [index = device.index](const Decision& decision) {
          if (const auto tell = g_tell.load()) tell(index, decision);
        }) {}
  CachedScratch scratch;
  npu::legalise::Legaliser legaliser;
};

std::array<std::atomic<Behind*>, kMaxDevices> g_behind{};  // made when first needed, for ever

// The driver's text lives until the thread's next call, and a planner makes many.
struct Refusal {
  const char* label = "";
  std::string words;
};
thread_local Refusal t_refusal;

void note_refusal(const Device& device, const npu_command& command) {
  const auto* own = npu::legalise::refused_program(command.program);
  const char* words = own ? own->words.c_str() : device.api->error_text();
  t_refusal.label = command.label ? command.label : "";
  t_refusal.words = words ? words : "";
}

bool is_on() {
  static const bool on = [] {
    const char* value = std::getenv("TORCH_NPU_LEGALISE");
    return !value || std::strcmp(value, "0") != 0;
  }();
  return on;
}

// Null: it is off, or the device has no command that others could be made from.
npu::legalise::Legaliser* legaliser_of(const Device& device) {
  if (!is_on() || !device.properties.commands) return nullptr;
  std::atomic<Behind*>& slot = g_behind[device.index];
  if (Behind* there = slot.load(std::memory_order_acquire)) return &there->legaliser;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (!slot.load()) slot.store(new Behind(device), std::memory_order_release);
  return &slot.load()->legaliser;
}

}  // namespace

npu_status submit_legalised(const Device& device, npu_stream* stream, const npu_command& command) {
  note_refusal(device, command);
  auto* legaliser = legaliser_of(device);
  return legaliser ? legaliser->submit(stream, command) : NPU_UNSUPPORTED;
}

npu_status supports_legalised(const Device& device, const npu_command& command) {
  note_refusal(device, command);
  auto* legaliser = legaliser_of(device);
  return legaliser ? legaliser->supports(command) : NPU_UNSUPPORTED;
}

npu_status create_legalised(const Device& device, const npu_program_desc& program, npu_program** out) {
  auto* legaliser = legaliser_of(device);
  return legaliser ? legaliser->program_create(program, out) : NPU_UNSUPPORTED;
}

std::string words_of_refusal(std::string_view op) {
  const std::string_view label = t_refusal.label;
  const bool same = !label.empty() && op.starts_with(label) && (op.size() == label.size() || op[label.size()] == '.');
  return same ? t_refusal.words : "";
}

std::vector<LegalisedCommand> legalised_commands() {
  std::vector<LegalisedCommand> out;
  for (int index = 0; index < kMaxDevices; ++index)
    if (Behind* behind = g_behind[index].load())
      for (Decision& decision : behind->legaliser.decisions())
        out.push_back({static_cast<c10::DeviceIndex>(index), std::move(decision)});
  return out;
}

void reset_legalised_counts() {
  for (auto& slot : g_behind)
    if (Behind* behind = slot.load()) behind->legaliser.reset_counts();
}

void tell_decisions(void (*tell)(c10::DeviceIndex device, const Decision& decision)) {
  g_tell = tell;
}

}  // namespace torch_npu
