// The clock of a chip that need not exist (option chip=FILE): what its commands would take, stream by stream, beside
// the time that the C model takes itself. Events that take times then report this one.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "support/cost/chip.h"

namespace cmodel {

class Timing {
 public:
  explicit Timing(npu::Chip chip) : chip_(std::move(chip)) {}

  // Counts the work and returns what it takes, in nanoseconds.
  double add(const char* label, const npu::Work& work);
  void restart();
  const npu::Chip& chip() const { return chip_; }
  // All work since the start on a chip, as JSON: totals, and a row for every label and kind of command.
  std::string report(const npu::Chip& chip);

 private:
  const npu::Chip chip_;
  std::mutex mutex_;
  std::map<std::pair<std::string, npu::Work>, uint64_t> counts_;
};

}  // namespace cmodel
