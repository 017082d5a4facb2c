// When commands ran, for the profiler: a pair of timing events around each command and copy while it is on. Device
// times become host times by an anchor, an event whose time both clocks know.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/core/device/driver_watch.h"

namespace torch_npu {

// One command or copy. Times are c10::getTime's: nanoseconds of the system's clock.
struct TimedCommand {
  std::string name;      // "aten::mm MATMUL", "Memcpy HtoD"
  const char* function;  // of the driver: "submit"
  std::string shape;     // of the index space: "128x3072"; empty for copies
  int64_t bytes = 0;
  int64_t flops = 0;
  bool is_copy = false;
  c10::DeviceIndex device = 0;
  c10::StreamId stream = 0;
  int32_t thread = 0;         // the system's number
  uint64_t op = 0;            // what the thread had pushed as the running op; 0: none
  int64_t host_start_ns = 0;  // of the call
  int64_t host_end_ns = 0;
  int64_t start_ns = 0;  // of the work
  int64_t end_ns = 0;
  double cycles = 0;  // 0: the device has no clock that is known
};

// The op that commands of this thread belong to from now on; ops nest.
void push_op(uint64_t op);
void pop_op();
// A range of the program, which counts where there is no op.
void push_range(uint64_t range);
void pop_range();

// One recording at a time. `stop_recording` waits for the devices that were used.
void start_recording();
std::vector<TimedCommand> stop_recording();

}  // namespace torch_npu
