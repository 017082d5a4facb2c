// The NPU behind a board: starts it, gives it packets through the ring, says what became of them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "drivers/rtl/board/board.h"
#include "drivers/rtl/packet/packet.h"
#include "npu/runtime.h"

namespace rtl {

struct Failure {
  npu_status status = NPU_OK;
  std::string text;
  uint32_t packet = 0;  // the one that failed, and for a CHECK the element that it found
  uint64_t element = 0;
};

class Processor {
 public:
  // The ring takes the first kRingBytes of device memory. Throws std::runtime_error if this is not our NPU.
  explicit Processor(std::unique_ptr<Board> board);

  static constexpr uint32_t kRingLines = 1024;
  static constexpr uint64_t kRingBytes = uint64_t{kRingLines} * npu_hw::LINE_BYTES;

  // Runs them all and waits. After a failure the NPU has been reset and is ready for the next, or is lost.
  Failure run(std::vector<Packet>& packets);
  Failure read_memory(void* to, uint64_t from, uint64_t size);
  Failure write_memory(uint64_t to, const void* from, uint64_t size);
  Failure reset();                          // makes a lost one usable again, or says why not
  uint64_t counter(uint32_t low_register);  // counts from the opening of the device; may throw BoardLost
  Board& board() { return *board_; }

 private:
  Failure run_batch(Packet* packets, size_t count);
  Failure why_stopped();
  void check_identity();
  void start();
  bool soft_reset();  // false: it does not come out of it
  Failure lost(const std::string& why);

  std::unique_ptr<Board> board_;
  uint32_t tail_ = 0;
  bool lost_ = false;
  uint64_t before_reset_[5] = {};  // counters, which a reset clears
};

}  // namespace rtl
