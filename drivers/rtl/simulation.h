// The NPU's RTL, run by Verilator, with device memory on its AXI port.
#pragma once
#include <deque>
#include <memory>
#include <random>

#include "drivers/rtl/board.h"

class Vnpu_top;
class VerilatedContext;

namespace rtl {

struct SimulationOptions {
  uint64_t memory = uint64_t{2} << 30;
  uint64_t latency = 20;  // cycles from a request to its answer
  uint64_t stall = 0;     // other than 0: the seed of random pauses on every channel
};

class Simulation final : public Board {
 public:
  explicit Simulation(const SimulationOptions& options);
  ~Simulation() override;
  uint32_t read_register(uint32_t offset) override;
  void write_register(uint32_t offset, uint32_t value) override;
  void read_memory(void* to, uint64_t from, uint64_t size) override;
  void write_memory(uint64_t to, const void* from, uint64_t size) override;
  bool wait_for_interrupt() override;
  uint64_t memory_size() const override { return options_.memory; }

 private:
  struct Read {
    uint64_t addr, due;
  };
  struct Answer {
    uint64_t due;
    bool error;
  };
  void tick();
  bool pause() { return options_.stall != 0 && random_() % 4 == 0; }
  bool inside(uint64_t addr) const;

  const SimulationOptions options_;
  std::unique_ptr<VerilatedContext> context_;
  std::unique_ptr<Vnpu_top> top_;
  unsigned char* memory_ = nullptr;
  uint64_t now_ = 0;
  uint64_t last_traffic_ = 0;  // cycle of the last request on the bus
  std::deque<Read> reads_;
  std::deque<uint64_t> write_addrs_;
  std::deque<Answer> write_answers_;
  struct WriteData;
  std::deque<WriteData> write_data_;
  std::mt19937_64 random_;
};

}  // namespace rtl
