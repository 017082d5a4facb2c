#include "csrc/core/memory/oom.h"

#include <cstdio>

#include "csrc/core/memory/memory_history.h"

namespace torch_npu {

std::string human_bytes(uint64_t size) {
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

std::string describe_out_of_memory(const Device& device, const caching::OutOfMemory& why) {
  const uint64_t idle = why.reserved - why.allocated;
  std::string text = "npu:" + std::to_string(device.index) + " is out of memory: tried to allocate " +
                     human_bytes(why.requested) + ". The device has " + human_bytes(why.device_total) + ", of which " +
                     human_bytes(why.device_free) + " are free. PyTorch has allocated " + human_bytes(why.allocated) +
                     " and reserved " + human_bytes(idle) + " more; the largest free block in its cache is " +
                     human_bytes(why.largest_free_block) + ".";
  if (why.over_limit) {
    text += " This process may take " + human_bytes(why.limit) +
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
  if (history::is_on()) {
    text += "\nThe largest tensors on the device, and who made them:";
    for (const std::string& line : history::largest_live(device.index, 10)) text += "\n  " + line;
  } else {
    text += " torch.npu.memory._record_memory_history() makes this message list the largest tensors and their makers.";
  }
  return text;
}

}  // namespace torch_npu
