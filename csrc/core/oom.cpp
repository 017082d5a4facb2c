#include "csrc/core/oom.h"

#include <cstdio>

namespace torch_npu {
namespace {

std::string bytes(uint64_t size) {
  char text[64];
  const auto value = static_cast<double>(size);
  if (size < 1024) {
    std::snprintf(text, sizeof(text), "%llu bytes", static_cast<unsigned long long>(size));
  } else if (size < (1u << 20)) {
    std::snprintf(text, sizeof(text), "%.2f KiB", value / 1024);
  } else if (size < (1u << 30)) {
    std::snprintf(text, sizeof(text), "%.2f MiB", value / (1 << 20));
  } else {
    std::snprintf(text, sizeof(text), "%.2f GiB", value / (1 << 30));
  }
  return text;
}

}  // namespace

std::string describe_out_of_memory(const Device& device, const caching::OutOfMemory& why) {
  const uint64_t idle = why.reserved - why.allocated;
  std::string text = "npu:" + std::to_string(device.index) + " is out of memory: tried to allocate " +
                     bytes(why.requested) + ". The device has " + bytes(why.device_total) + ", of which " +
                     bytes(why.device_free) + " are free. PyTorch has allocated " + bytes(why.allocated) +
                     " and reserved " + bytes(idle) + " more; the largest free block in its cache is " +
                     bytes(why.largest_free_block) + ".";
  if (why.over_limit) {
    text += " This process may take " + bytes(why.limit) +
            " of it: torch.npu.set_per_process_memory_fraction raises that cap.";
  }
  if (!why.driver_text.empty()) text += " The driver says: " + why.driver_text + ".";
  if (idle > why.requested) {
    text +=
        " Reserved memory is in pieces: PYTORCH_ALLOC_CONF=expandable_segments:True or max_split_size_mb:<size> "
        "reduces that.";
  } else {
    text +=
        " Use a smaller batch, delete tensors that are not needed, or call torch.npu.empty_cache() if another "
        "process needs the memory; PYTORCH_ALLOC_CONF sets how the cache behaves.";
  }
  return text;
}

}  // namespace torch_npu
