// What the rules for SCATTER need to know of one: which memory it stores to at computed places, and how points and
// places fall apart into smaller tasks that are all alike.
#pragma once
#include <vector>

#include "support/legalise/rules/rule.h"

namespace npu::legalise {

// A memory that a SCATTER stores to at computed places. A place is an offset in elements: that of the point plus the
// computed one.
struct Target {
  Operand operand;                    // as the SCATTER has it
  int mode = 0;                       // NPU_STORE_*
  int type = 0;                       // of the values
  std::vector<uint16_t> stores = {};  // instructions

  // Dimensions of the SCATTER, of three sorts. The places of different rows never meet, nor do those of different
  // columns; where a point stores does not depend on its column. So each row is a task of its own, whose items
  // are found once for all columns.
  std::vector<int> rows = {}, items = {}, columns = {};
  // Within a row and column, items are stored at low + slot * step, for slots from 0 to extent - 1.
  bool bounded = false;
  int64_t low = 0, step = 1, extent = 0;
  bool inside = false;  // no place is outside the operand's limit, whatever the data
};

// Empty: the program does what cannot be put off, such as loading what it stores.
std::vector<Target> targets_of(const Draft& scatter, const Script& script);

}  // namespace npu::legalise
