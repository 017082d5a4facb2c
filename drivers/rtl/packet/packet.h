// Packets as they lie in the ring (docs/isa.md, "Hardware packets").
#pragma once
#include <cstdint>

#include "npu_hw.h"

namespace rtl {

enum Operand { kResult = 0, kA = 1, kB = 2, kC = 3 };

struct Packet {
  uint8_t opcode = npu_hw::OP_SYNC;
  uint8_t op = 0;
  uint16_t flags = 0;
  uint16_t types = 0;  // four bits for each operand
  uint16_t zero = 0;
  uint32_t tag = 0;
  uint32_t imm = 0;
  uint32_t size[4] = {1, 1, 1, 1};
  uint64_t addr[4] = {};
  int32_t stride[4][4] = {};  // bytes: [operand][dimension]

  void set_type(int operand, uint32_t type) {
    types = static_cast<uint16_t>((types & ~(15u << 4 * operand)) | type << 4 * operand);
  }
  uint32_t type(int operand) const { return types >> 4 * operand & 15; }
  uint32_t lines() const { return opcode == npu_hw::OP_SYNC ? 1 : 2; }
};
static_assert(sizeof(Packet) == 2 * npu_hw::LINE_BYTES);

// Bytes of an element of a hardware type.
constexpr uint32_t type_width(uint32_t type) {
  return type == npu_hw::TYPE_F32 || type == npu_hw::TYPE_I32 ? 4 : type <= npu_hw::TYPE_U16 ? 2 : 1;
}

}  // namespace rtl
