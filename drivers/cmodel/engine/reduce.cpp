#include "drivers/cmodel/engine/reduce.h"

#include <algorithm>
#include <cstdlib>

#include "drivers/cmodel/choose/way.h"
#include "drivers/cmodel/engine/reduce_columns.h"

namespace cmodel {

Reduce::Reduce(const Job& job, FailureSink& sink) : job_(job), plan_(*job.program->plan), sink_(sink) {
  const int split = job.command.rank - job.command.inner_rank;
  kept_.set(job, plan_, 0, split);
  bool ordered = false;
  for (const Segment& segment : plan_.segments)
    for (const FoldPlan& fold : segment.folds) {
      ordered |= fold.kind == NPU_FOLD_CUSTOM;
      lanes_ &= lanes_can(fold, plan_.ops[fold.at]) && fold.kind != NPU_FOLD_CUSTOM;
    }
  find_leader(split);
  inner_.set(job, plan_, split, job.command.rank, ordered ? kNone : leader_);
  views_ = static_cast<int>(plan_.views.size());
  // Results of folds live to the end of the row; in front of them, copies of row values for batches.
  int next = kTemps + kFoldTemps;
  expanded_ = next;
  size_t most = 0;
  for (const Segment& segment : plan_.segments) most = std::max(most, segment.row_values.size());
  next += static_cast<int>(most);
  for (const Segment& segment : plan_.segments) {
    results_.push_back(next);
    for (const FoldPlan& fold : segment.folds) next += fold.members + 1;
  }
  row_buffer_ = next++;
  extra_ = next - kTemps;
  streams_ = streamed_operands(job);
  for (size_t s = 0; s < plan_.segments.size(); ++s) {
    const Segment& segment = plan_.segments[s];
    each_ += segment.kind == NPU_SEGMENT_EACH;
    plain_[s] = find_plain(segment);
    columns_[s] = sums_columns(job, segment, kept_, inner_);
  }
  row_cost_ = std::max<int64_t>(plan_.each_cost, kReducePoint) * std::max<int64_t>(inner_.total, 1);
}

void Reduce::run() {
  static constexpr Way<Reduce> kWays[] = {
      {"compiled loops by row", [](Reduce& r) { return r.refuses_loops(); },
       [](Reduce& r) { return r.run_by_loops(); }},
      {"lanes of rows", [](Reduce& r) { return r.refuses_lanes(); }, always<&Reduce::run_all_lanes>},
      {"batches of rows", [](Reduce& r) { return r.refuses_batches(); }, always<&Reduce::run_batches>},
      {"pieces of a row", [](Reduce& r) { return r.find_buffered(), r.refuses_pieces(); }, always<&Reduce::run_pieces>},
      {"rows", nullptr, always<&Reduce::run_rows>},
  };
  if (kept_.total != 0) run_first(job_.command, kWays, *this);
}

const char* Reduce::refuses_loops() const {
  if (kept_.rank == 0 || inner_.rank == 0) return "there is one row, or nothing to fold";
  if (streams_ != 0) return "results bypass the caches";
  if (inner_.size[inner_.rank - 1] < kShortestPiece) return "rows are of short pieces";
  if (inner_.total * kept_.total >= kFarPoints) return "values are not in the second cache";
  if (kept_.total < 2 * pool_threads()) return "there are few rows";
  return inner_.rank == 1 && inner_.total < kShortestLoopRow ? "rows are short" : nullptr;
}

const char* Reduce::refuses_lanes() const {
  if (!lanes_) return "a fold has no lanes";
  if (kept_.rank == 0 || kept_.total < kLanesRows) return "there are few rows";
  if (inner_.total <= kLanesFold) return nullptr;
  if (leader_ == kNone) return "no memory says which values are neighbours";
  const int64_t kept = std::llabs(kept_.stride[kept_.rank - 1][leader_]);
  const int64_t inner = std::llabs(inner_.stride[inner_.rank - 1][leader_]);
  // One line of memory holds several rows' values, and none of the next folded point's.
  const bool near = kept == 1 ? inner != 1 : kept > 0 && kept <= kLanesRows && inner >= kLanesRows * kept;
  if (kept_.size[kept_.rank - 1] >= kLanesRows && near) return nullptr;
  const bool window = inner_.rank > 1 && inner_.total <= kWindowFold;
  return window ? nullptr : "neighbours in memory are folded together";
}

void Reduce::run_all_lanes() {
  block_ = split_for_threads(kept_.total, kLanesLeast, block_of(plan_));
  Space kept = kept_;
  kept.widen_tiles(kSmallImage);
  const Tiling tiling(kept, views_, block_, false);
  parallel_for(tiling.count(), grain_for(row_cost_ * tiling.points()), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && !sink_.failed(); ++i) run_lanes(tiling, i);
    stream_fence();
  });
}

const char* Reduce::refuses_batches() const {
  const int64_t m = inner_.total;
  if (inner_.rank != 1 || m == 0) return "several dimensions are folded, or none";
  if (kept_.rank == 0 || kept_.size[kept_.rank - 1] == 1) return "there is one row";
  if (m <= block_of(plan_) / 2) return nullptr;
  if (kept_.total < 2 * pool_threads()) return "there are few rows";
  return each_ == 1 && plain(plan_.segments[0]) ? nullptr : "rows are long";
}

void Reduce::run_batches() {
  const int64_t m = inner_.total, limit = block_of(plan_), rows_per_chunk = grain_for(row_cost_);
  const int64_t most = m <= limit / 2 ? limit / m : std::clamp<int64_t>(rows_per_chunk, kBatchLeast, kBlock);
  each_piece(
      most, rows_per_chunk, [&]() -> Frame& { return frame(); },
      [&](Frame& f, int64_t first, int64_t rows) {
        if (!sink_.failed()) run_batch(f, first, rows);
      });
}

const char* Reduce::refuses_pieces() const {
  if (pool_threads() == 1) return "there is one thread";
  if (kept_.total >= 2 * pool_threads()) return "there are rows for all threads";
  return Tiling(inner_, views_, block_, false).count() > kFewTiles ? nullptr : "rows are short";
}

void Reduce::run_pieces() {
  buffered_ = false;
  streams_ = streamed_operands(job_);
  const Tiling tiles(inner_, views_, block_, false);
  Frame& f = frame();
  for (int64_t row = 0; row < kept_.total; ++row) run_single(f, tiles, row, true);
}

void Reduce::run_rows() {
  const Tiling tiles(inner_, views_, block_, false);
  parallel_for(kept_.total, grain_for(row_cost_), [&](int64_t begin, int64_t end) {
    Frame& f = frame();
    if (kept_.rank && inner_.total <= kNearRow && inner_.total * kept_.total >= kFarPoints)
      f.next_row = kept_.stride[kept_.rank - 1];
    for (int64_t row = begin; row < end && !sink_.failed(); ++row) run_single(f, tiles, row, false);
    stream_fence();
  });
}

void Reduce::find_leader(int split) {
  int most = -1;
  for (const Op& op : plan_.ops) {
    if (op.step != Step::kLoad || job_.operands[op.imm].immediate) continue;
    int moved = 0;
    for (int d = split; d < job_.command.rank; ++d)
      moved += job_.command.size[d] > 1 && job_.operands[op.imm].stride[d] != 0;
    if (moved > most) {
      most = moved;
      leader_ = op.view;
    }
  }
}

bool Reduce::find_plain(const Segment& segment) const {
  if (segment.plain_load == kNone || inner_.rank == 0) return false;
  const Op& load = plan_.ops[segment.plain_load];
  const Operand& operand = job_.operands[load.imm];
  // What other operands do keeps dimensions apart that are one for this load. Coordinates follow one dimension.
  if (segment.plain_index != kNone && inner_.rank != 1) return false;
  return !operand.immediate && operand.dtype == load.dtype && lies_dense(load.view);
}

void Reduce::find_buffered() {
  bool narrow = true, computes = false;
  for (const Segment& segment : plan_.segments)
    for (int i = segment.begin; i < segment.end && segment.kind == NPU_SEGMENT_EACH; ++i)
      computes |= plan_.ops[i].step == Step::kCompute;
  for (const Op& op : plan_.ops) {
    if (op.step == Step::kLoad || op.step == Step::kStore) narrow &= job_.operands[op.imm].dtype == NPU_F32;
    narrow &= op.step != Step::kIndex && op.step != Step::kLoadAt && op.step != Step::kCast;
  }
  // F32 in memory is read where it lies, and loops hold values in registers: tiles need no room in the first cache.
  block_ = narrow && !computes ? 2 * kBlock : block_of(plan_);
  const int view = plan_.row_view;
  buffered_ = plan_.row_operand != kNone && inner_.total <= kBlock * 2 && inner_.rank > 0 && lies_dense(view) &&
              job_.operands[plan_.row_operand].dtype == NPU_F32;
  for (const Op& op : plan_.ops)
    if (buffered_ && op.step == Step::kLoad && !op.is(Trait::kRowBuffer))
      buffered_ = job_.operands[op.imm].ptr != job_.operands[plan_.row_operand].ptr;
  if (buffered_) streams_ = streamed_operands(job_, true);
}

bool Reduce::lies_dense(int view) const {
  int64_t next = 1;
  for (int d = inner_.rank - 1; d >= 0; --d) {
    if (inner_.stride[d][view] != next) return false;
    next *= inner_.size[d];
  }
  return true;
}

bool run_reduce(const Job& job, Failure& failure) {
  FailureSink sink;
  Job own;
  Reduce(with_plan(job, own), sink).run();
  return sink.finish(failure);
}

}  // namespace cmodel
