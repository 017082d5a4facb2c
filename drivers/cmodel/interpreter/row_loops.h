// An each segment over rows that lie dense in memory: which kernel or compiled loop reads and writes where is found out
// once, and from row to row only pointers move. Tiles would ask for each of them, which for rows of 32 to 256 values
// takes several times as long as the work.
#pragma once
#include <algorithm>

#include "drivers/cmodel/interpreter/fold.h"
#include "drivers/cmodel/interpreter/interpreter.h"
#include "drivers/cmodel/interpreter/loop_inputs.h"

namespace cmodel {

// Where the rows of a view lie.
struct RowView {
  char* first = nullptr;  // the first point of the first row
  int64_t along = 0;      // elements from point to point of a row
  bool moves = true;      // from row to row
};

class RowLoops {
 public:
  // `views` of the plan; rows have `cols` points. With `folds`, compiled loops add up what the segment folds.
  RowLoops(Frame& frame, const RowView* views, int64_t cols, bool folds)
      : f_(frame), views_(views), cols_(cols), folds_(folds) {}

  // False: the segment has something that rows do not do (masks, computed addresses, strides within a row, other folds
  // than sums); nothing was done then.
  bool plan(const Segment& segment);
  // Nothing but compiled loops runs: worth it for short rows, too.
  bool only_loops() const { return count_ == loops_; }

  struct Rows {
    const int64_t* offset;  // elements by view from their first points to the first row
    const int64_t* step;    // and from row to row
    int64_t count;
    int64_t number;   // which of the values that other segments have computed for rows belongs to the first one
    int64_t numbers;  // 0: all rows have the same number; 1: each has the one behind that of the last
  };
  // after(r): when row r is through, and its sums are added to those that take_sums() takes.
  template <class F>
  void run(const Rows& rows, F after) {
    if (!is_one_loop()) {
      int64_t offset[kMaxViews];
      std::copy_n(rows.offset, f_.plan->views.size(), offset);
      for (int64_t r = 0; r < rows.count; ++r) {
        run_row(offset, rows.number + r * rows.numbers);
        after(r);
        for (size_t v = 0; v < f_.plan->views.size(); ++v) offset[v] += rows.step[v];
      }
      return;
    }
    each_sums(rows, [&](int64_t r, const float* sums) {
      if (sums) add_sums(loop_[0], sums, cols_);
      after(r);
    });
  }
  void run(const Rows& rows) {
    run(rows, [](int64_t) {});
  }

  // What was added up since the last call, in the order of the segment's folds.
  void take_sums(const Segment& segment, Acc* acc);
  // The sums of each row by itself: out[fold][row], likewise.
  void run(const Rows& rows, const Segment& segment, float* const* out);

 private:
  static constexpr int kActions = 12, kLoops = 3;
  static constexpr size_t kMost = 256;       // instructions: what has more is no shorter for being planned
  static constexpr int64_t kPiece = kBlock;  // points of a row at once: what slots hold, and sums keep accurate
  static constexpr int64_t kSums = 16;       // rows with sums at once

  // A value along the current row. Nothing here has an initial value, so that tables of these and of actions cost
  // nothing until they are used: RowValue{} is all zeros.
  struct RowValue {
    char* at;
    int32_t size;    // bytes of an element in memory, where the row's offset says which; 0: `at` is all
    int16_t view;    // whose offset
    int16_t value;   // of another segment, one for each row: its number + 1
    bool uniform;    // one value for the row
    bool changes;    // which is another one for another row
    bool computed;   // by an action
    uint8_t stored;  // NPU_BF16 or NPU_F16: an F32 value as it lies in memory, for compiled loops
  };

  struct Loop {
    const Code* code;
    int pointers;  // args.step: of outputs, too
    RowValue values[kLoopPointers];
    LoopArguments args;
    Copies copies[kLoopPointers];
    const std::vector<int>* folds;  // null: none
    // The chains of several pieces, and how many points they hold; then what they came to.
    alignas(64) float chains[NPU_MAX_FOLDS][kLanes];
    int64_t points;
    double sums[NPU_MAX_FOLDS];
  };

  // What is done for each row: one of the four.
  struct Action {
    Kernel kernel;
    Convert convert;
    Loop* loop;
    bool normalizes;
    RowValue out, in[5];
    unsigned uniform;
    bool one;  // one value for the row
  };

  char* at(const RowValue& row_value, const int64_t* offset, int64_t number, int64_t col) const {
    if (row_value.value != 0) {
      const Ref& ref = f_.val[row_value.value - 1];
      return ref.ptr + (ref.uniform ? 0 : number * 4);
    }
    if (row_value.size == 0) return row_value.at;
    return row_value.at + (offset[row_value.view] + (row_value.uniform ? 0 : col)) * row_value.size;
  }
  // One call of a compiled loop is all there is to do.
  bool is_one_loop() const { return count_ == 1 && loops_ == 1 && cols_ <= kPiece; }
  void run_row(const int64_t* offset, int64_t number);
  // Of one loop. with(r, sums): the sixteen chains of each of the row's sums; null without any.
  template <class F>
  void each_sums(const Rows& rows, F with) {
    alignas(64) float sums[kSums * NPU_MAX_FOLDS * kLanes];
    const size_t folds = loop_[0].folds ? loop_[0].folds->size() : 0;
    const int64_t most = folds ? kSums : rows.count;
    for (int64_t first = 0; first < rows.count; first += most) {
      const int64_t count = std::min(most, rows.count - first);
      run_loop(loop_[0], rows, first, count, sums);
      for (int64_t r = 0; r < count; ++r)
        with(first + r, folds ? sums + static_cast<size_t>(r) * folds * kLanes : nullptr);
    }
  }
  // Rows first .. first + count.
  void run_loop(Loop& loop, const Rows& rows, int64_t first, int64_t count, float* sums) const;
  static void add_sums(Loop& loop, const float* sums, int64_t points);
  static void settle(Loop& loop);
  bool add(int i, const Op& op);
  bool add_load(int i, const Op& op);
  bool add_kernel(int i, const Op& op);
  bool add_normalize(int i, const Op& op);
  bool add_loop(const CompiledLoop& loop);
  bool add_store(const Op& op);
  // The value of an instruction, which may be one of another segment.
  bool find(int id, RowValue& row_value) const;
  // Where the value of `op` goes: to the memory of its store, if that takes it as it is, or to its slot.
  RowValue target(const Op& op, bool loop) const;
  Action* next() { return count_ < kActions ? &(action_[count_++] = Action{}) : nullptr; }
  RowValue in_memory(const Op& op, const Operand& operand) const {
    const RowView& view = views_[op.view];
    RowValue row_value{};
    row_value.at = view.first;
    row_value.size = 1 << log_size_of(operand.dtype);
    row_value.view = op.view;
    row_value.uniform = row_value.changes = view.along == 0;
    return row_value;
  }
  RowValue in_slot(const Op& op) const {
    RowValue row_value{};
    row_value.at = f_.slot(op.slot);
    return row_value;
  }
  static RowValue constant(char* at) {
    RowValue row_value{};
    row_value.at = at;
    row_value.uniform = true;
    return row_value;
  }

  Frame& f_;
  const RowView* views_;
  int64_t cols_;
  bool folds_;
  const Segment* segment_ = nullptr;
  RowValue row_values_[kMost];
  Action action_[kActions];
  Loop loop_[kLoops];
  int count_ = 0, loops_ = 0;
};

}  // namespace cmodel
