// What surrounds the interpreter: values that are computed once per job, and compiled loops.
#include <algorithm>
#include <cstring>

#include "drivers/cmodel/engine/one_instruction.h"
#include "drivers/cmodel/interpreter/interpreter.h"
#include "drivers/cmodel/interpreter/loop_inputs.h"
#include "drivers/cmodel/interpreter/tile_memory.h"

namespace cmodel {

int find_fixed(const Job& job, bool* fixed) {
  const Plan& plan = *job.program->plan;
  std::fill_n(fixed, plan.ops.size(), false);
  for (int i : plan.constants) fixed[i] = true;
  int cost = 0;
  for (int i : plan.invariants) {
    const Op& op = plan.ops[i];
    bool same = op.step != Step::kLoad || is_one_value(job.command, job.operands[op.imm]);
    const uint16_t ids[3] = {op.a, op.b, op.c};
    for (int k = 0; k < 3; ++k) same &= !(op.used >> k & 1) || fixed[ids[k]];
    fixed[i] = same;
    if (same) cost += op.cost;
  }
  return cost;
}

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

// The processor does not look beyond its page by itself.
constexpr int64_t kAheadBytes = 4096;
// Below this, a loop over a whole tile costs less than one per row, even if values per row or column are spread for it.
constexpr int64_t kShortRow = 48;

}  // namespace

void run_group(Frame& f, const Group& group, const Tile& tile) {
  const Plan& plan = *f.plan;
  const int inputs = static_cast<int>(group.inputs.size());
  LoopArguments args;
  for (size_t k = 0; k < group.constants.size(); ++k)
    std::memcpy(&args.constant[k], &f.scalar[group.constants[k]], sizeof(float));
  unsigned both = 0;
  bool one_sided = false;
  uint64_t storage = 0;
  for (int k = 0; k < inputs; ++k) {
    const Ref& ref = f.val[group.inputs[k]];
    if (ref.uniform) continue;
    both |= ref.axis == kBoth ? 3u : unsigned{ref.axis};
    one_sided |= ref.axis != kBoth;
    storage |= storage_bits(ref.stored, k);
  }
  const bool varies = both == 3;
  int64_t rows = 1, n = both == 0 ? 1 : both == kRows ? tile.rows : both == kCols ? tile.cols : tile.n;
  const bool folds = f.folding && group.folding && varies && (tile.cols >= kLanes || tile.rows == 1 || f.folds_tile);
  if (varies && (one_sided || (folds && !f.folds_tile))) {
    if (tile.cols < (folds ? kLanes : kShortRow) && tile.rows > 1) {
      for (int id : group.inputs)
        if (!f.val[id].uniform) spread(f, id, tile);
    } else {
      rows = tile.rows;
      n = tile.cols;
    }
  }
  const std::vector<int>& written = folds ? group.stored : group.outputs;
  const int outputs = static_cast<int>(written.size());
  char* narrow[kLoopPointers] = {};
  // All of them past the caches, in whole lines, or none.
  bool past = varies && f.streams != 0 && group.streaming && !folds && (rows == 1 || n % (2 * kLanes) == 0);
  for (int k = 0; k < outputs && past; ++k) {
    const char* at = narrow_target(f, plan.ops[written[k]], tile, true);
    past = at && reinterpret_cast<uintptr_t>(at) % 64 == 0;
  }
  for (int k = 0; k < outputs && varies; ++k) {
    const Op& op = plan.ops[written[k]];
    narrow[k] = narrow_target(f, op, tile, past);
    if (narrow[k]) storage |= storage_bits(f.job->operands[plan.ops[op.store].imm].dtype, inputs + k);
  }
  const Code* code = storage == 0 ? nullptr
                                  : group.variant(folds  ? Form::kFolding
                                                  : past ? Form::kStreaming
                                                         : Form::kPlain,
                                                  storage);
  if (storage != 0 && !code) {
    for (int id : group.inputs) widen(f, id, tile);
    std::fill_n(narrow, outputs, nullptr);
  }
  Copies copies[kLoopPointers];
  const char* base[kLoopPointers];
  int64_t row_step[kLoopPointers];
  int size[kLoopPointers];
  bool per_row[kLoopPointers];
  for (int k = 0; k < inputs; ++k) {
    const Ref& ref = f.val[group.inputs[k]];
    size[k] = plan.ops[group.inputs[k]].dtype == NPU_BOOL ? 1 : ref.stored ? 2 : 4;
    base[k] = ref.ptr;
    per_row[k] = rows > 1 && !ref.uniform && ref.axis == kRows;
    row_step[k] = ref.uniform || (rows > 1 && ref.axis == kCols) ? 0 : per_row[k] ? size[k] : n * size[k];
    args.step[k] = ref.uniform || per_row[k] ? 0 : size[k] * kLanes;
    const Op& op = plan.ops[group.inputs[k]];
    const bool fetches = f.next_row && op.step == Step::kLoad && !op.row_buffer && args.step[k] != 0 &&
                         (ref.stored || f.job->operands[op.imm].dtype == NPU_F32);
    args.ahead[k] = !fetches ? 0 : op.last_load ? size[k] * f.next_row[op.view] : kAheadBytes;
    if (ref.uniform) {
      copies[k].set(ref.ptr, size[k] == 1);
      base[k] = copies[k].bytes;
    }
  }
  char* out[kLoopPointers];
  StreamTarget stream[kLoopPointers];
  bool streams = false;
  for (int k = 0; k < outputs; ++k) {
    const int id = written[k];
    const Op& op = plan.ops[id];
    size[inputs + k] = op.dtype == NPU_BOOL ? 1 : narrow[k] ? 2 : 4;
    out[k] = narrow[k];
    if (narrow[k]) {
      f.streamed[op.store] = true;
      continue;
    }
    if (varies) stream[k] = stream_target(f, op, tile);
    streams |= stream[k].at != nullptr;
    if (varies && op.store != kNone) out[k] = direct_target(f, op, tile);
    if (!out[k]) out[k] = both == 0 ? reinterpret_cast<char*>(&f.scalar[id]) : f.slot(op.slot);
    f.val[id] = {out[k], both == 0, varies ? kBoth : static_cast<Axis>(both)};
  }
  const size_t sums = folds ? group.folds.size() : 0;
  double* totals[NPU_MAX_FOLDS];
  for (size_t k = 0; k < sums; ++k) {
    const int fold = group.folds[k];
    char* slot = f.slot(plan.ops[fold].slot);
    totals[k] = reinterpret_cast<double*>(slot);
    std::fill_n(totals[k], rows + 1, 0.0);
    *totals[k]++ = static_cast<double>(rows);
    f.val[fold] = {slot, false, kTotals};
  }
  // A loop can stream whole lines of memory itself; else its results go out piece by piece.
  bool lines = streams && group.streaming && !folds && !code;
  for (int k = 0; k < outputs && lines; ++k) lines = stream[k].whole_lines(rows, n);
  for (int k = 0; k < outputs && lines; ++k) out[k] = stream[k].at;
  streams &= !lines;
  if (!code) code = (folds ? group.folding : lines ? group.streaming : group.code).get();
  const int64_t piece = streams ? kStreamBlock / 4 : n;
  int64_t done = 0;  // streamed
  for (int64_t r = 0; r < rows; ++r) {
    for (int k = 0; k < inputs; ++k)
      if (per_row[k]) copies[k].set(base[k] + r * row_step[k], size[k] == 1);
    for (int64_t c = 0; c < n; c += piece) {
      for (int k = 0; k < inputs; ++k) {
        const char* from = per_row[k] ? copies[k].bytes : base[k] + r * row_step[k];
        args.pointer[k] = const_cast<char*>(from) + c / kLanes * args.step[k];
      }
      for (int k = 0; k < outputs; ++k) args.pointer[inputs + k] = out[k] + (r * n + c) * size[inputs + k];
      const int64_t m = std::min(piece, n - c), end = r * n + c + m;
      (*code)(args, m);
      for (size_t k = 0; k < sums; ++k) totals[k][r] += total(args.sums[k]);
      if (!streams || (end - done < piece && end < rows * n)) continue;
      for (int k = 0; k < outputs; ++k)
        if (stream[k].at) stream[k].write(f, out[k], size[inputs + k] == 1 ? 0 : 2, done, end);
      done = end;
    }
  }
  // Folds may stand before the loop, so it does for them what the interpreter does elsewhere.
  if (folds) return;
  for (int fold : group.folds) {
    widen(f, plan.ops[fold].a, tile);
    spread(f, plan.ops[fold].a, tile);
  }
}

}  // namespace cmodel
