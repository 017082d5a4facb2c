#include "csrc/core/launch/launch.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "csrc/core/device/capture.h"
#include "csrc/core/device/internal.h"
#include "csrc/core/device/thread_state.h"
#include "csrc/core/launch/legalised.h"
#include "csrc/core/launch/precision.h"
#include "csrc/core/launch/traffic.h"
#include "support/cost/command_cost.h"
#include "support/program/formula.h"

namespace torch_npu {
namespace {

// Everything that makes a launch slower than a call of the driver, in one word that is nearly always zero.
enum : uint32_t { kBlocking = 1, kCounting = 2, kForbidden = 4, kCapturing = 8, kReduced = 16 };
std::atomic<uint32_t> g_special{0};

void set_special(uint32_t bit, bool on) noexcept {
  if (on) {
    g_special.fetch_or(bit, std::memory_order_relaxed);
  } else {
    g_special.fetch_and(~bit, std::memory_order_relaxed);
  }
}

struct Counts {
  std::mutex mutex;
  std::map<std::string, int64_t> by_label;
  std::map<std::string, int64_t> bytes;
};

Counts& counts() {
  static Counts* counts = new Counts;
  return *counts;
}

const char* label_of(const npu_command& command) {
  return command.label ? command.label : npu::command_name(command.kind);
}

void after_launch(uint32_t special, const Device& device, npu_stream* stream, const npu_command& command) {
  if (special & kCounting) {
    Counts& all = counts();
    std::lock_guard lock(all.mutex);
    ++all.by_label[label_of(command)];
    all.bytes[label_of(command)] += npu::bytes_of(command);
  }
  if (special & kBlocking) check(device, device.api->stream_synchronize(stream), label_of(command));
}

// The flags of a product; null: the command is none.
uint8_t* product_flags(npu_command& command) {
  return command.kind == NPU_MATMUL ? &command.u.matmul.flags
         : command.kind == NPU_CONV ? &command.u.conv.flags
                                    : nullptr;
}

// One for all: programs are made once, and making one is slow anyway.
std::mutex g_program_mutex;

}  // namespace

void submit(c10::DeviceIndex index, const npu_command& command) {
  const uint32_t special = g_special.load(std::memory_order_relaxed);
  if (special & kForbidden) [[unlikely]] {
    torch_npu::device(index);  // throws the sentence about forked processes
  }
  const Device& device = opened_device(index);
  npu_stream* stream = current_handle(index);
  npu_command changed;
  const npu_command* given = &command;
  if (special & kReduced) [[unlikely]] {
    changed = command;
    if (uint8_t* flags = product_flags(changed)) *flags |= NPU_MATMUL_REDUCED;
    given = &changed;
  }
  if (special & kCapturing) [[unlikely]] {
    if (capture_command(device, stream, *given)) return;
  }
  submit_to(device, stream, *given);
}

void submit_to(const Device& device, npu_stream* stream, const npu_command& command) {
  npu_status status = has_refused_program(command) ? NPU_UNSUPPORTED : device.api->submit(stream, &command);
  if (status != NPU_OK) [[unlikely]] {
    if (status == NPU_UNSUPPORTED) status = submit_legalised(device, stream, command);
  }
  if (status != NPU_OK) [[unlikely]] {
    if (status == NPU_UNSUPPORTED) throw Unsupported(label_of(command));
    throw_status(device, status, label_of(command));
  }
  if (const uint32_t special = g_special.load(std::memory_order_relaxed)) [[unlikely]] {
    after_launch(special, device, stream, command);
  }
}

void copy_on_stream(const Device& device, npu_stream* stream, npu_addr dst, npu_addr src, uint64_t size,
                    const char* doing) {
  if (capture_copy(stream, dst, src, size)) return;
  check(device, device.api->copy_on_device(stream, dst, src, size), doing);
}

bool is_blocking() noexcept {
  return g_special.load(std::memory_order_relaxed) & kBlocking;
}
void set_blocking(bool on) noexcept {
  set_special(kBlocking, on);
}
bool reduced_products() noexcept {
  return g_special.load(std::memory_order_relaxed) & kReduced;
}
void set_reduced_products(bool on) noexcept {
  set_special(kReduced, on);
}
void count_ops(bool on) noexcept {
  set_special(kCounting, on);
}
void watch_for_captures(bool on) noexcept {
  set_special(kCapturing, on);
}
void forbid_launches() noexcept {
  set_special(kForbidden, true);
}

void read_launch_settings() {
  static const bool done = [] {
    const char* value = std::getenv("TORCH_NPU_BLOCKING");
    if (value && *value && std::strcmp(value, "0") != 0) set_blocking(true);
    return true;
  }();
  (void)done;
}

std::map<std::string, int64_t> native_counts() {
  std::lock_guard lock(counts().mutex);
  return counts().by_label;
}

std::map<std::string, int64_t> native_bytes() {
  std::lock_guard lock(counts().mutex);
  return counts().bytes;
}

void reset_native_counts() {
  std::lock_guard lock(counts().mutex);
  counts().by_label.clear();
  counts().bytes.clear();
}

DeviceProgram::DeviceProgram(npu::Program program) : program_(new npu::Program(std::move(program))) {}

npu_program* DeviceProgram::first_use(c10::DeviceIndex index) {
  const Device& target = device(index);
  std::lock_guard lock(g_program_mutex);
  npu_program* made = programs_[index].load(std::memory_order_acquire);
  if (reinterpret_cast<uintptr_t>(made) > kUnsupported) return made;
  if (!program_) {
    try {
      program_ = new npu::Program(npu::parse(npu::formula_text(text_, "f32")));
    } catch (const std::exception& failure) {
      TORCH_INTERNAL_ASSERT(false, failure.what(), " in the program\n", text_);
    }
  }
  const char* name = program_->name.c_str();
  if (made) throw Unsupported(name);
  const npu_program_desc desc = program_->desc();
  npu_status status = target.api->program_create(target.handle, &desc, &made);
  if (status == NPU_UNSUPPORTED) status = create_legalised(target, desc, &made);
  if (status == NPU_UNSUPPORTED) {
    programs_[index].store(reinterpret_cast<npu_program*>(kUnsupported), std::memory_order_release);
    throw Unsupported(name);
  }
  if (status != NPU_OK) throw_status(target, status, name);
  programs_[index].store(made, std::memory_order_release);
  return made;
}

}  // namespace torch_npu
