// What the driver can reach of an NPU: its registers, its memory and its interrupt. The simulated NPU and a card in a
// slot look the same from above this line.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

namespace rtl {

// Thrown by a board that is not there any more; the text is a whole sentence.
struct BoardLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Board {
 public:
  virtual ~Board() = default;
  virtual uint32_t read_register(uint32_t offset) = 0;
  virtual void write_register(uint32_t offset, uint32_t value) = 0;
  virtual void read_memory(void* to, uint64_t from, uint64_t size) = 0;
  virtual void write_memory(uint64_t to, const void* from, uint64_t size) = 0;
  // False: the NPU has done nothing for so long that it will not any more.
  virtual bool wait_for_interrupt() = 0;
  virtual std::string patience() const = 0;  // how long that is: "5000 ms"
  // Returns once everything written before is in the card, so that what is read next is of after that. Nothing to do
  // where writes are not posted.
  virtual void settle() {}
  // From outside, for an NPU that CONTROL_RESET does not bring back, or that went away. The registers are as after
  // power on, memory may hold anything.
  virtual void reset() = 0;
  virtual uint64_t memory_size() const = 0;
  virtual uint32_t clock_mhz() const = 0;
  // That passed unseen by the NPU's own counter: a simulation stands still while the host copies.
  virtual uint64_t hidden_cycles() const { return 0; }
  // Begins a waveform in a file, or ends it with "". False: the file cannot be written, or there is no such thing here.
  virtual bool trace(const std::string& /*file*/) { return false; }
};

}  // namespace rtl
