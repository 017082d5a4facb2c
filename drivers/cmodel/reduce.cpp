// REDUCE. Rows are points of the kept dimensions; the folded dimensions are walked inside. Three ways:
//   single: one row at a time, tiles inside the row (threads share the rows, or one row's tiles if rows are few);
//   batch:  short rows, several in one tile;
//   lanes:  many rows at once, one folded point at a time: column sums, pooling windows, folds of a few values.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "drivers/cmodel/exec.h"
#include "drivers/cmodel/fold.h"
#include "drivers/cmodel/pool.h"
#include "drivers/cmodel/reduce_columns.h"

namespace cmodel {
namespace {

constexpr int64_t kFarPoints = 1 << 19;  // as many values are not in the second cache: the next row is fetched ahead
constexpr int64_t kNearRow = 1 << 15;    // of up to this many values the next row fits the second cache
constexpr int kMaxPieces = 32;           // of one row, in a fixed order: results do not depend on who ran first

class Reduce {
 public:
  Reduce(const Job& job, FailureSink& sink) : job_(job), plan_(*job.program->plan), sink_(sink) {
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
    for (const Segment& segment : plan_.segments) {
      each_ += segment.kind == NPU_SEGMENT_EACH;
      plain_.push_back(find_plain(segment));
      columns_.push_back(sums_columns(job, segment, kept_, inner_));
    }
  }

  void run() {
    if (kept_.total == 0) return;
    const int64_t m = inner_.total;
    const int64_t cost = std::max<int64_t>(plan_.each_cost, 200) * std::max<int64_t>(m, 1);  // ps per row
    const int64_t rows_per_chunk = std::max<int64_t>(1, 10'000'000 / cost);
    if (lanes_ && use_lanes()) {
      const int64_t share = (kept_.total + pool_threads() - 1) / pool_threads();
      block_ = std::clamp<int64_t>((share + 15) / 16 * 16, 32, block_of(plan_));
      const Tiling tiling(kept_, views_, block_, false);
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

 private:
  // The operand whose memory decides how the space is walked: the one that the most folded dimensions move.
  void find_leader(int split) {
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

  // Are neighbours in memory neighbours in the kept dimensions, or rows so short that other ways have nothing to do?
  bool use_lanes() const {
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

  // Several rows in one tile: short ones, or rows that folds read from memory.
  bool batches(int64_t m) const {
    if (inner_.rank != 1 || m == 0 || kept_.rank == 0 || kept_.size[kept_.rank - 1] == 1) return false;
    return m <= block_of(plan_) / 2 || (kept_.total >= 2 * pool_threads() && each_ == 1 && plain(plan_.segments[0]));
  }

  // Does the segment only fold values that lie side by side in memory, in the type of the fold?
  bool find_plain(const Segment& segment) const {
    if (segment.plain_load == kNone || inner_.rank == 0) return false;
    const Op& load = plan_.ops[segment.plain_load];
    const Operand& operand = job_.operands[load.imm];
    // What other operands do keeps dimensions apart that are one for this load. Coordinates follow one dimension.
    if (segment.plain_index != kNone && inner_.rank != 1) return false;
    return !operand.immediate && operand.dtype == load.dtype && lies_dense(load.view);
  }
  bool plain(const Segment& segment) const { return plain_[static_cast<size_t>(&segment - plan_.segments.data())]; }

  const char* plain_values(const Segment& segment, const int64_t* offset) const {
    const Op& load = plan_.ops[segment.plain_load];
    return job_.operands[load.imm].ptr + (offset[load.view] << log_size_of(load.dtype));
  }

  // The coordinate of folded point `from`, and how far apart those behind it are.
  void plain_index(const Segment& segment, const int64_t* offset, int64_t from, int64_t* first, int64_t* step) const {
    if (segment.plain_index == kNone) return;
    const int view = plan_.ops[segment.plain_index].view;
    *step = inner_.stride[0][view];
    *first = offset[view] + from * *step;
  }

  // Rows one by one: what is known of them besides.
  void find_buffered() {
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

  // Are the folded points neighbours in memory, in their order?
  bool lies_dense(int view) const {
    int64_t next = 1;
    for (int d = inner_.rank - 1; d >= 0; --d) {
      if (inner_.stride[d][view] != next) return false;
      next *= inner_.size[d];
    }
    return true;
  }

  char* result(Frame& f, size_t segment, int slot) const { return f.temp(results_[segment] + slot); }

  static void publish(Frame& f, const FoldPlan& fold, char* const* members, bool uniform) {
    for (int k = 0; k < fold.members; ++k)
      for (int id : fold.gets[k]) f.val[id] = {members[k], uniform};
  }

  Frame& frame() const {
    Frame& f = prepare(job_, sink_, std::max(block_, kBlock), extra_);
    f.streams = streams_;
    f.folding = true;
    return f;
  }

  void run_single(Frame& f, const Tiling& tiles, int64_t row, bool parallel) {
    int64_t base[kMaxViews];
    std::memset(base, 0, sizeof(int64_t) * static_cast<size_t>(views_));
    kept_.add_offsets(row, views_, base);
    // Its element 0 is that of the operand, which may be far away.
    if (buffered_)
      f.row_buffer = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(f.temp(row_buffer_)) -
                                             static_cast<uintptr_t>(base[plan_.row_view] * 4));
    for (size_t s = 0; s < plan_.segments.size(); ++s) {
      const Segment& segment = plan_.segments[s];
      if (segment.kind == NPU_SEGMENT_COMBINE) continue;
      if (segment.kind == NPU_SEGMENT_ROW) {
        Tile tile;
        std::memcpy(tile.offset, base, sizeof(int64_t) * static_cast<size_t>(views_));
        tile.row_stride = tile.col_stride = kZeroStrides;
        tile.position = row;
        run_tile(f, segment.begin, segment.end, tile);
        continue;
      }
      Acc acc[NPU_MAX_FOLDS];
      if (parallel)
        fold_pieces(f, segment, tiles, base, row, acc);
      else
        fold_tiles(f, segment, tiles, 0, tiles.count(), base, row, acc);
      int slot = 0;
      for (size_t k = 0; k < segment.folds.size(); ++k) {
        const FoldPlan& fold = segment.folds[k];
        char* members[NPU_MAX_TUPLE];
        for (int j = 0; j < fold.members; ++j) members[j] = result(f, s, slot + j);
        finish(fold, acc[k], members, 0);
        publish(f, fold, members, true);
        slot += fold.members + 1;
      }
    }
  }

  void fold_tiles(Frame& f, const Segment& segment, const Tiling& tiles, int64_t first, int64_t last,
                  const int64_t* base, int64_t row, Acc* acc) const {
    for (size_t k = 0; k < segment.folds.size(); ++k) begin(segment.folds[k], acc[k]);
    if (plain(segment)) {
      // Where dimensions stay apart, tiles differ in size.
      const auto start = [&](int64_t tile) {
        return inner_.rank == 1 ? std::min(inner_.total, tile * tiles.points()) : inner_.total * tile / tiles.count();
      };
      const int64_t from = start(first), to = start(last);
      const int log_size = log_size_of(segment.folds[0].member_dtype[0]);
      int64_t index = 0, step = 0;
      plain_index(segment, base, from, &index, &step);
      const char* values = plain_values(segment, base) + (from << log_size);
      const int64_t row_stride = kept_.rank ? kept_.stride[kept_.rank - 1][plan_.ops[segment.plain_load].view] : 0;
      const bool fetch = to - from <= kPlainBlock && inner_.total * kept_.total >= kFarPoints;
      return accumulate_plain(*f.k, segment.folds[0], acc[0], values, to - from, index, step,
                              fetch ? values + row_stride * (int64_t{1} << log_size) : nullptr);
    }
    if (gathers(segment)) return fold_gathered(f, segment, tiles, first, last, base, acc[0]);
    Tile tile;
    for (int64_t i = first; i < last; ++i) {
      tiles.at(i, base, tile);
      tile.position = row;
      run_tile(f, segment.begin, segment.end, tile);
      for (size_t k = 0; k < segment.folds.size(); ++k) accumulate(f, segment.folds[k], &acc[k], 1, tile.n);
    }
  }

  // As a plain one, but the values lie apart or are of another type: they are collected first, block by block.
  bool gathers(const Segment& segment) const {
    return segment.plain_load != kNone && inner_.rank == 1 &&
           !job_.operands[plan_.ops[segment.plain_load].imm].immediate;
  }

  void fold_gathered(Frame& f, const Segment& segment, const Tiling& tiles, int64_t first, int64_t last,
                     const int64_t* base, Acc& acc) const {
    const Op& load = plan_.ops[segment.plain_load];
    const Operand& operand = job_.operands[load.imm];
    const int log_size = log_size_of(operand.dtype);
    const int64_t stride = inner_.stride[0][load.view], end = std::min(inner_.total, last * tiles.points());
    char* values = f.slot(load.slot);
    char* raw = operand.dtype == load.dtype ? values : f.temp(0);
    for (int64_t i = first * tiles.points(); i < end; i += kBlock) {
      const int64_t m = std::min(kBlock, end - i);
      const char* from = operand.ptr + (base[load.view] + i * stride) * (int64_t{1} << log_size);
      if (stride != 1) f.k->gather[log_size](raw, from, stride, m);
      if (raw != values) f.k->convert[operand.dtype][load.dtype](values, stride == 1 ? from : raw, m);
      int64_t index = 0, step = 0;
      plain_index(segment, base, i, &index, &step);
      accumulate_plain(*f.k, segment.folds[0], acc, values, m, index, step);
    }
  }

  void fold_pieces(Frame& f, const Segment& segment, const Tiling& tiles, const int64_t* base, int64_t row,
                   Acc* acc) const {
    const int64_t count = tiles.count(), pieces = std::min<int64_t>(kMaxPieces, count);
    std::vector<Acc> parts(static_cast<size_t>(pieces) * NPU_MAX_FOLDS);
    std::vector<Ref> rows;
    for (int id : segment.row_values) rows.push_back(f.val[id]);
    parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      Frame& own = frame();
      for (size_t k = 0; k < rows.size(); ++k) own.val[segment.row_values[k]] = rows[k];
      for (int64_t p = begin; p < end; ++p)
        fold_tiles(own, segment, tiles, count * p / pieces, count * (p + 1) / pieces, base, row,
                   &parts[static_cast<size_t>(p) * NPU_MAX_FOLDS]);
      stream_fence();
    });
    for (size_t k = 0; k < segment.folds.size(); ++k) {
      acc[k] = parts[k];
      for (int64_t p = 1; p < pieces; ++p)
        merge(f, segment.folds[k], acc[k], parts[static_cast<size_t>(p) * NPU_MAX_FOLDS + k]);
    }
  }

  // Rows first .. first + rows, neighbours in the last kept dimension, in one tile of rows x m.
  void run_batch(Frame& f, int64_t first, int64_t rows) {
    const int64_t m = inner_.total;
    Tile each, row;
    std::memset(each.offset, 0, sizeof(int64_t) * static_cast<size_t>(views_));
    kept_.add_offsets(first, views_, each.offset);
    std::memcpy(row.offset, each.offset, sizeof(int64_t) * static_cast<size_t>(views_));
    each.rows = rows;
    each.cols = m;
    each.n = rows * m;
    each.row_stride = kept_.stride[kept_.rank - 1];
    each.col_stride = inner_.stride[0];
    row.cols = row.n = rows;
    row.row_stride = kZeroStrides;
    row.col_stride = kept_.stride[kept_.rank - 1];
    each.position = row.position = first;
    std::vector<Acc>& acc = accumulators();
    acc.resize(static_cast<size_t>(rows));
    std::vector<Ref> saved;
    for (size_t s = 0; s < plan_.segments.size(); ++s) {
      const Segment& segment = plan_.segments[s];
      if (segment.kind == NPU_SEGMENT_COMBINE) continue;
      if (segment.kind == NPU_SEGMENT_ROW) {
        run_tile(f, segment.begin, segment.end, row);
        continue;
      }
      if (plain(segment)) {
        const FoldPlan& fold = segment.folds[0];
        const int view = plan_.ops[segment.plain_load].view, log_size = log_size_of(fold.member_dtype[0]);
        const char* values = plain_values(segment, each.offset);
        const int64_t step = each.row_stride[view] << log_size;
        int64_t index = 0, index_step = 0, index_row = 0;
        plain_index(segment, each.offset, 0, &index, &index_step);
        if (segment.plain_index != kNone) index_row = each.row_stride[plan_.ops[segment.plain_index].view];
        char* members[NPU_MAX_TUPLE];
        for (int j = 0; j < fold.members; ++j) members[j] = result(f, s, j);
        Acc start;
        begin(fold, start);
        const bool one_call = m <= kPlainBlock && fold.kind <= NPU_FOLD_XOR;
        const Fold kernel = one_call ? f.k->fold[fold.kind][type_class(fold.member_dtype[0])] : nullptr;
        for (int64_t r = 0; r < rows && one_call; ++r) kernel(members[0] + (r << log_size), values + r * step, m);
        for (int64_t r = 0; r < rows && !one_call; ++r) {
          Acc one = start;
          accumulate_plain(*f.k, fold, one, values + r * step, m, index + r * index_row, index_step);
          finish(fold, one, members, r);
        }
        publish(f, fold, members, rows == 1);
        continue;
      }
      // In this segment a value of a row stands beside each of the row's elements.
      saved.clear();
      for (size_t k = 0; k < segment.row_values.size(); ++k) {
        const int id = segment.row_values[k];
        saved.push_back(f.val[id]);
        if (f.val[id].uniform || rows == 1) {
          f.val[id].uniform = true;
          continue;
        }
        if (segment.row_values_computed && m >= 32) {
          f.val[id].axis = kRows;
          continue;
        }
        const int log_size = log_size_of(plan_.ops[id].dtype);
        char* to = f.temp(expanded_ + static_cast<int>(k));
        for (int64_t r = 0; r < rows; ++r)
          f.k->gather[log_size](to + ((r * m) << log_size), f.val[id].ptr + (r << log_size), 0, m);
        f.val[id].ptr = to;
      }
      run_tile(f, segment.begin, segment.end, each);
      int slot = 0;
      for (const FoldPlan& fold : segment.folds) {
        for (Acc& a : acc) begin(fold, a);
        accumulate(f, fold, acc.data(), rows, m);
        char* members[NPU_MAX_TUPLE];
        for (int j = 0; j < fold.members; ++j) members[j] = result(f, s, slot + j);
        for (int64_t r = 0; r < rows; ++r) finish(fold, acc[static_cast<size_t>(r)], members, r);
        publish(f, fold, members, rows == 1);
        slot += fold.members + 1;
      }
      for (size_t k = 0; k < segment.row_values.size(); ++k) f.val[segment.row_values[k]] = saved[k];
    }
  }

  static std::vector<Acc>& accumulators() {
    thread_local std::vector<Acc> list;
    return list;
  }

  // Can the lanes of this tile be folded straight from memory, many folded points in one call?
  bool folds_rows(const Frame& f, const Segment& segment, const Tile& row) const {
    if (segment.plain_load == kNone || inner_.rank == 0 || !lanes_fold_rows(*f.k, segment.folds[0])) return false;
    const Op& load = plan_.ops[segment.plain_load];
    const Operand& operand = job_.operands[load.imm];
    return !operand.immediate && operand.dtype == load.dtype && row.col_stride[load.view] == 1 &&
           (row.rows == 1 || row.cols >= 16);
  }

  // One tile of kept points; the folded points one after the other.
  void run_lanes(const Tiling& tiling, int64_t index) {
    Frame& f = frame();
    f.folding = false;
    Tile row, each;
    tiling.at(index, nullptr, row);
    for (size_t s = 0; s < plan_.segments.size(); ++s) {
      const Segment& segment = plan_.segments[s];
      if (segment.kind == NPU_SEGMENT_COMBINE) continue;
      if (segment.kind == NPU_SEGMENT_ROW) {
        run_tile(f, segment.begin, segment.end, row);
        continue;
      }
      Lanes lanes[NPU_MAX_FOLDS];
      int slot = 0;
      for (size_t k = 0; k < segment.folds.size(); ++k) {
        for (int j = 0; j < segment.folds[k].members; ++j) lanes[k].member[j] = result(f, s, slot + j);
        lanes[k].partial = result(f, s, slot + segment.folds[k].members);
        slot += segment.folds[k].members + 1;
        begin(f, segment.folds[k], lanes[k], row.n);
      }
      each.rows = row.rows;
      each.cols = row.cols;
      each.n = row.n;
      each.row_stride = row.row_stride;
      each.col_stride = row.col_stride;
      each.position = row.position;
      std::memcpy(each.offset, row.offset, sizeof(int64_t) * static_cast<size_t>(views_));
      int64_t point[NPU_MAX_RANK] = {};
      const bool columns = columns_[s] && row.rows == 1;
      if (columns) sum_columns(f, segment, row, inner_, lanes);
      const bool whole = !columns && folds_rows(f, segment, row);
      for (int64_t i = 0; i < inner_.total && whole; i += inner_.size[inner_.rank - 1]) {
        const Op& load = plan_.ops[segment.plain_load];
        std::memcpy(each.offset, row.offset, sizeof(int64_t) * static_cast<size_t>(views_));
        inner_.add_offsets(i, views_, each.offset);
        accumulate_rows(f, segment.folds[0], lanes[0], plain_values(segment, each.offset),
                        inner_.stride[inner_.rank - 1][load.view], inner_.size[inner_.rank - 1], row,
                        row.row_stride[load.view]);
      }
      for (int64_t i = 0; i < inner_.total && !whole && !columns; ++i) {
        run_tile(f, segment.begin, segment.end, each);
        for (size_t k = 0; k < segment.folds.size(); ++k) accumulate(f, segment.folds[k], lanes[k], row.n);
        for (int d = inner_.rank - 1; d >= 0; --d) {
          const bool more = ++point[d] < inner_.size[d];
          const int64_t moved = more ? 1 : 1 - inner_.size[d];
          for (int v = 0; v < views_; ++v) each.offset[v] += moved * inner_.stride[d][v];
          if (more) break;
          point[d] = 0;
        }
      }
      for (size_t k = 0; k < segment.folds.size(); ++k) {
        finish(f, segment.folds[k], lanes[k], row.n);
        publish(f, segment.folds[k], lanes[k].member, row.n == 1);
      }
    }
  }

  const Job& job_;
  const Plan& plan_;
  FailureSink& sink_;
  Space kept_, inner_;
  int views_ = 0, leader_ = kNone, extra_ = 0, expanded_ = 0, each_ = 0;
  int row_buffer_ = 0;  // temporary
  bool lanes_ = true, buffered_ = false;
  int64_t block_ = kBlock;
  uint64_t streams_ = 0;
  std::vector<int> results_;           // first temporary of each segment's folds
  std::vector<char> plain_, columns_;  // of each segment: plain(), sums_columns()
};

}  // namespace

bool run_reduce(const Job& job, Failure& failure) {
  FailureSink sink;
  Reduce(job, sink).run();
  return sink.finish(failure);
}

}  // namespace cmodel
