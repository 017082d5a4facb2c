// Addresses and masks that a program computes: evaluated at the points where they differ, and nothing else of the
// program is.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "csrc/core/observe/sanitizer/touches.h"
#include "support/reference/value.h"

namespace torch_npu::sanitizer {

class Computed {
 public:
  Computed(const npu_command& command, const npu_program_desc& program, const ReadMemory& read);

  // What the load or store `id` touches. `rank`: dimensions that its segment walks. Nothing: it depends on a sum, on
  // what the command itself writes, or on memory that cannot be read, or it would take too long.
  std::optional<Bytes> touched(uint16_t id, int rank);

  // Loads that `where` chooses from and nothing else takes.
  bool is_choice(uint16_t id) const;
  // Of such a load: where its value is chosen and computed with.
  std::optional<Bytes> used(uint16_t id, int rank);
  // Of a store: where it stores a chosen element for which `is_written` is false.
  std::optional<Bytes> unwritten(uint16_t id, int rank, const std::function<bool(Run)>& is_written);

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

  // The bytes of the access `id` at the points where `takes_part`; `deciders` are the values that this asks for.
  std::optional<Bytes> walk(uint16_t id, int rank, std::vector<uint16_t> deciders, bool every_point,
                            const std::function<bool(const int64_t*)>& takes_part);
  bool is_used_now(uint16_t id) const;
  void add_conditions(uint16_t id, std::vector<uint16_t>& deciders) const;

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
