// The instructions that touch memory or change types, one tile at a time. Internal to the interpreter
// (interpreter/interpreter.cpp).
#pragma once
#include "drivers/cmodel/interpreter/interpreter.h"

namespace cmodel {

void load(Frame& frame, int at, const Tile& tile);
void load_at(Frame& frame, int at, const Tile& tile);
void store(Frame& frame, int at, const Tile& tile);
void store_at(Frame& frame, int at, const Tile& tile);
void index(Frame& frame, int at, const Tile& tile);
void load_acc(Frame& frame, int at, const Tile& tile);
void cast(Frame& frame, int at, const Tile& tile);
void check_index(Frame& frame, int at, const Tile& tile);

// Is this the memory of one of these operands? All of them may stand for later segments, of which each store counts.
bool is_one_of(const Frame& frame, uint64_t operands, const Operand& operand);

inline bool is_narrow(int dtype) {
  return dtype == NPU_BF16 || dtype == NPU_F16;
}

// Where the kernel of `op` may write because its value is stored there next, or null.
char* store_target(Frame& frame, const Op& op, const Tile& tile);

// The same for a loop that stores F32 as bf16 or f16: the type is that of the store's operand. `streams`: does it
// bypass the caches? Null if the store does not do so, too.
char* narrow_target(Frame& frame, const Op& op, const Tile& tile, bool streams);

// Values of `op` that its store writes past the caches go there a few at a time, while the kernel computes the next.
struct StreamTarget {
  char* at = nullptr;  // null: the store does it as usual
  int log_size = 0;    // of its elements
  Convert convert = nullptr;

  // Can a loop over rows of n F32 values stream whole cache lines itself?
  bool whole_lines(int64_t rows, int64_t n) const {
    return at && !convert && log_size == 2 && reinterpret_cast<uintptr_t>(at) % 64 == 0 && (rows == 1 || n % 16 == 0);
  }
  // Writes values from .. to of the array that begins at `values`.
  void write(Frame& frame, const char* values, int log_value, int64_t from, int64_t to) const;
};
StreamTarget stream_target(Frame& frame, const Op& op, const Tile& tile);

}  // namespace cmodel
