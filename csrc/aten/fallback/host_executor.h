// Commands on host memory, for a device whose driver refuses them: by a second driver (TORCH_NPU_HOST_EXECUTOR) that
// runs on the host, or by the reference where there is none or it refuses as well.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "npu/runtime.h"

namespace torch_npu {

// Device memory that operands of a command lie in.
struct DevicePiece {
  npu_addr begin;
  uint64_t size;
};

struct HostRun {
  npu_command command;              // without a program; a MATMUL or CONV if there is none
  const npu_program_desc* program;  // null: none. Its instructions stay where they are for the life of the process
  std::vector<DevicePiece> pieces;
  // For each operand the number of its piece, which it may begin before, where masks leave that out.
  std::vector<size_t> piece_of;
  // Copies between the device and the host.
  std::function<void(void* to, npu_addr from, uint64_t size)> read;
  std::function<void(npu_addr to, const void* from, uint64_t size)> write;
};

// On failure `*error` says why.
npu_status run_on_host(const HostRun& run, std::string* error);

}  // namespace torch_npu
