// SCAN: running values along the last dimension. A tile goes through all segments before the next one starts, since a
// running value depends on earlier elements only.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "drivers/cmodel/choose/way.h"
#include "drivers/cmodel/engine/tuning.h"
#include "drivers/cmodel/interpreter/fold.h"
#include "drivers/cmodel/interpreter/interpreter.h"
#include "drivers/cmodel/threads/pool.h"

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
    static constexpr Way<Scan> kWays[] = {
        {"lanes of rows", [](Scan& s) { return s.refuses_lanes(); }, always<&Scan::run_all_lanes>},
        {"rows side by side", [](Scan& s) { return s.refuses_together(); }, always<&Scan::run_together>},
        {"rows", nullptr, always<&Scan::run_one_by_one>},
    };
    if (kept_.total == 0 || inner_.total == 0) return;
    row_cost_ = std::max<int64_t>(plan_.each_cost, kScanPoint) * inner_.total;
    run_first(job_.command, kWays, *this);
  }

 private:
  const char* refuses_lanes() const {
    if (!simple_) return nullptr;
    if (kept_.rank == 0 || kept_.total < kLanesRows) return "there are few rows";
    if (inner_.total <= kLanesFold) return nullptr;
    for (const Op& op : plan_.ops)
      if (op.step == Step::kLoad && inner_.rank > 0) {
        const bool across =
            std::llabs(inner_.stride[0][op.view]) != 1 && std::llabs(kept_.stride[kept_.rank - 1][op.view]) == 1;
        return across ? nullptr : "neighbours in memory are of one row";
      }
    return "nothing is loaded";
  }
  void run_all_lanes() {
    const Tiling tiling(kept_, views_, split_for_threads(kept_.total, kLanesLeast, block_of(plan_)), false);
    parallel_for(tiling.count(), grain_for(row_cost_ * tiling.points()), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end && !sink_.failed(); ++i) run_lanes(tiling, i);
    });
  }

  const char* refuses_together() {
    plain_ = find_plain();
    return plain_.kernel ? nullptr : "the program does more than load, scan and store, or its fold has no such kernel";
  }
  void run_together() {
    const Tiling tiles(inner_, views_, block_of(plan_), false);
    parallel_for(kept_.total, std::max<int64_t>(grain_for(row_cost_), kScanRows), [&](int64_t begin, int64_t end) {
      int64_t row = begin;
      for (; row + kScanRows <= end; row += kScanRows) run_rows(row);
      for (; row < end && !sink_.failed(); ++row) run_row(tiles, row);
    });
  }
  void run_one_by_one() {
    const Tiling tiles(inner_, views_, block_of(plan_), false);
    parallel_for(kept_.total, grain_for(row_cost_), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end && !sink_.failed(); ++row) run_row(tiles, row);
    });
  }

  // A program that only loads, scans and stores: rows can go side by side.
  struct Plain {
    ScanRows kernel = nullptr;
    int load = kNone, store = kNone;
    uint64_t first = 0;  // the running value before the row
  };
  Plain find_plain() const {
    Plain plain;
    int scan = kNone;
    for (size_t i = 0; i < plan_.ops.size(); ++i) {
      const Op& op = plan_.ops[i];
      if (op.step == Step::kNothing) continue;
      int* which = op.step == Step::kLoad    ? &plain.load
                   : op.step == Step::kScan  ? &scan
                   : op.step == Step::kStore ? &plain.store
                                             : nullptr;
      if (!which || *which != kNone || op.mask != NPU_NO_VALUE) return {};
      *which = static_cast<int>(i);
    }
    if (plain.load == kNone || scan == kNone || plain.store == kNone || inner_.rank != 1) return {};
    const Op& op = plan_.ops[scan];
    const int kind =
        plan_.segments[0].folds.empty() ? plan_.segments[1].folds[0].kind : plan_.segments[0].folds[0].kind;
    if (op.a != plain.load || plan_.ops[plain.store].a != scan || job_.operands[plan_.ops[plain.load].imm].immediate)
      return {};
    plain.kernel = kernels().scan_rows[kind][type_class(op.dtype)];
    plain.first = identity_bits(kind, op.dtype == NPU_F32 ? int{NPU_F64} : int{op.dtype});
    return plain;
  }

  void run_rows(int64_t row) {
    // Pieces of rows, gathered and converted where they are not in memory as the kernel wants them.
    constexpr int64_t kPiece = 512;
    alignas(64) char values[kScanRows][kPiece * 8], results[kScanRows][kPiece * 8], given[kPiece * 8];
    const Op &load = plan_.ops[plain_.load], &store = plan_.ops[plain_.store];
    const Operand &from = job_.operands[load.imm], &to = job_.operands[store.imm];
    const Kernels& k = kernels();
    const int type = load.dtype, from_log = log_size_of(from.dtype), to_log = log_size_of(to.dtype);
    const int64_t from_step = inner_.stride[0][load.view], to_step = inner_.stride[0][store.view];
    char *source[kScanRows], *target[kScanRows];
    uint64_t carry[kScanRows];
    for (int r = 0; r < kScanRows; ++r) {
      int64_t base[kMaxViews] = {};
      kept_.add_offsets(row + r, views_, base);
      source[r] = from.ptr + base[load.view] * (int64_t{1} << from_log);
      target[r] = to.ptr + base[store.view] * (int64_t{1} << to_log);
      carry[r] = plain_.first;
    }
    for (int64_t at = 0; at < inner_.total; at += kPiece) {
      const int64_t n = std::min(kPiece, inner_.total - at);
      const void* in[kScanRows];
      void* out[kScanRows];
      for (int r = 0; r < kScanRows; ++r) {
        const char* read = source[r] + at * from_step * (int64_t{1} << from_log);
        if (from_step != 1) {
          char* into = from.dtype == type ? values[r] : given;
          k.gather[from_log](into, read, from_step, n);
          read = into;
        }
        if (from.dtype != type) {
          k.convert[from.dtype][type](values[r], read, n);
          read = values[r];
        }
        in[r] = read;
        const bool straight = to_step == 1 && to.dtype == type;
        out[r] = straight ? target[r] + at * (int64_t{1} << to_log) : results[r];
      }
      plain_.kernel(out, in, n, carry);
      for (int r = 0; r < kScanRows; ++r) {
        if (out[r] != results[r]) continue;
        char* write = target[r] + at * to_step * (int64_t{1} << to_log);
        if (to.dtype == type) {
          k.scatter[to_log](write, to_step, results[r], n);
        } else if (to_step == 1) {
          k.convert[type][to.dtype](write, results[r], n);
        } else {
          k.convert[type][to.dtype](given, results[r], n);
          k.scatter[to_log](write, to_step, given, n);
        }
      }
    }
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
  int64_t row_cost_ = 0;  // picoseconds
  Plain plain_;
  std::vector<int> results_;
};

}  // namespace

bool run_scan(const Job& job, Failure& failure) {
  FailureSink sink;
  Scan(job, sink).run();
  return sink.finish(failure);
}

}  // namespace cmodel
