// What surrounds the interpreter: values that are computed once per job, and compiled loops.
#include <algorithm>
#include <cstring>

#include "drivers/cmodel/interpreter/interpreter.h"
#include "drivers/cmodel/interpreter/loop_inputs.h"
#include "drivers/cmodel/interpreter/tile_memory.h"
#include "drivers/cmodel/interpreter/tuning.h"

namespace cmodel {

void hoist(Frame& f) {
  find_fixed(*f.job, f.fixed);
  Tile point;
  point.row_stride = point.col_stride = kZeroStrides;
  std::fill_n(point.offset, f.plan->views.size(), 0);
  for (int i : f.plan->invariants)
    if (f.fixed[i]) run_tile(f, i, i + 1, point);
  f.hoists = true;
}

namespace {

// One call of a compiled loop for a tile, or one per row of it: found out step by step, in the order of run().
class LoopCall {
 public:
  LoopCall(Frame& f, const CompiledLoop& loop, const Tile& tile)
      : f_(f), plan_(*f.plan), loop_(loop), tile_(tile), inputs_(static_cast<int>(loop.inputs.size())) {}

  void run() {
    for (size_t k = 0; k < loop_.constants.size(); ++k)
      std::memcpy(&args_.constant[k], &f_.scalar[loop_.constants[k]], sizeof(float));
    find_shape();
    find_narrow_outputs();
    find_inputs();
    find_outputs();
    find_sums();
    choose_code();
    run_rows();
  }

 private:
  // Along which directions the loop's values vary, and whether it runs once or once per row.
  void find_shape() {
    bool one_sided = false;
    for (int k = 0; k < inputs_; ++k) {
      const Ref& ref = f_.val[loop_.inputs[k]];
      if (ref.uniform) continue;
      axes_ |= ref.axis == kBoth ? 3u : unsigned{ref.axis};
      one_sided |= ref.axis != kBoth;
      storage_ |= storage_bits(ref.stored, k);
    }
    varies_ = axes_ == 3;
    n_ = axes_ == 0 ? 1 : axes_ == kRows ? tile_.rows : axes_ == kCols ? tile_.cols : tile_.n;
    folds_ = f_.folding && loop_.folding && varies_ && (tile_.cols >= kLanes || tile_.rows == 1 || f_.folds_tile);
    written_ = folds_ ? &loop_.stored : &loop_.outputs;
    outputs_ = static_cast<int>(written_->size());
    if (!varies_ || !(one_sided || (folds_ && !f_.folds_tile))) return;
    if (tile_.cols < (folds_ ? kLanes : kShortLoopRow) && tile_.rows > 1) {
      for (int id : loop_.inputs)
        if (!f_.val[id].uniform) expand_to_points(f_, id, tile_);
    } else {
      rows_ = tile_.rows;
      n_ = tile_.cols;
    }
  }

  // Results that the loop stores as bf16 or f16 itself, if it can be made for that.
  void find_narrow_outputs() {
    std::fill_n(narrow_, outputs_, nullptr);
    // All of them past the caches, in whole lines, or none.
    bool past = varies_ && f_.streams != 0 && loop_.streaming && !folds_ && (rows_ == 1 || n_ % (2 * kLanes) == 0);
    for (int k = 0; k < outputs_ && past; ++k) {
      const char* at = narrow_target(f_, output(k), tile_, true);
      past = at && reinterpret_cast<uintptr_t>(at) % 64 == 0;
    }
    for (int k = 0; k < outputs_ && varies_; ++k) {
      narrow_[k] = narrow_target(f_, output(k), tile_, past);
      if (narrow_[k]) storage_ |= storage_bits(f_.job->operands[plan_.ops[output(k).store].imm].dtype, inputs_ + k);
    }
    if (storage_ == 0) return;
    code_ = loop_.variant(folds_ ? Form::kFolding : past ? Form::kStreaming : Form::kPlain, storage_);
    if (code_) return;
    for (int id : loop_.inputs) widen(f_, id, tile_);
    std::fill_n(narrow_, outputs_, nullptr);
  }

  void find_inputs() {
    for (int k = 0; k < inputs_; ++k) {
      const Ref& ref = f_.val[loop_.inputs[k]];
      const Op& op = plan_.ops[loop_.inputs[k]];
      const int size = size_[k] = op.dtype == NPU_BOOL ? 1 : ref.stored ? 2 : 4;
      base_[k] = ref.ptr;
      per_row_[k] = rows_ > 1 && !ref.uniform && ref.axis == kRows;
      row_step_[k] = ref.uniform || (rows_ > 1 && ref.axis == kCols) ? 0 : per_row_[k] ? size : n_ * size;
      args_.step[k] = ref.uniform || per_row_[k] ? 0 : size * kLanes;
      const bool fetches = f_.next_row && op.step == Step::kLoad && !op.is(Trait::kRowBuffer) && args_.step[k] != 0 &&
                           (ref.stored || f_.job->operands[op.imm].dtype == NPU_F32);
      args_.ahead[k] = !fetches ? 0 : op.is(Trait::kLastLoad) ? size * f_.next_row[op.view] : kAheadBytes;
      if (ref.uniform) {
        copies_[k].set(ref.ptr, size == 1);
        base_[k] = copies_[k].bytes;
      }
    }
  }

  // Where results go: to memory, to a scalar, or to their slot.
  void find_outputs() {
    for (int k = 0; k < outputs_; ++k) {
      const int id = (*written_)[k];
      const Op& op = plan_.ops[id];
      size_[inputs_ + k] = op.dtype == NPU_BOOL ? 1 : narrow_[k] ? 2 : 4;
      out_[k] = narrow_[k];
      if (narrow_[k]) {
        f_.streamed[op.store] = true;
        continue;
      }
      if (varies_) stream_[k] = stream_target(f_, op, tile_);
      streams_ |= stream_[k].at != nullptr;
      if (varies_ && op.store != kNone) out_[k] = store_target(f_, op, tile_);
      if (!out_[k]) out_[k] = axes_ == 0 ? reinterpret_cast<char*>(&f_.scalar[id]) : f_.slot(op.slot);
      f_.val[id] = {out_[k], axes_ == 0, varies_ ? kBoth : static_cast<Axis>(axes_)};
    }
  }

  // Behind the count of rows: a sum for each, and each fold.
  void find_sums() {
    sums_ = folds_ ? loop_.folds.size() : 0;
    for (size_t k = 0; k < sums_; ++k) {
      const int fold = loop_.folds[k];
      char* slot = f_.slot(plan_.ops[fold].slot);
      totals_[k] = reinterpret_cast<double*>(slot);
      std::fill_n(totals_[k], rows_ + 1, 0.0);
      *totals_[k]++ = static_cast<double>(rows_);
      f_.val[fold] = {slot, false, kTotals};
    }
  }

  // A loop can stream whole lines of memory itself; else its results go out piece by piece.
  void choose_code() {
    bool lines = streams_ && loop_.streaming && !folds_ && !code_;
    for (int k = 0; k < outputs_ && lines; ++k) lines = stream_[k].whole_lines(rows_, n_);
    for (int k = 0; k < outputs_ && lines; ++k) out_[k] = stream_[k].at;
    streams_ &= !lines;
    if (!code_) code_ = (folds_ ? loop_.folding : lines ? loop_.streaming : loop_.code).get();
  }

  void run_rows() {
    const int64_t piece = streams_ ? kStreamBlock / 4 : n_;
    int64_t done = 0;  // streamed
    for (int64_t r = 0; r < rows_; ++r) {
      for (int k = 0; k < inputs_; ++k)
        if (per_row_[k]) copies_[k].set(base_[k] + r * row_step_[k], size_[k] == 1);
      for (int64_t c = 0; c < n_; c += piece) {
        for (int k = 0; k < inputs_; ++k) {
          const char* from = per_row_[k] ? copies_[k].bytes : base_[k] + r * row_step_[k];
          args_.pointer[k] = const_cast<char*>(from) + c / kLanes * args_.step[k];
        }
        for (int k = 0; k < outputs_; ++k) args_.pointer[inputs_ + k] = out_[k] + (r * n_ + c) * size_[inputs_ + k];
        const int64_t m = std::min(piece, n_ - c), end = r * n_ + c + m;
        (*code_)(args_, m);
        for (size_t k = 0; k < sums_; ++k) totals_[k][r] += total(args_.sums[k]);
        if (!streams_ || (end - done < piece && end < rows_ * n_)) continue;
        for (int k = 0; k < outputs_; ++k)
          if (stream_[k].at) stream_[k].write(f_, out_[k], size_[inputs_ + k] == 1 ? 0 : 2, done, end);
        done = end;
      }
    }
    // Folds may stand before the loop, so it does for them what the interpreter does elsewhere.
    if (folds_) return;
    for (int fold : loop_.folds) {
      widen(f_, plan_.ops[fold].a, tile_);
      expand_to_points(f_, plan_.ops[fold].a, tile_);
    }
  }

  const Op& output(int k) const { return plan_.ops[(*written_)[k]]; }

  Frame& f_;
  const Plan& plan_;
  const CompiledLoop& loop_;
  const Tile& tile_;
  const int inputs_;
  int outputs_ = 0;
  const std::vector<int>* written_ = nullptr;
  unsigned axes_ = 0;     // along which some input varies: kRows | kCols
  bool varies_ = false;   // along both
  bool folds_ = false;    // sums are added up
  bool streams_ = false;  // results go out piece by piece
  uint64_t storage_ = 0;
  int64_t rows_ = 1, n_ = 1;  // calls, and points of each
  const Code* code_ = nullptr;
  size_t sums_ = 0;
  // By input, then by output.
  const char* base_[kLoopPointers];
  int64_t row_step_[kLoopPointers];
  bool per_row_[kLoopPointers];
  int size_[kLoopPointers];
  char* narrow_[kLoopPointers];
  char* out_[kLoopPointers];
  StreamTarget stream_[kLoopPointers];
  double* totals_[NPU_MAX_FOLDS];
  LoopArguments args_;
  Copies copies_[kLoopPointers];
};

}  // namespace

void run_loop(Frame& f, const CompiledLoop& loop, const Tile& tile) {
  LoopCall(f, loop, tile).run();
}

}  // namespace cmodel
