// A card whose registers and memory are mapped: PCI resource files of sysfs, or any files of the same layout. There is
// no interrupt this way; the interrupt's register is polled.
#pragma once
#include "drivers/fpga/card.h"

namespace fpga {

class Bars final : public Card {
 public:
  explicit Bars(CardOptions options);
  ~Bars() override;
  uint32_t read_register(uint32_t offset) override;
  void write_register(uint32_t offset, uint32_t value) override;
  void read_memory(void* to, uint64_t from, uint64_t size) override;
  void write_memory(uint64_t to, const void* from, uint64_t size) override;
  bool wait_for_interrupt() override;
  void settle() override;

 private:
  void open() override;
  void close() override;
  unsigned char* place(uint64_t addr, uint64_t size) const;

  File owner_;  // of the registers' file: its lock is the card's
  volatile uint32_t* registers_ = nullptr;
  unsigned char* window_ = nullptr;
};

}  // namespace fpga
