// Epilogues in two parts: what depends on the channel only, as a batch norm's deviation does, once for each channel;
// the rest at every point.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "drivers/cmodel/plan/plan.h"

namespace cmodel {

class ByChannel {
 public:
  struct Parts {
    // A MAP over channels that stores `values` F32 results to operands count .. count + values - 1, where `count` is
    // the program's operand_count, and an epilogue that loads them there.
    Program channels, rest;
    int values;
  };

  explicit ByChannel(const npu::Program& program) : program_(program) {}
  // `operands`, by bit: those that vary with the channel only, or not at all. Null: nothing to compute ahead.
  const Parts* find(uint64_t operands) const;

 private:
  std::unique_ptr<const Parts> make(uint64_t operands) const;

  struct Made {
    uint64_t operands;
    std::unique_ptr<const Parts> parts;
  };
  npu::Program program_;
  mutable std::mutex making_;
  mutable std::vector<Made> made_;
};

}  // namespace cmodel
