// Compiled loops: a run of F32 instructions of a program as one loop over a tile, with values in registers instead
// of one pass over the first cache per instruction. Needs AVX-512 or AVX2 and memory that may be executed; without
// either, programs run instruction by instruction as ever. Results are the bits of the kernels of the same level.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "drivers/cmodel/jit/tuning.h"
#include "npu/program.h"

namespace cmodel {

constexpr int kLoopPointers = 24;   // inputs and outputs of a loop
constexpr int kLoopConstants = 32;  // constants and parameters
constexpr int kLoopKept = 64;       // vectors for which there is no register: as many as a program may have alive

// What a loop is called with. Inputs come first, then outputs.
struct LoopArguments {
  char* pointer[kLoopPointers];  // changed by the loop
  int64_t step[kLoopPointers];   // of inputs, in bytes per 16 points: 0 for 32 copies of one value
  int64_t ahead[kLoopPointers];  // of loaded inputs: bytes to what will be wanted soon, 0 if nothing is
  float constant[kLoopConstants];
  float sums[NPU_MAX_FOLDS][16];  // of each fold; written, not added to
  // Rows, of `points` points each: `turn` leads from behind the last sixteen points of a row, or from those that fill
  // no sixteen, to the next row. The sums of a row go to `row_sums`, those of the next one behind them. Of columns:
  // `step` is that of inputs per folded point, of which there are `points`, and `turn` leads from behind the last of
  // them to the next sixteen columns. Behind the inputs: what the sums are added to.
  int64_t rows, points;
  float* row_sums;
  int64_t turn[kLoopPointers];
  // Of the loop itself: which of the last points there are, and values that wait for a register.
  int32_t rest[16];
  alignas(64) float kept[kLoopKept][16];
};

class Code {
 public:
  static std::unique_ptr<Code> make(const std::vector<uint8_t>& bytes);  // null: the system does not allow it
  ~Code();
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  // One row of n points, or n columns.
  void operator()(LoopArguments& arguments, int64_t n) const {
    arguments.rows = 1;
    arguments.row_sums = arguments.sums[0];
    run_(&arguments, &arguments, n);
  }
  // Rows of n points, each with `turn` to the next; sums: so many of the loop's folds for each row.
  void operator()(LoopArguments& arguments, int64_t n, int64_t rows, float* sums) const {
    arguments.rows = rows;
    arguments.row_sums = sums;
    run_(&arguments, &arguments, n);
  }

 private:
  Code(void* memory, size_t bytes);
  void* memory_;
  size_t bytes_;
  void (*run_)(void*, void*, int64_t);
};

// How F32 values lie in memory, by pointer of a loop: two bits each, of which kOwn is all zeros. kSame: one value for a
// row, of inputs.
enum Storage : unsigned { kOwn = 0, kBFloat = 1, kHalf = 2, kSame = 3 };
inline Storage storage_of(uint64_t all, size_t pointer) {
  return static_cast<Storage>(all >> (2 * pointer) & 3);
}

enum class Form : uint8_t { kPlain, kStreaming, kFolding, kColumns };

// Loops over bf16 and f16 in memory, or one value for a row: made when a command with such operands comes, since types
// and strides travel in commands.
class Variants {
 public:
  Variants() = default;
  ~Variants();
  Variants(const Variants&) = delete;
  Variants& operator=(const Variants&) = delete;
  // Null: there are many already, or no memory to execute. `make` is called once for each pair, under a lock.
  template <class F>
  const Code* find(Form form, uint64_t storage, F make);

 private:
  struct One {
    Form form;
    uint64_t storage;
    std::unique_ptr<Code> code;
    One* next;
  };
  One* look(Form form, uint64_t storage) const {
    One* one = first_.load(std::memory_order_acquire);
    while (one && (one->form != form || one->storage != storage)) one = one->next;
    return one;
  }
  std::mutex making_;
  std::atomic<One*> first_{nullptr};
  int count_ = 0;
};

// Instructions that run as one loop. It runs at the position of its last member.
struct CompiledLoop {
  std::vector<int> members, inputs, constants, outputs;  // instructions; outputs are members that others read
  std::unique_ptr<Code> code;
  // The same, with results that bypass the caches; null if not all of them are F32 that nobody but a store reads.
  std::unique_ptr<Code> streaming;
  // A second loop that adds up what F32 sums fold: for rows that are folded one by one. It writes no values that
  // nobody else reads.
  std::vector<int> folds;   // of members, and of inputs
  std::vector<int> stored;  // the outputs that others than these read
  std::unique_ptr<Code> folding;
  // A third one for columns, if nothing else is written: sixteen of them at once, one folded point after the other.
  std::unique_ptr<Code> columns;
  bool ahead = false;  // the loops fetch what lies ahead of their inputs
  std::shared_ptr<const std::vector<npu_instr>> program;
  std::unique_ptr<Variants> variants = std::make_unique<Variants>();
  int at() const { return members.back(); }
  // The plain, the streaming or the folding loop for operands that are stored this way.
  const Code* variant(Form form, uint64_t storage) const;
};

bool can_compile();                               // on this processor, as long as the system allows it
bool can_compile(const npu_instr& in, int type);  // `type`: of its first argument
// Fills loop.code and the other forms. False: more values at once than there are registers, or no memory to execute.
// `streams`: the outputs may bypass the caches.
bool compile(CompiledLoop& loop, bool streams);

template <class F>
const Code* Variants::find(Form form, uint64_t storage, F make) {
  if (const One* one = look(form, storage)) return one->code.get();
  std::lock_guard lock(making_);
  if (const One* one = look(form, storage)) return one->code.get();
  if (count_ == kMostVariants) return nullptr;
  ++count_;
  first_.store(new One{form, storage, make(), first_.load(std::memory_order_relaxed)}, std::memory_order_release);
  return look(form, storage)->code.get();
}

}  // namespace cmodel
