// SCATTER from commands that store at fixed places. First the program computes where each point stores and what; then
// the slots of memory find their points, or the points that meet are combined and stored without meeting.
#pragma once
#include <bit>
#include <vector>

#include "support/legalise/draft/writer.h"
#include "support/legalise/rules/targets.h"

namespace npu::legalise {

using Sizes = std::vector<int64_t>;

// How much a command does at once.
struct Pace {
  int64_t reach;  // a step of the sums reaches this many times as far as the one before it: two operands for each
  int halvings;   // steps of a search: five instructions each
};

// The work for one target. Arrays in scratch are dense: rows, items, columns.
class ScatterTask {
 public:
  ScatterTask(const Draft& scatter, const Target& target, Script& script, const Pace& pace);

  // Elements that could be stored to.
  int64_t elements() const { return rows_ * target_.extent * columns_; }
  int64_t items() const { return items_; }
  int rank() const { return static_cast<int>(row_sizes_.size() + 1 + column_sizes_.size()); }
  bool bounded() const { return target_.bounded; }
  bool combines() const { return target_.mode != NPU_STORE_SET; }

  // What the program says: reads all inputs, and fails where it does. `first`: no other task has checked its indices.
  void read(bool first) {
    read_slots(first);
    read_values(first);
  }
  void look();
  void ask_all();
  void search();
  void store_apart();

 private:
  Sizes sizes_of(const std::vector<int>& dimensions) const;
  Sizes strides_of(const std::vector<int>& dimensions) const;
  // Strides of rows, in a dense array of rows, items (or slots), columns.
  Sizes row_strides(int64_t length, int64_t columns) const;
  Writer program(const Draft& source, Draft& map, const std::vector<int>& dimensions, bool checks) const;
  void read_slots(bool checks);
  void read_values(bool checks);
  // Of sorted slots: a power of two above the number of items.
  int64_t row_length() const { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(items_ + 1))); }
  Operand scratch_of_items() const;  // over rows, items, columns; memory before it may be read
  void sort();
  Operand halve(const Operand& counts, int64_t from, int64_t to);
  void gather();
  void combine();
  uint16_t last_of_slot(Writer& writer, uint16_t* place) const;
  uint16_t combined(Writer& writer, uint16_t left, uint16_t right) const;
  // Of an item, in the array of its row.
  uint16_t offset(Writer& writer, uint16_t item) const;
  // Over rows, slots, columns: what is stored to, and an array of items whose element lies a computed offset further.
  Operand destination() const;
  Operand of_items(const Operand& array) const;
  Draft over_slots(npu_command_kind kind, int64_t length) const;

  const Draft& scatter_;
  const Target& target_;
  Script& script_;
  const Pace pace_;
  Sizes row_sizes_, item_sizes_, column_sizes_;
  int64_t rows_ = 1, items_ = 1, columns_ = 1;
  int64_t none_ = 0;  // the slot of an item that is masked off: behind all others
  int slot_type_ = NPU_I64;
  Operand slots_, values_;  // of items
  Operand sorted_, order_;  // slots in order, and the item that was there
  Operand sums_;            // values in that order: each one combined with those before it of its slot
};

Operand strided(Operand operand, const Sizes& strides);
Sizes joined(std::initializer_list<Sizes> parts);

}  // namespace npu::legalise
