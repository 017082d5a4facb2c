#include "drivers/cmodel/engine/reduce.h"

#include <algorithm>
#include <cstdlib>

#include "drivers/cmodel/engine/reduce_columns.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel {
namespace {

constexpr int64_t kNearRow = 1 << 15;  // of up to this many values the next row fits the second cache

}  // namespace

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
}

void Reduce::run() {
  if (kept_.total == 0 || run_by_loops()) return;
  const int64_t m = inner_.total;
  const int64_t cost = std::max<int64_t>(plan_.each_cost, 200) * std::max<int64_t>(m, 1);  // ps per row
  const int64_t rows_per_chunk = std::max<int64_t>(1, 10'000'000 / cost);
  if (lanes_ && use_lanes()) {
    const int64_t share = (kept_.total + pool_threads() - 1) / pool_threads();
    block_ = std::clamp<int64_t>((share + 15) / 16 * 16, 32, block_of(plan_));
    Space kept = kept_;
    kept.widen_tiles(512);  // small images
    const Tiling tiling(kept, views_, block_, false);
    parallel_for(tiling.count(), std::max<int64_t>(1, rows_per_chunk / tiling.points()),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end && !sink_.failed(); ++i) run_lanes(tiling, i);
                   stream_fence();
                 });
  } else if (batches(m)) {
    const int64_t limit = block_of(plan_);
    const int64_t last = kept_.size[kept_.rank - 1];
    const int64_t most = std::min(last, m <= limit / 2 ? limit / m : std::clamp<int64_t>(rows_per_chunk, 8, kBlock));
    const int64_t per_outer = (last + most - 1) / most;
    parallel_for(kept_.total / last * per_outer, std::max<int64_t>(1, rows_per_chunk / most),
                 [&](int64_t begin, int64_t end) {
                   Frame& f = frame();
                   for (int64_t i = begin; i < end && !sink_.failed(); ++i) {
                     const int64_t first = i % per_outer * most;
                     run_batch(f, i / per_outer * last + first, std::min(most, last - first));
                   }
                   stream_fence();
                 });
  } else {
    find_buffered();
    const Tiling tiles(inner_, views_, block_, false);
    const bool few = kept_.total < 2 * pool_threads() && tiles.count() > 8 && pool_threads() > 1;
    if (few) {
      buffered_ = false;
      streams_ = streamed_operands(job_);
      Frame& f = frame();
      for (int64_t row = 0; row < kept_.total; ++row) run_single(f, tiles, row, true);
    } else {
      parallel_for(kept_.total, rows_per_chunk, [&](int64_t begin, int64_t end) {
        Frame& f = frame();
        if (kept_.rank && inner_.total <= kNearRow && inner_.total * kept_.total >= kFarPoints)
          f.next_row = kept_.stride[kept_.rank - 1];
        for (int64_t row = begin; row < end && !sink_.failed(); ++row) run_single(f, tiles, row, false);
        stream_fence();
      });
    }
  }
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

bool Reduce::use_lanes() const {
  if (kept_.rank == 0 || kept_.total < 16) return false;
  if (inner_.total <= 8) return true;
  if (leader_ == kNone) return false;
  const int64_t kept = std::llabs(kept_.stride[kept_.rank - 1][leader_]);
  const int64_t inner = std::llabs(inner_.stride[inner_.rank - 1][leader_]);
  // One line of memory holds several rows' values, and none of the next folded point's.
  const bool near = kept == 1 ? inner != 1 : kept > 0 && kept <= 16 && inner >= 16 * kept;
  if (kept_.size[kept_.rank - 1] >= 16 && near) return true;
  return inner_.rank > 1 && inner_.total <= 64;  // pooling windows
}

bool Reduce::batches(int64_t m) const {
  if (inner_.rank != 1 || m == 0 || kept_.rank == 0 || kept_.size[kept_.rank - 1] == 1) return false;
  return m <= block_of(plan_) / 2 || (kept_.total >= 2 * pool_threads() && each_ == 1 && plain(plan_.segments[0]));
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
    if (buffered_ && op.step == Step::kLoad && !op.row_buffer)
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
