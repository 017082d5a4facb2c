#include <algorithm>
#include <cstdio>
#include <cstring>

#include "support/reference/machine.h"

namespace npu {

Memory::Memory(const npu_command& command, const Translate& translate)
    : command_(command), translate_(translate), slots_(command.operand_count) {
  for (uint32_t i = 0; i < command.operand_count; ++i) {
    const npu_operand& operand = command.operands[i];
    slots_[i].dtype = operand.dtype;
    slots_[i].size = dtype_size(operand.dtype);
    slots_[i].immediate = operand.flags & NPU_OPERAND_IMMEDIATE;
    std::memcpy(slots_[i].bits, &operand.addr, sizeof(operand.addr));
  }
}

void Memory::expect_range(uint32_t operand, int64_t low, int64_t high, bool write) {
  Slot& slot = slots_[operand];
  constexpr int64_t kFar = int64_t{1} << 48;  // beyond it products could overflow, and nothing real is there
  if (slot.immediate || low > high || low < -kFar || high > kFar) return;
  Window& window = write ? slot.writable : slot.readable;
  if (window.count) {
    low = std::min(low, window.low);
    high = std::max(high, window.low + static_cast<int64_t>(window.count) - 1);
  }
  const npu_addr addr = command_.operands[operand].addr + static_cast<uint64_t>(low * slot.size);
  const uint64_t bytes = static_cast<uint64_t>(high - low + 1) * static_cast<uint64_t>(slot.size);
  void* base = addr + bytes < addr ? nullptr : translate_(addr, bytes, write);
  if (base) window = {static_cast<unsigned char*>(base), low, static_cast<uint64_t>(high - low + 1)};
}

void Memory::expect_space(uint32_t operand, const int64_t* size, int rank, bool write) {
  __int128 low = 0, high = 0;
  for (int d = 0; d < rank; ++d) {
    if (size[d] == 0) return;
    const __int128 reach = static_cast<__int128>(size[d] - 1) * command_.operands[operand].stride[d];
    (reach < 0 ? low : high) += reach;
  }
  if (low < INT64_MIN || high > INT64_MAX) return;
  expect_range(operand, static_cast<int64_t>(low), static_cast<int64_t>(high), write);
}

void* Memory::translate_one(const Slot& slot, uint32_t operand, int64_t offset, bool write) const {
  const npu_addr addr =
      command_.operands[operand].addr + static_cast<uint64_t>(offset) * static_cast<uint64_t>(slot.size);
  void* at = translate_(addr, static_cast<uint64_t>(slot.size), write);
  if (at) return at;
  char text[160];
  std::snprintf(text, sizeof(text), "expected live memory at address 0x%llx (%s of %d bytes, operand %u), got none",
                static_cast<unsigned long long>(addr), write ? "store" : "load", slot.size, operand);
  throw Failure{NPU_ERROR_ADDRESS, text};
}

}  // namespace npu
