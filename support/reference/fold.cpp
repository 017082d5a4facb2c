// Folds and scans of the reference executor (docs/isa.md, "Order of accumulation").
#include <cmath>
#include <limits>

#include "support/program/op_info.h"
#include "support/reference/evaluate.h"
#include "support/reference/machine.h"

namespace npu {
namespace {

// The value that leaves every other as it is.
Value identity(int kind, int dtype) {
  const bool low = kind == NPU_FOLD_MAX || kind == NPU_FOLD_ARGMAX;
  const bool high = kind == NPU_FOLD_MIN || kind == NPU_FOLD_ARGMIN;
  if (dtype == NPU_F32 || dtype == NPU_F64) {
    const double inf = std::numeric_limits<double>::infinity();
    const double v = low ? -inf : high ? inf : kind == NPU_FOLD_PROD ? 1 : 0;
    return dtype == NPU_F64 ? value_of(v) : value_of(static_cast<float>(v));
  }
  Value v{};
  const bool ones = kind == NPU_FOLD_AND || high;
  switch (dtype) {
    case NPU_BOOL:
      v.i = ones;
      break;
    case NPU_I32:
      v.i = low ? std::numeric_limits<int32_t>::min() : high ? std::numeric_limits<int32_t>::max() : ones ? -1 : 0;
      break;
    case NPU_I64:
      v.i = low ? std::numeric_limits<int64_t>::min() : high ? std::numeric_limits<int64_t>::max() : ones ? -1 : 0;
      break;
    default:
      v.u = ones ? ~uint64_t{0} : 0;
  }
  if (kind == NPU_FOLD_PROD) v.i = 1;
  return v;
}

template <typename T>
void welford_one(T x, Value* state) {
  const T mean = get_value<T>(state[0]), m2 = get_value<T>(state[1]), count = get_value<T>(state[2]) + 1;
  const T delta = x - mean;
  const T next = mean + delta / count;
  state[0] = value_of(quiet(next));
  state[1] = value_of(quiet(m2 + delta * (x - next)));
  state[2] = value_of(count);
}

// Moments of a whole row in two passes, both in the order of a sum.
template <typename T>
void welford_row(const std::vector<std::pair<int64_t, Value>>& row, Value* state) {
  if (row.empty()) return;
  const auto sum = [&](auto term) {
    T lane[16] = {};
    for (const auto& [element, value] : row) lane[element % 16] = lane[element % 16] + term(get_value<T>(value));
    for (int half = 8; half; half /= 2)
      for (int j = 0; j < half; ++j) lane[j] = lane[j] + lane[j + half];
    return lane[0];
  };
  const T count = static_cast<T>(row.size());
  const T mean = quiet(sum([](T x) { return x; }) / count);
  state[0] = value_of(mean);
  state[1] = value_of(quiet(sum([&](T x) { return (x - mean) * (x - mean); })));
  state[2] = value_of(count);
}

template <typename T>
void welford_merge(const Value* right, Value* state) {
  const T mean = get_value<T>(state[0]), m2 = get_value<T>(state[1]), count = get_value<T>(state[2]);
  const T mean2 = get_value<T>(right[0]), m22 = get_value<T>(right[1]), count2 = get_value<T>(right[2]);
  const T total = count + count2;
  if (total == 0) return;
  const T delta = mean2 - mean, weight = count2 / total;
  state[0] = value_of(quiet(mean + delta * weight));
  state[1] = value_of(quiet(m2 + m22 + delta * delta * count * weight));
  state[2] = value_of(total);
}

// Is (value, index) a better extreme than the one held? A NaN beats every number; equals: the lower index.
bool beats(int kind, int dtype, const Value* candidate, const Value* held) {
  if (dtype == NPU_F32 || dtype == NPU_F64) {
    const double a = dtype == NPU_F32 ? candidate[0].f32 : candidate[0].f64;
    const double b = dtype == NPU_F32 ? held[0].f32 : held[0].f64;
    if (std::isnan(a) != std::isnan(b)) return std::isnan(a);
    if (!std::isnan(a) && a != b) return kind == NPU_FOLD_ARGMAX ? a > b : a < b;
  } else if (candidate[0].u != held[0].u) {
    const bool greater = dtype == NPU_U64 ? candidate[0].u > held[0].u : candidate[0].i > held[0].i;
    return kind == NPU_FOLD_ARGMAX ? greater : !greater;
  }
  return candidate[1].i < held[1].i;
}

}  // namespace

void Machine::begin(Fold& fold, int64_t elements) {
  fold.any = false;
  fold.row.clear();
  const Value first = identity(fold.kind, fold.dtype[0]);
  for (Value& lane : fold.lane) lane = first;
  for (Value& member : fold.state) member = Value{};
  if (fold.kind == NPU_FOLD_ARGMAX || fold.kind == NPU_FOLD_ARGMIN) {
    fold.state[0] = first;
    fold.state[1] = value_of(int64_t{-1});
  } else if (fold.kind <= NPU_FOLD_XOR) {
    fold.state[0] = first;
  }
  if (program_.instrs[fold.id].op == NPU_OP_SCAN) fold.history.resize(static_cast<size_t>(elements * fold.members));
}

void Machine::accumulate(Fold& fold, const npu_instr& in, int64_t element) {
  const bool scan = in.op == NPU_OP_SCAN;
  if (fold.kind <= NPU_FOLD_XOR) {
    Value& into = scan ? fold.state[0] : fold.lane[element % 16];
    into = evaluate(fold.op, in.dtype, into, values_[in.a], Value{});
  } else if (takes_row(fold)) {
    fold.row.emplace_back(element, values_[in.a]);
  } else {
    const Value none{};
    const Value tuple[] = {values_[in.a], in.b == NPU_NO_VALUE ? none : values_[in.b],
                           in.c == NPU_NO_VALUE ? none : values_[in.c]};
    merge(fold, tuple);
  }
  if (scan)
    for (int k = 0; k < fold.members; ++k)
      fold.history[static_cast<size_t>(element * fold.members + k)] = fold.state[k];
}

void Machine::merge(Fold& fold, const Value* tuple) {
  if (fold.kind == NPU_FOLD_WELFORD) return welford(fold, tuple);
  const bool first = !fold.any;
  fold.any = true;
  if (first || (fold.kind != NPU_FOLD_CUSTOM && beats(fold.kind, fold.dtype[0], tuple, fold.state))) {
    for (int k = 0; k < fold.members; ++k) fold.state[k] = tuple[k];
  } else if (fold.kind == NPU_FOLD_CUSTOM) {
    combine(fold, tuple);
  }
}

bool Machine::takes_row(const Fold& fold) const {
  const npu_instr& in = program_.instrs[fold.id];
  return fold.kind == NPU_FOLD_WELFORD && in.op == NPU_OP_FOLD && in.b == NPU_NO_VALUE;
}

void Machine::welford(Fold& fold, const Value* tuple) {
  const bool merged = program_.instrs[fold.id].b != NPU_NO_VALUE;
  if (fold.dtype[0] == NPU_F32)
    merged ? welford_merge<float>(tuple, fold.state) : welford_one(tuple[0].f32, fold.state);
  else
    merged ? welford_merge<double>(tuple, fold.state) : welford_one(tuple[0].f64, fold.state);
}

void Machine::combine(Fold& fold, const Value* right) {
  for (int k = 0; k < fold.members; ++k) {
    combine_args_[k] = fold.state[k];
    combine_args_[fold.members + k] = right[k];
  }
  run_body(combines_[static_cast<size_t>(fold.combine)], 0);
  for (int k = 0; k < fold.members; ++k) fold.state[k] = combine_results_[k];
}

void Machine::finish(Fold& fold) {
  if (program_.instrs[fold.id].op == NPU_OP_SCAN) return;  // its values are per element
  if (fold.kind <= NPU_FOLD_XOR) {
    for (int half = 8; half; half /= 2)
      for (int j = 0; j < half; ++j)
        fold.lane[j] = evaluate(fold.op, fold.dtype[0], fold.lane[j], fold.lane[j + half], Value{});
    fold.state[0] = fold.lane[0];
  } else if (takes_row(fold)) {
    fold.dtype[0] == NPU_F32 ? welford_row<float>(fold.row, fold.state) : welford_row<double>(fold.row, fold.state);
  }
  publish(fold, fold.state);
}

void Machine::publish(const Fold& fold, const Value* tuple) {
  values_[fold.id] = tuple[0];
  for (auto [id, member] : fold.gets) values_[id] = tuple[member];
}

}  // namespace npu
