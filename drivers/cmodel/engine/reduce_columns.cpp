#include "drivers/cmodel/engine/reduce_columns.h"

#include <algorithm>
#include <cstring>

#include "drivers/cmodel/engine/tuning.h"
#include "drivers/cmodel/interpreter/loop_inputs.h"

namespace cmodel {
namespace {

const CompiledLoop* loop_of(const Plan& plan, const Segment& segment) {
  const CompiledLoop* found = nullptr;
  for (const CompiledLoop& loop : plan.loops) {
    if (loop.at() < segment.begin || loop.at() >= segment.end) continue;
    if (found) return nullptr;
    found = &loop;
  }
  return found;
}

}  // namespace

bool sums_columns(const Job& job, const Segment& segment, const Space& kept, const Space& inner) {
  const Plan& plan = *job.program->plan;
  if (segment.kind != NPU_SEGMENT_EACH || kept.rank == 0 || inner.rank == 0) return false;
  const CompiledLoop* loop = loop_of(plan, segment);
  if (!loop || !loop->columns || loop->folds.size() != segment.folds.size()) return false;
  for (int i = segment.begin; i < segment.end; ++i) {
    const Op& op = plan.ops[i];
    if (op.step == Step::kNothing || op.step == Step::kLoop) continue;
    if (op.step != Step::kLoad || op.mask != NPU_NO_VALUE || op.dtype != NPU_F32) return false;
    const Operand& operand = job.operands[op.imm];
    const int64_t stride = kept.stride[kept.rank - 1][op.view];
    if (operand.immediate || operand.dtype != NPU_F32 || (stride != 0 && stride != 1)) return false;
  }
  return std::all_of(loop->inputs.begin(), loop->inputs.end(), [&](int id) { return plan.ops[id].dtype == NPU_F32; });
}

namespace {

class ColumnSums {
 public:
  ColumnSums(Frame& f, const Segment& segment, const Tile& tile, const Space& inner, Lanes* lanes)
      : f_(f), plan_(*f.plan), loop_(*loop_of(plan_, segment)), segment_(segment), inner_(inner), lanes_(lanes) {
    for (size_t k = 0; k < loop_.constants.size(); ++k)
      std::memcpy(&args_.constant[k], &f.scalar[loop_.constants[k]], sizeof(float));
    for (size_t k = 0; k < loop_.inputs.size(); ++k) bind(k, tile);
    for (size_t k = 0; k < loop_.folds.size(); ++k) {
      size_t s = 0;
      while (segment.folds[s].at != loop_.folds[k]) ++s;
      of_[k] = &lanes[s];
    }
  }

  // Folded points `first` .. first + m of the row that begins at `offset`, for n columns.
  void run(const int64_t* offset, int64_t first, int64_t m, int64_t n) {
    const size_t inputs = loop_.inputs.size();
    for (size_t k = 0; k < inputs; ++k) {
      if (!from_[k]) {
        args_.pointer[k] = fixed_[k];
        continue;
      }
      const float* at = from_[k] + offset[plan_.ops[loop_.inputs[k]].view] + first * stride_[k];
      if (!vector_[k])
        for (int64_t p = 0; p < m; ++p) std::fill_n(copies_[k][p], kLanes, at[p * stride_[k]]);
      args_.pointer[k] = reinterpret_cast<char*>(vector_[k] ? const_cast<float*>(at) : copies_[k][0]);
      args_.turn[k] = (vector_[k] ? kVectorBytes : 0) - m * args_.step[k];
    }
    for (size_t k = 0; k < loop_.folds.size(); ++k) args_.pointer[inputs + k] = of_[k]->partial;
    args_.points = m;
    (*loop_.columns)(args_, n);
    for (size_t s = 0; s < loop_.folds.size(); ++s) {
      lanes_[s].steps += m;
      settle(f_, segment_.folds[s], lanes_[s], n);
    }
  }

 private:
  static constexpr int64_t kVectorBytes = kLanes * sizeof(float);

  void bind(size_t k, const Tile& tile) {
    const int id = loop_.inputs[k];
    const Op& op = plan_.ops[id];
    if (id >= segment_.begin && op.step == Step::kLoad) {
      from_[k] = reinterpret_cast<const float*>(f_.job->operands[op.imm].ptr) + tile.offset[op.view];
      stride_[k] = inner_.stride[inner_.rank - 1][op.view];
      vector_[k] = tile.col_stride[op.view] == 1 || tile.cols == 1;
      args_.step[k] = vector_[k] ? stride_[k] * static_cast<int64_t>(sizeof(float)) : kVectorBytes;
      return;
    }
    args_.step[k] = 0;
    fixed_[k] = f_.val[id].ptr;
    args_.turn[k] = f_.val[id].uniform ? 0 : kVectorBytes;
    if (!f_.val[id].uniform) return;
    float value;
    std::memcpy(&value, f_.val[id].ptr, sizeof value);
    std::fill_n(copies_[k][0], kLanes, value);
    fixed_[k] = reinterpret_cast<char*>(copies_[k]);
  }

  Frame& f_;
  const Plan& plan_;
  const CompiledLoop& loop_;
  const Segment& segment_;
  const Space& inner_;
  Lanes* lanes_;
  LoopArguments args_;
  // What is the same for all columns of a folded point is held sixteen times.
  alignas(64) float copies_[kLoopPointers][kColumnPoints][kLanes];
  // By input.
  const float* from_[kLoopPointers] = {};  // of operands: at the first folded point of the tile
  char* fixed_[kLoopPointers] = {};        // of others
  int64_t stride_[kLoopPointers] = {};
  bool vector_[kLoopPointers] = {};
  Lanes* of_[NPU_MAX_FOLDS];  // by fold of the loop
};

}  // namespace

void sum_columns(Frame& f, const Segment& segment, const Tile& tile, const Space& inner, Lanes* lanes) {
  ColumnSums sums(f, segment, tile, inner, lanes);
  const int64_t row = inner.size[inner.rank - 1];
  for (int64_t i = 0; i < inner.total; i += row) {
    int64_t offset[kMaxViews] = {};
    inner.add_offsets(i, static_cast<int>(f.plan->views.size()), offset);
    for (int64_t r = 0; r < row; r += kColumnPoints) sums.run(offset, r, std::min(kColumnPoints, row - r), tile.n);
  }
}

}  // namespace cmodel
