// Addresses and masks that a program computes: evaluated at the points where they differ, and nothing else of the
// program is.
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "csrc/core/sanitizer/touches.h"
#include "support/value.h"

namespace torch_npu::sanitizer {

class Computed {
 public:
  Computed(const npu_command& command, const npu_program_desc& program, const ReadMemory& read);

  // What the load or store `id` touches. `rank`: dimensions that its segment walks. Nothing: it depends on a sum, on
  // what the command itself writes, or on memory that cannot be read, or it would take too long.
  std::optional<Bytes> touched(uint16_t id, int rank);

 private:
  // Where a value comes from.
  struct Source {
    uint32_t dims = 0;  // dimensions along which it differs
    bool known = true;
  };
  struct Image {  // of an operand's memory
    npu_addr begin = 0;
    std::vector<unsigned char> bytes;
  };

  Source source_of(uint16_t id);
  void collect(uint16_t id, std::vector<bool>& needed) const;
  bool fetch(uint16_t id, int rank);
  bool evaluate_at(uint16_t id, const int64_t* point);
  int64_t offset_at(uint32_t operand, const int64_t* point) const;

  const npu_command& command_;
  const npu_program_desc& program_;
  const ReadMemory& read_;
  std::vector<int> rank_of_;  // of each instruction's segment
  std::vector<std::optional<Source>> sources_;
  std::vector<npu::Value> values_;
  std::map<uint32_t, Image> images_;  // by operand
};

}  // namespace torch_npu::sanitizer
