#include "drivers/cmodel/engine/reduce_columns.h"

#include <algorithm>
#include <cstring>

namespace cmodel {
namespace {

constexpr int64_t kPoints = 8;  // folded points that meet in registers: each is a stream of memory of its own

const Group* group_of(const Plan& plan, const Segment& segment) {
  const Group* found = nullptr;
  for (const Group& group : plan.groups) {
    if (group.at() < segment.begin || group.at() >= segment.end) continue;
    if (found) return nullptr;
    found = &group;
  }
  return found;
}

}  // namespace

bool sums_columns(const Job& job, const Segment& segment, const Space& kept, const Space& inner) {
  const Plan& plan = *job.program->plan;
  if (segment.kind != NPU_SEGMENT_EACH || kept.rank == 0 || inner.rank == 0) return false;
  const Group* group = group_of(plan, segment);
  if (!group || !group->columns || group->folds.size() != segment.folds.size()) return false;
  for (int i = segment.begin; i < segment.end; ++i) {
    const Op& op = plan.ops[i];
    if (op.step == Step::kNothing || op.step == Step::kGroup) continue;
    if (op.step != Step::kLoad || op.mask != NPU_NO_VALUE || op.dtype != NPU_F32) return false;
    const Operand& operand = job.operands[op.imm];
    const int64_t stride = kept.stride[kept.rank - 1][op.view];
    if (operand.immediate || operand.dtype != NPU_F32 || (stride != 0 && stride != 1)) return false;
  }
  return std::all_of(group->inputs.begin(), group->inputs.end(), [&](int id) { return plan.ops[id].dtype == NPU_F32; });
}

void sum_columns(Frame& f, const Segment& segment, const Tile& tile, const Space& inner, Lanes* lanes) {
  const Plan& plan = *f.plan;
  const Group& group = *group_of(plan, segment);
  const size_t inputs = group.inputs.size(), folds = group.folds.size();
  const int last = inner.rank - 1;
  LoopArguments args;
  for (size_t k = 0; k < group.constants.size(); ++k)
    std::memcpy(&args.constant[k], &f.scalar[group.constants[k]], sizeof(float));
  // What is the same for all columns of a folded point is held sixteen times.
  alignas(64) float copies[kLoopPointers][kPoints][16];
  const float* from[kLoopPointers] = {};  // of operands: at the first folded point of the tile
  int64_t stride[kLoopPointers] = {};
  bool vector[kLoopPointers] = {};
  for (size_t k = 0; k < inputs; ++k) {
    const int id = group.inputs[k];
    const Op& op = plan.ops[id];
    if (id >= segment.begin && op.step == Step::kLoad) {
      from[k] = reinterpret_cast<const float*>(f.job->operands[op.imm].ptr) + tile.offset[op.view];
      stride[k] = inner.stride[last][op.view];
      vector[k] = tile.col_stride[op.view] == 1 || tile.cols == 1;
      args.step[k] = vector[k] ? stride[k] * 4 : 64;
    } else {
      args.step[k] = 0;
      args.pointer[k] = f.val[id].ptr;
      args.turn[k] = f.val[id].uniform ? 0 : 64;
      if (!f.val[id].uniform) continue;
      float value;
      std::memcpy(&value, f.val[id].ptr, sizeof value);
      std::fill_n(copies[k][0], 16, value);
      args.pointer[k] = reinterpret_cast<char*>(copies[k]);
    }
  }
  Lanes* of[NPU_MAX_FOLDS];
  for (size_t k = 0; k < folds; ++k) {
    size_t s = 0;
    while (segment.folds[s].at != group.folds[k]) ++s;
    of[k] = &lanes[s];
  }
  const auto values = [&](size_t k) { return args.pointer[k]; };
  char* fixed[kLoopPointers];
  for (size_t k = 0; k < inputs; ++k) fixed[k] = from[k] ? nullptr : values(k);
  for (int64_t i = 0; i < inner.total; i += inner.size[last]) {
    int64_t offset[kMaxViews] = {};
    inner.add_offsets(i, static_cast<int>(plan.views.size()), offset);
    for (int64_t r = 0; r < inner.size[last]; r += kPoints) {
      const int64_t m = std::min(kPoints, inner.size[last] - r);
      for (size_t k = 0; k < inputs; ++k) {
        if (!from[k]) {
          args.pointer[k] = fixed[k];
          continue;
        }
        const float* at = from[k] + offset[plan.ops[group.inputs[k]].view] + r * stride[k];
        if (!vector[k])
          for (int64_t p = 0; p < m; ++p) std::fill_n(copies[k][p], 16, at[p * stride[k]]);
        args.pointer[k] =
            vector[k] ? reinterpret_cast<char*>(const_cast<float*>(at)) : reinterpret_cast<char*>(copies[k]);
        args.turn[k] = (vector[k] ? 64 : 0) - m * args.step[k];
      }
      for (size_t k = 0; k < folds; ++k) args.pointer[inputs + k] = of[k]->partial;
      args.points = m;
      (*group.columns)(args, tile.n);
      for (size_t s = 0; s < folds; ++s) {
        lanes[s].steps += m;
        settle(f, segment.folds[s], lanes[s], tile.n);
      }
    }
  }
}

}  // namespace cmodel
