// What a thread has chosen: its current device, and its current stream on each device. Internal to csrc/core.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "npu/runtime.h"

namespace torch_npu {

constexpr int kMaxDevices = 64;

// Made when a thread first leaves the default stream.
struct ThreadStreams {
  npu_stream* handle[kMaxDevices] = {};  // null: the default stream
  c10::StreamId id[kMaxDevices] = {};
};

// initial-exec: one instruction instead of a call per access. It takes static TLS, of which a library loaded late gets
// little; hence two words and not the struct itself.
extern constinit thread_local c10::DeviceIndex tls_device __attribute__((tls_model("initial-exec")));
extern constinit thread_local ThreadStreams* tls_streams __attribute__((tls_model("initial-exec")));

// The default stream of each opened device.
extern npu_stream* g_default_streams[kMaxDevices];

inline npu_stream* current_handle(c10::DeviceIndex device) noexcept {
  if (tls_streams && tls_streams->handle[device]) return tls_streams->handle[device];
  return g_default_streams[device];
}

}  // namespace torch_npu
