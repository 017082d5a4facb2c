#include "drivers/cmodel/interpreter/fold.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "drivers/cmodel/interpreter/fold_detail.h"
#include "support/program/program.h"

namespace cmodel {
namespace {

void welford_merge(uint64_t* state, double mean, double m2, double count) {
  const double m = as_double(state[0]), s = as_double(state[1]), c = as_double(state[2]), total = c + count;
  if (total == 0) return;
  const double delta = mean - m, weight = count / total;
  state[0] = as_bits(m + delta * weight);
  state[1] = as_bits(s + m2 + delta * delta * c * weight);
  state[2] = as_bits(total);
}

void merge_extreme(bool greatest, int dtype, Acc& acc, const void* value, int64_t index) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    T a, b;
    std::memcpy(&a, value, sizeof(T));
    std::memcpy(&b, &acc.member[0], sizeof(T));
    if (acc.any && !beats(greatest, a, index, b, static_cast<int64_t>(acc.member[1]))) return;
    std::memcpy(&acc.member[0], &a, sizeof(T));
    acc.member[1] = static_cast<uint64_t>(index);
  });
  acc.any = true;
}

int64_t compress(char* to, const char* from, const char* mask, int size, int64_t n) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i)
    if (mask[i]) std::memcpy(to + count++ * size, from + i * size, static_cast<size_t>(size));
  return count;
}

void combine_one(Frame& f, const FoldPlan& fold, Acc& acc, const uint64_t* right) {
  Ref l[NPU_MAX_TUPLE], r[NPU_MAX_TUPLE];
  uint64_t left[NPU_MAX_TUPLE], other[NPU_MAX_TUPLE];
  std::memcpy(left, acc.member, sizeof left);
  std::memcpy(other, right, sizeof other);
  for (int k = 0; k < fold.members; ++k) {
    l[k] = {reinterpret_cast<char*>(&left[k]), true};
    r[k] = {reinterpret_cast<char*>(&other[k]), true};
  }
  const Segment& segment = f.plan->segments[fold.combine];
  combine(f, segment, l, r, 1);
  for (int k = 0; k < fold.members; ++k)
    std::memcpy(&acc.member[k], f.val[segment.yield[k]].ptr,
                static_cast<size_t>(npu::dtype_size(fold.member_dtype[k])));
}

// Combines neighbours until one tuple is left: the order of the values is kept, only the brackets move.
void fold_custom(Frame& f, const FoldPlan& fold, Acc& acc, const char* const* values, int64_t n) {
  const Segment& segment = f.plan->segments[fold.combine];
  const char* current[NPU_MAX_TUPLE];
  for (int k = 0; k < fold.members; ++k) current[k] = values[k];
  while (n > 1) {
    Ref l[NPU_MAX_TUPLE], r[NPU_MAX_TUPLE];
    const int64_t pairs = n / 2;
    uint64_t last[NPU_MAX_TUPLE];
    for (int k = 0; k < fold.members; ++k) {
      const int log_size = log_size_of(fold.member_dtype[k]);
      char *left = f.temp(kTemps + 3 + k), *right = f.temp(kTemps + 6 + k);
      f.k->gather[log_size](left, current[k], 2, pairs);
      f.k->gather[log_size](right, current[k] + (int64_t{1} << log_size), 2, pairs);
      std::memcpy(&last[k], current[k] + ((n - 1) << log_size), size_t{1} << log_size);
      l[k] = {left, false};
      r[k] = {right, false};
    }
    combine(f, segment, l, r, pairs);
    for (int k = 0; k < fold.members; ++k) {
      const int log_size = log_size_of(fold.member_dtype[k]);
      char* to = f.temp(kTemps + k);
      const Ref y = f.val[segment.yield[k]];
      if (y.uniform)
        f.k->gather[log_size](to, y.ptr, 0, pairs);
      else
        std::memmove(to, y.ptr, static_cast<size_t>(pairs) << log_size);
      if (n & 1) std::memcpy(to + (pairs << log_size), &last[k], size_t{1} << log_size);
      current[k] = to;
    }
    n = pairs + (n & 1);
  }
  uint64_t result[NPU_MAX_TUPLE] = {};
  for (int k = 0; k < fold.members; ++k)
    std::memcpy(&result[k], current[k], static_cast<size_t>(npu::dtype_size(fold.member_dtype[k])));
  if (acc.any)
    combine_one(f, fold, acc, result);
  else
    std::memcpy(acc.member, result, sizeof result);
  acc.any = true;
}

void accumulate_row(Frame& f, const FoldPlan& fold, Acc& acc, const char* const* values, int64_t n) {
  const int dtype = fold.member_dtype[0];
  const TypeClass cls = type_class(dtype);
  switch (fold.kind) {
    case NPU_FOLD_ARGMAX:
    case NPU_FOLD_ARGMIN: {
      const bool greatest = fold.kind == NPU_FOLD_ARGMAX;
      uint64_t best = 0;
      int64_t at = 0;
      (greatest ? f.k->argmax : f.k->argmin)[cls](&best, &at, values[0], reinterpret_cast<const int64_t*>(values[1]), 0,
                                                  1, n);
      return merge_extreme(greatest, dtype, acc, &best, at);
    }
    case NPU_FOLD_WELFORD: {
      if (fold.args == 1) return accumulate_plain(*f.k, fold, acc, values[0], n);
      for (int64_t i = 0; i < n; ++i) {
        double x[3];
        for (int k = 0; k < 3; ++k)
          x[k] = dtype == NPU_F32 ? reinterpret_cast<const float*>(values[k])[i]
                                  : reinterpret_cast<const double*>(values[k])[i];
        welford_merge(acc.member, x[0], x[1], x[2]);
      }
      return;
    }
    case NPU_FOLD_CUSTOM:
      return fold_custom(f, fold, acc, values, n);
    default:
      return accumulate_plain(*f.k, fold, acc, values[0], n);
  }
}

}  // namespace

uint64_t identity_bits(int fold, int dtype) {
  const bool low = fold == NPU_FOLD_MAX || fold == NPU_FOLD_ARGMAX,
             high = fold == NPU_FOLD_MIN || fold == NPU_FOLD_ARGMIN;
  return with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    T x{};
    if constexpr (std::numeric_limits<T>::has_infinity) {
      x = low                     ? -std::numeric_limits<T>::infinity()
          : high                  ? std::numeric_limits<T>::infinity()
          : fold == NPU_FOLD_PROD ? T(1)
                                  : T(0);
    } else if (sizeof(T) == 1) {
      x = fold == NPU_FOLD_AND || high;
    } else {
      x = low                    ? std::numeric_limits<T>::min()
          : high                 ? std::numeric_limits<T>::max()
          : fold == NPU_FOLD_AND ? static_cast<T>(-1)
                                 : static_cast<T>(fold == NPU_FOLD_PROD);
    }
    uint64_t bits = 0;
    std::memcpy(&bits, &x, sizeof x);
    return bits;
  });
}

void accumulate_plain(const Kernels& k, const FoldPlan& fold, Acc& acc, const char* values, int64_t n, int64_t index,
                      int64_t step, const char* next) {
  const int dtype = fold.member_dtype[0], log_size = log_size_of(dtype);
  const TypeClass cls = type_class(dtype);
  for (int64_t i = 0; i < n; i += kPlainBlock) {
    const char* from = values + (i << log_size);
    const int64_t m = std::min(kPlainBlock, n - i);
    if (fold.kind == NPU_FOLD_WELFORD) {
      double mean, m2;
      k.moments[cls](&mean, &m2, from, m, i + m < n ? from + (m << log_size) : next);
      welford_merge(acc.member, mean, m2, static_cast<double>(m));
      continue;
    }
    uint64_t x = 0;
    if (fold.kind == NPU_FOLD_ARGMAX || fold.kind == NPU_FOLD_ARGMIN) {
      const bool greatest = fold.kind == NPU_FOLD_ARGMAX;
      int64_t at = 0;
      (greatest ? k.argmax : k.argmin)[cls](&x, &at, from, nullptr, index + i * step, step, m);
      merge_extreme(greatest, dtype, acc, &x, at);
      continue;
    }
    k.fold[fold.kind][cls](&x, from, m);
    if (fold.kind == NPU_FOLD_SUM && dtype == NPU_F32) {
      float part;
      std::memcpy(&part, &x, sizeof part);
      acc.sum += part;
    } else {
      k.op[kOps[fold.kind]][cls](&acc.member[0], &acc.member[0], &x, nullptr, 1, 0);
    }
  }
}

void begin(const FoldPlan& fold, Acc& acc) {
  acc = Acc{};
  if (fold.kind <= NPU_FOLD_ARGMIN) acc.member[0] = identity_bits(fold.kind, fold.member_dtype[0]);
  if (fold.kind == NPU_FOLD_ARGMAX || fold.kind == NPU_FOLD_ARGMIN) acc.member[1] = static_cast<uint64_t>(int64_t{-1});
}

void accumulate(Frame& f, const FoldPlan& fold, Acc* acc, int64_t rows, int64_t cols) {
  const Op& op = f.plan->ops[fold.at];
  const int64_t n = rows * cols;
  const uint16_t ids[] = {op.a, op.b, op.c};
  if (f.val[fold.at].axis == kTotals) {
    const double* totals = reinterpret_cast<const double*>(f.val[fold.at].ptr);
    const int64_t count = static_cast<int64_t>(*totals++);
    for (int64_t r = 0; r < count; ++r) acc[rows == 1 ? 0 : r].sum += totals[r];
    f.val[fold.at] = {};
    return;
  }
  const Ref mask = op.mask == NPU_NO_VALUE ? Ref{} : f.val[op.mask];
  if (mask.ptr && mask.uniform && !*mask.ptr) return;
  const bool masked = mask.ptr && !mask.uniform;
  const char* values[NPU_MAX_TUPLE] = {};
  int size[NPU_MAX_TUPLE] = {};
  for (int k = 0; k < fold.args; ++k) {
    const int dtype = f.plan->ops[ids[k]].dtype;
    size[k] = npu::dtype_size(dtype);
    values[k] = argument(f, ids[k], n, f.temp(kTemps + k));
  }
  if (masked && fold.kind <= NPU_FOLD_XOR) {
    const int dtype = fold.member_dtype[0];
    const uint64_t identity = identity_bits(fold.kind, dtype);
    f.k->op[NPU_OP_WHERE][type_class(dtype)](f.temp(kTemps), mask.ptr, values[0], &identity, n, 4);
    values[0] = f.temp(kTemps);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const char* row[NPU_MAX_TUPLE] = {};
    int64_t m = cols;
    for (int k = 0; k < fold.args; ++k) row[k] = values[k] + r * cols * size[k];
    if (masked && fold.kind > NPU_FOLD_XOR) {
      for (int k = 0; k < fold.args; ++k) {
        // temps 6 .. 8 are free here: only fold_custom uses them, after it has copied its input
        char* to = f.temp(kTemps + 6 + k);
        m = compress(to, row[k], mask.ptr + r * cols, size[k], cols);
        row[k] = to;
      }
      if (m == 0) continue;
      if (fold.kind == NPU_FOLD_CUSTOM)
        for (int k = 0; k < fold.args; ++k) {
          std::memcpy(f.temp(kTemps + k), row[k], static_cast<size_t>(m * size[k]));
          row[k] = f.temp(kTemps + k);
        }
    }
    accumulate_row(f, fold, acc[r], row, m);
  }
}

void merge(Frame& f, const FoldPlan& fold, Acc& acc, const Acc& right) {
  switch (fold.kind) {
    case NPU_FOLD_ARGMAX:
    case NPU_FOLD_ARGMIN:
      if (right.any)
        merge_extreme(fold.kind == NPU_FOLD_ARGMAX, fold.member_dtype[0], acc, &right.member[0],
                      static_cast<int64_t>(right.member[1]));
      return;
    case NPU_FOLD_WELFORD:
      return welford_merge(acc.member, as_double(right.member[0]), as_double(right.member[1]),
                           as_double(right.member[2]));
    case NPU_FOLD_CUSTOM:
      if (!right.any) return;
      if (acc.any)
        combine_one(f, fold, acc, right.member);
      else
        acc = right;
      return;
    default:
      acc.sum += right.sum;
      if (fold.kind == NPU_FOLD_SUM && fold.member_dtype[0] == NPU_F32) return;
      f.k->op[kOps[fold.kind]][type_class(fold.member_dtype[0])](&acc.member[0], &acc.member[0], &right.member[0],
                                                                 nullptr, 1, 0);
  }
}

void finish(const FoldPlan& fold, const Acc& acc, char* const* out, int64_t row) {
  for (int k = 0; k < fold.members; ++k) {
    const int dtype = fold.member_dtype[k], size = npu::dtype_size(dtype);
    uint64_t bits = acc.member[k];
    if (dtype == NPU_F32 && (fold.kind == NPU_FOLD_WELFORD || fold.kind == NPU_FOLD_SUM)) {
      const float x = static_cast<float>(fold.kind == NPU_FOLD_SUM ? acc.sum : as_double(bits));
      std::memcpy(&bits, &x, sizeof x);
    }
    std::memcpy(out[k] + row * size, &bits, static_cast<size_t>(size));
  }
}

}  // namespace cmodel
