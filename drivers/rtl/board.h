// What the driver can reach of an NPU: its registers, its memory and its interrupt. The simulated NPU and a card in a
// slot look the same from above this line.
#pragma once
#include <cstdint>

namespace rtl {

class Board {
 public:
  virtual ~Board() = default;
  virtual uint32_t read_register(uint32_t offset) = 0;
  virtual void write_register(uint32_t offset, uint32_t value) = 0;
  virtual void read_memory(void* to, uint64_t from, uint64_t size) = 0;
  virtual void write_memory(uint64_t to, const void* from, uint64_t size) = 0;
  // False: the NPU has done nothing for so long that it will not any more.
  virtual bool wait_for_interrupt() = 0;
  virtual uint64_t memory_size() const = 0;
};

}  // namespace rtl
