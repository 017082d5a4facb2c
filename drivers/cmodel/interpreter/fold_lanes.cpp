// Element-wise accumulators of REDUCE and SCAN: one array per member of the fold's tuple.
#include <algorithm>
#include <cstring>

#include "drivers/cmodel/interpreter/fold.h"
#include "drivers/cmodel/interpreter/fold_detail.h"

namespace cmodel {

namespace {

// The index beside the identity until a value comes: every index that is used is lower, so any value wins.
constexpr uint64_t kNobody = INT64_MAX;

bool is_extreme(const FoldPlan& fold) {
  return fold.kind == NPU_FOLD_ARGMAX || fold.kind == NPU_FOLD_ARGMIN;
}

}  // namespace

bool lanes_can(const FoldPlan& fold, const Op& op) {
  if (fold.kind <= NPU_FOLD_ARGMIN) return true;
  return op.mask == NPU_NO_VALUE && (fold.kind != NPU_FOLD_WELFORD || fold.args == 1);
}

void begin(Frame& f, const FoldPlan& fold, Lanes& lanes, int64_t n) {
  lanes.steps = lanes.flushed = 0;
  for (int k = 0; k < fold.members; ++k) {
    const int log_size = log_size_of(fold.member_dtype[k]);
    uint64_t bits = k == 0 && fold.kind <= NPU_FOLD_ARGMIN ? identity_bits(fold.kind, fold.member_dtype[0]) : 0;
    if (k == 1 && is_extreme(fold)) bits = kNobody;
    f.k->gather[log_size](lanes.member[k], &bits, 0, n);
    if (k == 0 && fold.kind == NPU_FOLD_SUM) {
      f.k->gather[log_size](lanes.partial, &bits, 0, n);
      std::memset(lanes.member[0], 0, static_cast<size_t>(n) * sizeof(double));
    }
  }
}

namespace {

constexpr int64_t kFlushSteps = 64;

// Short sums in F32, their totals in F64: the error of a long column sum stays near that of one rounding.
void flush(Frame& f, const FoldPlan& fold, Lanes& lanes, int64_t n) {
  const int dtype = fold.member_dtype[0];
  const char* part = lanes.partial;
  if (dtype == NPU_F32) {
    f.k->convert[NPU_F32][NPU_F64](f.temp(kTemps), part, n);
    part = f.temp(kTemps);
  }
  const TypeClass cls = dtype == NPU_F32 ? kF64 : type_class(dtype);
  f.k->op[NPU_OP_ADD][cls](lanes.member[0], lanes.member[0], part, nullptr, n, 0);
  std::memset(lanes.partial, 0, static_cast<size_t>(n) << log_size_of(dtype));
  lanes.flushed = lanes.steps;
}

}  // namespace

void settle(Frame& f, const FoldPlan& fold, Lanes& lanes, int64_t n) {
  if (lanes.steps - lanes.flushed >= kFlushSteps) flush(f, fold, lanes, n);
}

bool lanes_fold_rows(const Kernels& k, const FoldPlan& fold) {
  return fold.kind <= NPU_FOLD_XOR && k.fold_rows[fold.kind][type_class(fold.member_dtype[0])];
}

void accumulate_rows(Frame& f, const FoldPlan& fold, Lanes& lanes, const char* values, int64_t stride, int64_t rows,
                     const Tile& tile, int64_t tile_stride) {
  const int log_size = log_size_of(fold.member_dtype[0]);
  const FoldRows kernel = f.k->fold_rows[fold.kind][type_class(fold.member_dtype[0])];
  const bool sums = fold.kind == NPU_FOLD_SUM;
  for (int64_t r = 0; r < rows;) {
    const int64_t m = std::min(kFlushSteps, rows - r);
    for (int64_t t = 0; t < tile.rows; ++t)
      kernel((sums ? lanes.partial : lanes.member[0]) + ((t * tile.cols) << log_size),
             values + (r * stride + t * tile_stride) * (int64_t{1} << log_size), stride, m, tile.cols);
    r += m;
    lanes.steps += m;
    if (sums) settle(f, fold, lanes, tile.n);
  }
}

namespace {

// Moments of groups (mean, m2, count) into those of each lane, as docs/isa.md has it.
template <class T>
void merge_moments(const Lanes& lanes, const char* const* values, int64_t n) {
  T *mean = reinterpret_cast<T*>(lanes.member[0]), *m2 = reinterpret_cast<T*>(lanes.member[1]),
    *count = reinterpret_cast<T*>(lanes.member[2]);
  const T *mean2 = reinterpret_cast<const T*>(values[0]), *m2_2 = reinterpret_cast<const T*>(values[1]),
          *count2 = reinterpret_cast<const T*>(values[2]);
  for (int64_t i = 0; i < n; ++i) {
    const T total = count[i] + count2[i];
    if (total == 0) continue;
    const T d = mean2[i] - mean[i], w = count2[i] / total;
    mean[i] += d * w;
    m2[i] = (m2[i] + m2_2[i]) + d * d * count[i] * w;
    count[i] = total;
  }
}

}  // namespace

void accumulate(Frame& f, const FoldPlan& fold, Lanes& lanes, int64_t n) {
  const Op& op = f.plan->ops[fold.at];
  const int dtype = fold.member_dtype[0];
  const TypeClass cls = type_class(dtype);
  const Ref a = f.val[op.a];
  const int64_t step = ++lanes.steps;
  if (fold.kind <= NPU_FOLD_XOR) {
    Ref x = a;
    if (op.mask != NPU_NO_VALUE) {
      const Ref mask = f.val[op.mask];
      if (mask.uniform && !*mask.ptr) return;
      if (!mask.uniform) {
        const uint64_t identity = identity_bits(fold.kind, dtype);
        f.k->op[NPU_OP_WHERE][cls](f.temp(kTemps), mask.ptr, a.ptr, &identity, n, (a.uniform ? 2u : 0u) | 4u);
        x = {f.temp(kTemps), false};
      }
    }
    const Kernel kernel = f.k->op[kOps[fold.kind]][cls];
    char* into = fold.kind == NPU_FOLD_SUM ? lanes.partial : lanes.member[0];
    kernel(into, into, x.ptr, nullptr, n, x.uniform ? 2 : 0);
    if (fold.kind == NPU_FOLD_SUM && step - lanes.flushed >= kFlushSteps / 4) flush(f, fold, lanes, n);
    return;
  }
  const uint16_t ids[] = {op.a, op.b, op.c};
  const char* values[NPU_MAX_TUPLE] = {};
  for (int k = 0; k < fold.args; ++k) values[k] = argument(f, ids[k], n, f.temp(kTemps + k));
  if (is_extreme(fold)) {
    const Ref mask = op.mask == NPU_NO_VALUE ? Ref{} : f.val[op.mask];
    if (mask.ptr && mask.uniform && !*mask.ptr) return;
    (fold.kind == NPU_FOLD_ARGMAX ? f.k->argmax_lanes : f.k->argmin_lanes)[cls](
        lanes.member[0], reinterpret_cast<int64_t*>(lanes.member[1]), values[0],
        reinterpret_cast<const int64_t*>(values[1]), mask.uniform ? nullptr : mask.ptr, n);
  } else if (fold.kind == NPU_FOLD_WELFORD && fold.args == NPU_MAX_TUPLE) {
    cls == kF32 ? merge_moments<float>(lanes, values, n) : merge_moments<double>(lanes, values, n);
  } else if (fold.kind == NPU_FOLD_WELFORD) {
    f.k->welford_lanes[cls](lanes.member[0], lanes.member[1], values[0], n, static_cast<double>(step));
  } else if (step == 1) {
    for (int k = 0; k < fold.members; ++k)
      std::memcpy(lanes.member[k], values[k], static_cast<size_t>(n) << log_size_of(fold.member_dtype[k]));
  } else {
    const Segment& segment = f.plan->segments[fold.combine];
    Ref l[NPU_MAX_TUPLE], r[NPU_MAX_TUPLE];
    for (int k = 0; k < fold.members; ++k) {
      l[k] = {lanes.member[k], false};
      r[k] = {const_cast<char*>(values[k]), false};
    }
    combine(f, segment, l, r, n);
    for (int k = 0; k < fold.members;
         ++k) {  // a result may be another member's array: all are read before any is written
      const int log_size = log_size_of(fold.member_dtype[k]);
      const Ref y = f.val[segment.yield[k]];
      f.k->gather[log_size](f.temp(kTemps + 3 + k), y.ptr, y.uniform ? 0 : 1, n);
    }
    for (int k = 0; k < fold.members; ++k)
      std::memcpy(lanes.member[k], f.temp(kTemps + 3 + k), static_cast<size_t>(n) << log_size_of(fold.member_dtype[k]));
  }
}

void finish(Frame& f, const FoldPlan& fold, Lanes& lanes, int64_t n) {
  const TypeClass cls = type_class(fold.member_dtype[0]);
  if (fold.kind == NPU_FOLD_SUM) {
    if (lanes.flushed < lanes.steps) flush(f, fold, lanes, n);
    if (cls == kF32) {
      f.k->convert[NPU_F64][NPU_F32](lanes.partial, lanes.member[0], n);
      std::swap(lanes.partial, lanes.member[0]);
    }
  }
  if (is_extreme(fold)) {
    int64_t* at = reinterpret_cast<int64_t*>(lanes.member[1]);
    for (int64_t i = 0; i < n; ++i) at[i] = at[i] == static_cast<int64_t>(kNobody) ? -1 : at[i];
  }
  if (fold.kind == NPU_FOLD_WELFORD && fold.args == 1) {
    uint64_t count = 0;
    if (cls == kF32) {
      const float c = static_cast<float>(lanes.steps);
      std::memcpy(&count, &c, sizeof c);
    } else {
      count = as_bits(static_cast<double>(lanes.steps));
    }
    f.k->gather[log_size_of(fold.member_dtype[2])](lanes.member[2], &count, 0, n);
  }
}

}  // namespace cmodel
