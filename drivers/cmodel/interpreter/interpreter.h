// Runs the instructions of a segment over one tile. Everything a thread needs is in its Frame; what it knows about a
// value is a pointer and whether that is one value for the whole tile, one per row, one per column or one per point.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "drivers/cmodel/interpreter/tuning.h"
#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/plan/plan.h"
#include "drivers/cmodel/plan/space.h"

namespace cmodel {

// A value that varies along one direction of its tile only is held once per row or once per column.
// An offset may be the sum of a value per row (Frame::row_part) and one per column.
// What a compiled loop has added up is a count and as many doubles, one per row.
enum Axis : uint8_t { kBoth = 0, kRows = 1, kCols = 2, kSum = 3, kTotals = 4 };

struct Ref {
  char* ptr = nullptr;
  bool uniform = false;
  Axis axis = kBoth;
  uint8_t stored = 0;  // NPU_BF16 or NPU_F16: an F32 value as it lies in memory, for compiled loops
  bool kept = false;   // another segment will read it, too: its memory is not to be overwritten
};

// The failure of a job: of several, the one at the lowest position.
class FailureSink {
 public:
  void report(npu_status status, std::string text, int64_t position);
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  bool finish(Failure& failure) const;

 private:
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  int64_t position_ = 0;
  Failure failure_;
};

struct Frame {
  const Job* job = nullptr;
  const Plan* plan = nullptr;
  const Kernels* k = nullptr;
  FailureSink* sink = nullptr;
  const char* acc = nullptr;  // epilogues
  int acc_dtype = 0;
  uint64_t streams = 0;               // operands, by bit, whose stores bypass the caches
  bool folding = false;               // compiled loops may add up what is folded
  bool folds_tile = false;            // all of the tile belongs to one row of a REDUCE
  bool hoists = false;                // values with a set `fixed` are there already
  int64_t part = 0, parts = 1;        // SCATTER: store_at writes this part of each operand only
  const int64_t* next_row = nullptr;  // by view: elements from one row to the next, if memory is worth fetching ahead
  char* row_buffer = nullptr;         // Plan::row_operand lies here: its element 0
  char* slots = nullptr;
  int64_t slot_bytes = 0;
  int64_t block = 0;
  Ref val[NPU_MAX_INSTRS];
  uint64_t scalar[NPU_MAX_INSTRS];
  const int64_t* row_part[NPU_MAX_INSTRS];  // of values that are kSum
  bool fixed[NPU_MAX_INSTRS];
  bool streamed[NPU_MAX_INSTRS] = {};  // stores of this tile whose values went out while they were computed

  char* slot(int number) const { return slots + number * slot_bytes; }
  // Two slots behind those of the plan, for conversions; more with index 2, 3, ... as asked for in prepare().
  char* temp(int number) const { return slot(plan->slots + number); }
};

constexpr int kTemps = 3;

// Points of a tile for a program: fewer if it holds many values at once. Compiled loops hold theirs in registers.
inline int64_t block_of(const Plan& plan) {
  if (!plan.loops.empty()) return kBlock;
  return plan.slots > 8 ? kBlock / 4 : plan.slots > 4 ? kBlock / 2 : kBlock;
}

// The calling thread's frame, ready for a job with tiles of up to `block` points and `extra` temporaries beyond kTemps.
Frame& prepare(const Job& job, FailureSink& sink, int64_t block = kBlock, int extra = 0);

// Operands, by bit, that the job writes past the caches: results that are too large to stay there, and are not read.
// `buffered`: Plan::row_operand is read from a buffer of its own.
uint64_t streamed_operands(const Job& job, bool buffered = false);
// Does this store bypass the caches?
inline bool streams_to(const Frame& f, const Op& store) {
  return (f.streams >> store.imm & 1) && !(store.is(Trait::kRowBuffer) && f.row_buffer);
}
// Stores that bypass the caches are seen by other threads, like all others, from here on.
inline void stream_fence() {
  __builtin_ia32_sfence();
}

void run_tile(Frame& frame, int begin, int end, const Tile& tile);

// Computes the values that are the same for the whole job, so that tiles need not.
void hoist(Frame& frame);

// A compiled loop over one tile.
void run_loop(Frame& frame, const CompiledLoop& loop, const Tile& tile);

// Runs a combine segment over n pairs of tuples. `left` and `right` are dense or uniform; results: frame.val of yields.
void combine(Frame& frame, const Segment& segment, const Ref* left, const Ref* right, int64_t n);

// Converts value `id` to F32 if it stands as it lies in memory.
void widen(Frame& frame, int id, const Tile& tile);

// Gives value `id` one element per point of the tile, if it has one per row or column.
void expand_to_points(Frame& frame, int id, const Tile& tile);

// A dense array of the tile's n values in `to`; `ref` varies along both directions or none.
const char* dense(Frame& frame, Ref ref, int dtype, int64_t n, char* to);

// Dense <-> strided two-dimensional copies of elements of 2^log_size bytes. Strides in elements.
void collect(const Kernels& k, void* out, const char* in, int log_size, int64_t rows, int64_t cols, int64_t row_stride,
             int64_t col_stride);
void deposit(const Kernels& k, char* out, const void* in, int log_size, int64_t rows, int64_t cols, int64_t row_stride,
             int64_t col_stride);

inline int log_size_of(int dtype) {
  constexpr uint8_t table[NPU_DTYPE_COUNT] = {0, 0, 0, 1, 1, 2, 2, 3, 3, 1, 1, 2, 3};
  return table[dtype];
}

// The bits of a constant or parameter as a value of a compute type.
uint64_t scalar_bits(uint64_t bits, int dtype);
// Of an argument that is a constant or a parameter.
inline uint64_t argument_bits(const Job& job, const OneInstruction::Argument& arg) {
  const bool constant = arg.kind == OneInstruction::Argument::kConst;
  return scalar_bits(constant ? job.program->plan->consts[arg.number] : job.params[arg.number].u, arg.dtype);
}

}  // namespace cmodel
