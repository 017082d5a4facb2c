// Commands on host memory, for a device whose driver refuses them: by a second driver (TORCH_NPU_HOST_EXECUTOR) that
// runs on the host, or by the reference where there is none or it refuses as well.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "npu/runtime.h"

namespace torch_npu {

// A piece of device memory on the host. Operands of the command have addresses in [begin, begin + size).
struct HostImage {
  npu_addr begin;
  uint64_t size;
  std::unique_ptr<char[]> bytes;
  bool written = false;  // set by run_on_host
};

// Memory for images. What is given back serves the next command, since fresh pages cost more than the copies.
std::unique_ptr<char[]> take_host_memory(uint64_t size);  // not initialised
void give_back_host_memory(std::vector<HostImage>& images);

// `owner` has the number of the image for each operand, whose address may lie before it where masks leave that out.
// `program` (null: none) stays where it is for the life of the process. On failure `*error` says why.
npu_status run_on_host(const npu_command& command, const npu_program_desc* program, std::vector<HostImage>& images,
                       const std::vector<size_t>& owner, std::string* error);

}  // namespace torch_npu
