#include "drivers/cmodel/engine/scatter_split.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace cmodel {
namespace {

constexpr double kExact = 4503599627370496.0;  // 2^52: integers up to here are exact as doubles, with room for a sum

// What is known about a value: it lies in [low, high], and if it is an integer it is a multiple of `step` (0: it is 0).
// `under`: this holds only where that mask is set.
struct Known {
  bool bounded = false;
  double low = 0, high = 0;
  int64_t step = 1;
  uint16_t under = NPU_NO_VALUE;
};

bool is_float(int dtype) {
  return dtype == NPU_F32 || dtype == NPU_F64;
}

class Analysis {
 public:
  explicit Analysis(const Job& job) : job_(job), in_(job.program->source.instrs), known_(in_.size()) {
    for (last_ = job.command.rank - 1; last_ > 0 && job.command.size[last_] == 1;) --last_;
    for (size_t i = 0; i < in_.size(); ++i) {
      known_[i] = check(in_[i], of(in_[i]));
      along_.push_back(moves(in_[i]));
    }
  }
  const Known& operator[](uint16_t id) const { return known_[id]; }
  // Does the value change along a row?
  bool along_rows(uint16_t id) const { return along_[id]; }

 private:
  bool moves(const npu_instr& in) const {
    if (in.op == NPU_OP_INDEX) return static_cast<int>(in.imm) == last_;
    bool any = (in.op == NPU_OP_LOAD || in.op == NPU_OP_LOAD_AT) && job_.operands[in.imm].stride[last_] != 0;
    for (uint16_t id : {in.a, in.b, in.c, in.mask}) any |= id != NPU_NO_VALUE && along_[id];
    return any;
  }

  static Known exactly(double value, bool whole) {
    return {true, value, value, whole && std::fabs(value) < kExact ? std::llabs(static_cast<int64_t>(value)) : 1};
  }

  Known number(uint64_t bits, int dtype) const {
    if (is_float(dtype)) return exactly(__builtin_bit_cast(double, bits), false);
    if (dtype == NPU_I32) return exactly(static_cast<int32_t>(bits), true);
    return dtype == NPU_I64 ? exactly(static_cast<double>(static_cast<int64_t>(bits)), true) : Known{};
  }

  // Results that might wrap or are no numbers are not known; those of floating arithmetic are rounded.
  static Known check(const npu_instr& in, Known k) {
    const double most = in.dtype == NPU_I32 ? 2147483647.0 : kExact;
    if (!k.bounded || !(k.low >= -most && k.high <= most)) return {};
    if (is_float(in.dtype)) {
      const double more = 1e-6 * std::max(std::fabs(k.low), std::fabs(k.high));
      if (in.op == NPU_OP_ADD || in.op == NPU_OP_SUB || in.op == NPU_OP_MUL || in.op == NPU_OP_CAST) {
        k.low -= more;
        k.high += more;
      }
      k.step = 1;
    } else if (in.dtype != NPU_I32 && in.dtype != NPU_I64) {
      return {};
    }
    return k;
  }

  Known of(const npu_instr& in) const {
    const Known a = in.a == NPU_NO_VALUE ? Known{} : known_[in.a];
    const Known b = in.b == NPU_NO_VALUE ? Known{} : known_[in.b];
    switch (in.op) {
      case NPU_OP_CONST:
        return number(job_.program->source.consts[in.imm], in.dtype);
      case NPU_OP_PARAM:
        return number(job_.params[in.imm].u, in.dtype);
      case NPU_OP_SIZE:
        return exactly(static_cast<double>(job_.command.size[in.imm]), true);
      case NPU_OP_INDEX:
        return {true, 0, static_cast<double>(job_.command.size[in.imm] - 1)};
      case NPU_OP_CHECK_INDEX:
        if (!(in.flags & NPU_INDEX_CHECK) || !b.bounded || b.high < 1 || b.under != NPU_NO_VALUE) return {};
        return {true, 0, b.high - 1, 1, in.mask};
      default:
        break;
    }
    if (!a.bounded) return {};
    switch (in.op) {
      case NPU_OP_CAST:
        if (in.imm != NPU_DTYPE_NONE && static_cast<int>(in.imm) != in.dtype) return {};
        return {true, std::floor(a.low), std::ceil(a.high), a.step, a.under};
      case NPU_OP_FLOOR:
        return {true, std::floor(a.low), std::floor(a.high), 1, a.under};
      case NPU_OP_NEG:
        return {true, -a.high, -a.low, a.step, a.under};
      case NPU_OP_ABS: {
        const double far = std::max(std::fabs(a.low), std::fabs(a.high));
        const bool crosses = a.low < 0 && a.high > 0;
        return {true, crosses ? 0 : std::min(std::fabs(a.low), std::fabs(a.high)), far, a.step, a.under};
      }
      default:
        break;
    }
    if (!b.bounded || (a.under != b.under && a.under != NPU_NO_VALUE && b.under != NPU_NO_VALUE)) return {};
    const uint16_t under = a.under != NPU_NO_VALUE ? a.under : b.under;
    const int64_t common = std::gcd(a.step, b.step);
    switch (in.op) {
      case NPU_OP_ADD:
        return {true, a.low + b.low, a.high + b.high, common, under};
      case NPU_OP_SUB:
        return {true, a.low - b.high, a.high - b.low, common, under};
      case NPU_OP_MIN:
        return {true, std::min(a.low, b.low), std::min(a.high, b.high), common, under};
      case NPU_OP_MAX:
        return {true, std::max(a.low, b.low), std::max(a.high, b.high), common, under};
      case NPU_OP_MUL: {
        const auto [low, high] = std::minmax({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
        // Where the product is small enough to be known at all, so is that of the steps, or it is 0 throughout.
        const bool small = static_cast<double>(a.step) * static_cast<double>(b.step) < kExact;
        return {true, low, high, small ? a.step * b.step : 1, under};
      }
      default:
        return {};
    }
  }

  const Job& job_;
  const std::vector<npu_instr>& in_;
  std::vector<Known> known_;
  std::vector<char> along_;
  int last_;  // dimension of the rows
};

// All places that stores to one operand reach, less those of the point itself.
struct Target {
  int view;
  double low, high;
  int64_t step;
};

// Do two points of `space` that differ along `d` stay apart?
bool apart(const Space& space, int d, const Target& t) {
  const auto stride = [&](int e) { return std::llabs(space.stride[e][t.view]); };
  if (stride(d) == 0) return false;
  // They are further apart than everything else together reaches,
  double others = t.high - t.low;
  int64_t step = t.step;
  for (int e = 0; e < space.rank; ++e) {
    if (e == d) continue;
    others += static_cast<double>(space.size[e] - 1) * static_cast<double>(stride(e));
    step = std::gcd(step, stride(e));
  }
  if (static_cast<double>(stride(d)) > others) return true;
  // or they lie between the multiples on which everything else falls.
  return step > 0 && (space.size[d] - 1) * stride(d) < step;
}

}  // namespace

int split_dimension(const Job& job, const Plan& plan, const Space& space) {
  const Analysis known(job);
  std::vector<Target> targets;
  bool rows_whole = false;
  for (const npu_instr& in : job.program->source.instrs) {
    if (in.op != NPU_OP_STORE_AT) continue;
    const Known& offset = known[in.b];
    if (!offset.bounded || (offset.under != NPU_NO_VALUE && offset.under != in.mask)) return kNone;
    rows_whole |= !known.along_rows(in.b);
    int view = kNone;
    for (size_t v = 0; v < plan.views.size(); ++v) {
      if (plan.views[v].kind == View::kOperand && plan.views[v].number == in.imm) view = static_cast<int>(v);
    }
    if (view == kNone) return kNone;
    const auto same = std::find_if(targets.begin(), targets.end(), [&](const Target& t) { return t.view == view; });
    if (same == targets.end()) {
      targets.push_back({view, offset.low, offset.high, offset.step});
    } else {
      *same = {view, std::min(same->low, offset.low), std::max(same->high, offset.high),
               std::gcd(same->step, offset.step)};
    }
  }
  for (int d = 0; d < space.rank; ++d) {
    // Rows that go to one place each are better left whole: a thread passes over those of others at no cost.
    if (rows_whole && d > 0 && d == space.rank - 1) return kNone;
    if (std::all_of(targets.begin(), targets.end(), [&](const Target& t) { return apart(space, d, t); })) return d;
  }
  return kNone;
}

}  // namespace cmodel
