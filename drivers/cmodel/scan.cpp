// SCAN: running values along the last dimension. A tile goes through all segments before the next one starts, since a
// running value depends on earlier elements only.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "drivers/cmodel/exec.h"
#include "drivers/cmodel/fold.h"
#include "drivers/cmodel/pool.h"

namespace cmodel {
namespace {

class Scan {
 public:
  Scan(const Job& job, FailureSink& sink) : job_(job), plan_(*job.program->plan), sink_(sink) {
    const int rank = job.command.rank;
    kept_.set(job, plan_, 0, rank - 1);
    inner_.set(job, plan_, rank - 1, rank);
    views_ = static_cast<int>(plan_.views.size());
    int next = kTemps + kFoldTemps;
    for (const Segment& segment : plan_.segments) {
      results_.push_back(next);
      for (const FoldPlan& fold : segment.folds) {
        next += fold.members + 1;
        simple_ &= fold.kind <= NPU_FOLD_XOR;
      }
    }
    extra_ = next - kTemps;
  }

  void run() {
    if (kept_.total == 0 || inner_.total == 0) return;
    const int64_t cost = std::max<int64_t>(plan_.each_cost, 1000) * inner_.total;  // ps per row
    const int64_t grain = std::max<int64_t>(1, 10'000'000 / cost);
    if (!simple_ || use_lanes()) {
      const int64_t share = (kept_.total + pool_threads() - 1) / pool_threads();
      const Tiling tiling(kept_, views_, std::clamp<int64_t>((share + 15) / 16 * 16, 32, block_of(plan_)), false);
      parallel_for(tiling.count(), std::max<int64_t>(1, grain / tiling.points()), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end && !sink_.failed(); ++i) run_lanes(tiling, i);
      });
      return;
    }
    const Tiling tiles(inner_, views_, block_of(plan_), false);
    parallel_for(kept_.total, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end && !sink_.failed(); ++row) run_row(tiles, row);
    });
  }

 private:
  bool use_lanes() const {
    if (kept_.rank == 0 || kept_.total < 16) return false;
    if (inner_.total <= 8) return true;
    for (const Op& op : plan_.ops)
      if (op.step == Step::kLoad && inner_.rank > 0)
        return std::llabs(inner_.stride[0][op.view]) != 1 && std::llabs(kept_.stride[kept_.rank - 1][op.view]) == 1;
    return false;
  }

  static void publish(Frame& f, const FoldPlan& fold, int member, char* values, bool uniform) {
    for (int id : fold.gets[member]) f.val[id] = {values, uniform};
  }

  void run_row(const Tiling& tiles, int64_t row) {
    Frame& f = prepare(job_, sink_, kBlock, extra_);
    int64_t base[kMaxViews] = {};
    kept_.add_offsets(row, views_, base);
    // One running value per scan, in the type that the kernel carries.
    std::vector<uint64_t> carry;
    for (const Segment& segment : plan_.segments)
      for (const FoldPlan& fold : segment.folds) {
        const int dtype = fold.member_dtype[0];
        const bool wide = dtype == NPU_F32 && fold.kind <= NPU_FOLD_PROD;
        carry.push_back(identity_bits(fold.kind, wide ? int{NPU_F64} : dtype));
      }
    Tile tile;
    for (int64_t i = 0; i < tiles.count(); ++i) {
      tiles.at(i, base, tile);
      tile.position = row;
      size_t number = 0;
      for (size_t s = 0; s < plan_.segments.size(); ++s) {
        const Segment& segment = plan_.segments[s];
        run_tile(f, segment.begin, segment.end, tile);
        int slot = results_[s];
        for (const FoldPlan& fold : segment.folds) {
          const Op& op = plan_.ops[fold.at];
          const char* values = dense(f, f.val[op.a], op.dtype, tile.n, f.temp(kTemps));
          char* out = f.temp(slot);
          f.k->scan[fold.kind][type_class(op.dtype)](out, values, tile.n, &carry[number++]);
          publish(f, fold, 0, out, tile.n == 1);
          slot += fold.members + 1;
        }
      }
    }
  }

  void run_lanes(const Tiling& tiling, int64_t index) {
    Frame& f = prepare(job_, sink_, kBlock, extra_);
    Tile tile;
    tiling.at(index, nullptr, tile);
    std::vector<Lanes> lanes;
    for (size_t s = 0; s < plan_.segments.size(); ++s) {
      int slot = results_[s];
      for (const FoldPlan& fold : plan_.segments[s].folds) {
        Lanes l;
        for (int j = 0; j < fold.members; ++j) l.member[j] = f.temp(slot + j);
        l.partial = f.temp(slot + fold.members);
        begin(f, fold, l, tile.n);
        // A running sum shows every step, so it has no second level.
        if (fold.kind == NPU_FOLD_SUM) l.partial = l.member[0];
        lanes.push_back(l);
        slot += fold.members + 1;
      }
    }
    for (int64_t i = 0; i < inner_.total; ++i) {
      size_t number = 0;
      for (const Segment& segment : plan_.segments) {
        if (segment.kind == NPU_SEGMENT_COMBINE) continue;
        run_tile(f, segment.begin, segment.end, tile);
        for (const FoldPlan& fold : segment.folds) {
          Lanes& l = lanes[number++];
          if (fold.kind == NPU_FOLD_SUM)
            step_sum(f, fold, l, tile.n);
          else
            accumulate(f, fold, l, tile.n);
          if (fold.kind == NPU_FOLD_WELFORD) finish(f, fold, l, tile.n);
          for (int j = 0; j < fold.members; ++j) publish(f, fold, j, l.member[j], tile.n == 1);
        }
      }
      if (inner_.rank)
        for (int v = 0; v < views_; ++v) tile.offset[v] += inner_.stride[0][v];
    }
  }

  static void step_sum(Frame& f, const FoldPlan& fold, Lanes& l, int64_t n) {
    const Ref x = f.val[f.plan->ops[fold.at].a];
    f.k->op[NPU_OP_ADD][type_class(fold.member_dtype[0])](l.member[0], l.member[0], x.ptr, nullptr, n,
                                                          x.uniform ? 2 : 0);
  }

  const Job& job_;
  const Plan& plan_;
  FailureSink& sink_;
  Space kept_, inner_;
  int views_ = 0, extra_ = 0;
  bool simple_ = true;
  std::vector<int> results_;
};

}  // namespace

bool run_scan(const Job& job, Failure& failure) {
  FailureSink sink;
  Scan(job, sink).run();
  return sink.finish(failure);
}

}  // namespace cmodel
