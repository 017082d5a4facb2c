// A card behind the character devices of Xilinx's XDMA driver: PREFIX_user are the registers (AXI-Lite), PREFIX_h2c_0
// and PREFIX_c2h_0 write and read its memory at the file's position, PREFIX_events_0 is the interrupt. Nothing but
// open, pread, pwrite, read and poll is used.
#pragma once
#include <memory>

#include "drivers/fpga/card.h"

namespace fpga {

class Xdma final : public Card {
 public:
  explicit Xdma(CardOptions options);
  uint32_t read_register(uint32_t offset) override;
  void write_register(uint32_t offset, uint32_t value) override;
  void read_memory(void* to, uint64_t from, uint64_t size) override;
  void write_memory(uint64_t to, const void* from, uint64_t size) override;
  bool wait_for_interrupt() override;

 private:
  void open() override;
  void close() override;
  bool take_event(int milliseconds);

  File user_, to_card_, from_card_, events_;
  std::unique_ptr<void, void (*)(void*)> bounce_;  // page-aligned, as DMA wants it
};

}  // namespace fpga
