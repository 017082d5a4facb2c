// Giving commands to a driver.
#pragma once
#include <atomic>
#include <exception>
#include <map>
#include <string>

#include "csrc/core/device/device.h"
#include "support/program/program.h"

namespace torch_npu {

// The driver said NPU_UNSUPPORTED. Op wrappers (csrc/aten/dispatch/registration.h) catch it and run the op on the CPU.
struct Unsupported : std::exception {
  const char* label;
  explicit Unsupported(const char* label) : label(label) {}
  const char* what() const noexcept override { return label; }
};

// Submits to the current stream of `device`, which must be open. Throws Unsupported, or what throw_status throws.
// With TORCH_NPU_BLOCKING=1 it also waits, so that a failure surfaces at the op that caused it.
void submit(c10::DeviceIndex device, const npu_command& command);

// Copies within one device, behind the work of `stream`, which must be one of its own.
void copy_on_stream(const Device& device, npu_stream* stream, npu_addr dst, npu_addr src, uint64_t size,
                    const char* doing);

// TORCH_NPU_BLOCKING as read when the first device was opened, or as set since.
bool is_blocking() noexcept;
void set_blocking(bool on) noexcept;

// Counts accepted commands by label, while on. Off by default: then it costs nothing.
void count_ops(bool on) noexcept;
std::map<std::string, int64_t> native_counts();
void reset_native_counts();

// A program of the host, given to each device at its first use there. Objects are static and live forever; `on` is
// thread-safe and costs one load when the program is there. Throws Unsupported if the driver cannot run it.
class DeviceProgram {
 public:
  explicit DeviceProgram(const char* text) : text_(text) {}  // a formula or the text form; parsed at first use
  explicit DeviceProgram(npu::Program program);
  DeviceProgram(const DeviceProgram&) = delete;

  npu_program* on(c10::DeviceIndex device) {
    npu_program* program = programs_[device].load(std::memory_order_acquire);
    if (reinterpret_cast<uintptr_t>(program) > kUnsupported) [[likely]] {
      return program;
    }
    return first_use(device);
  }

 private:
  static constexpr int kDevices = 64;
  static constexpr uintptr_t kUnsupported = 1;  // the driver has refused the program before
  npu_program* first_use(c10::DeviceIndex device);

  const char* text_ = nullptr;
  npu::Program* program_ = nullptr;  // parsed; guarded by a mutex of launch.cpp
  std::atomic<npu_program*> programs_[kDevices] = {};
};

}  // namespace torch_npu
