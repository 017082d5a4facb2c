// Runs the instructions of a segment over one tile. Everything a thread needs is in its Frame; what it knows about a
// value is a pointer and whether that is one value for the whole tile.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "drivers/cmodel/job.h"
#include "drivers/cmodel/plan.h"
#include "drivers/cmodel/space.h"

namespace cmodel {

constexpr int64_t kBlock = 1024;  // points of a tile: a few values of it fit the first cache

struct Ref {
  char* ptr = nullptr;
  bool uniform = false;
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
  bool direct_stores = true;  // kernels may write straight to outputs
  bool streams = false;       // outputs are too large for the caches
  bool in_combine = false;
  char* slots = nullptr;
  int64_t slot_bytes = 0;
  int64_t block = 0;
  Ref val[NPU_MAX_INSTRS];
  uint64_t scalar[NPU_MAX_INSTRS];

  char* slot(int number) const { return slots + number * slot_bytes; }
  // Two slots behind those of the plan, for conversions; more with index 2, 3, ... as asked for in prepare().
  char* temp(int number) const { return slot(plan->slots + number); }
};

constexpr int kTemps = 3;

// The calling thread's frame, ready for a job with tiles of up to `block` points and `extra` temporaries beyond kTemps.
Frame& prepare(const Job& job, FailureSink& sink, int64_t block = kBlock, int extra = 0);

void run_tile(Frame& frame, int begin, int end, const Tile& tile);

// Runs a combine segment over n pairs of tuples. `left` and `right` are dense or uniform; results: frame.val of yields.
void combine(Frame& frame, const Segment& segment, const Ref* left, const Ref* right, int64_t n);

// A dense array of the tile's n values in `to`, whatever `ref` is.
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

}  // namespace cmodel
