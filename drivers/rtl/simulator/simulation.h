// The NPU's RTL, run by Verilator, with device memory on its AXI port.
#pragma once
#include <deque>
#include <memory>
#include <random>

#include "drivers/rtl/board/board.h"
#include "drivers/rtl/board/fault.h"

class Vnpu_top;
class VerilatedContext;
class VerilatedVcdC;

namespace rtl {

struct SimulationOptions {
  uint64_t memory = uint64_t{2} << 30;
  uint64_t latency = 20;  // cycles from a request to its answer
  uint64_t stall = 0;     // other than 0: the seed of random pauses on every channel
  Fault fault;
  int memory_file = -1;  // device memory is this file, which others may map too; -1: it is nobody else's
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
  std::string patience() const override;
  void reset() override;
  uint64_t memory_size() const override { return options_.memory; }
  bool trace(const std::string& file) override;
  uint32_t clock_mhz() const override { return 200; }  // what simulated time is reported at
  uint64_t hidden_cycles() const override { return copied_lines_; }

  // For those who run it beside other things: so many cycles, or up to the interrupt.
  void advance(uint64_t cycles);
  bool interrupt() const;
  bool working();  // there are packets to run, and traffic on the bus

 private:
  struct Read {
    uint64_t addr, due;
    uint64_t number;  // since the last doorbell
  };
  struct Answer {
    uint64_t due;
    bool error;
  };
  void tick();
  void dump(uint64_t half);
  bool pause() { return options_.stall != 0 && random_() % 4 == 0; }
  bool inside(uint64_t addr) const;
  void check_range(uint64_t addr, uint64_t size) const;
  bool faulty(FaultKind kind) const { return options_.fault.kind == kind && doorbells_ == options_.fault.doorbell; }
  void answer(const Read& read);

  const SimulationOptions options_;
  std::unique_ptr<VerilatedContext> context_;
  std::unique_ptr<Vnpu_top> top_;
  std::unique_ptr<VerilatedVcdC> wave_;  // of the first waveform on
  unsigned char* memory_ = nullptr;
  uint64_t now_ = 0;
  uint64_t last_traffic_ = 0;  // cycle of the last request on the bus
  uint64_t copied_lines_ = 0;  // by the host
  uint64_t doorbells_ = 0, reads_since_doorbell_ = 0;
  std::deque<Read> reads_;
  std::deque<uint64_t> write_addrs_;
  std::deque<Answer> write_answers_;
  struct WriteData;
  std::deque<WriteData> write_data_;
  std::mt19937_64 random_;
};

}  // namespace rtl
