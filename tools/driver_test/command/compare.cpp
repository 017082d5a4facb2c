#include "tools/driver_test/command/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "support/verify/element.h"

namespace driver_test {

namespace {

bool is_real(int dtype) {
  return dtype >= NPU_F16 && dtype <= NPU_F64;
}

// `steps` floats of F32, or of F64, away; not beyond an infinity.
double moved(double from, double steps, int dtype) {
  if (std::isnan(from)) return from;
  if (dtype == NPU_F64) return from + steps * npu::unit_in_last_place(from, NPU_F64);
  // Floats of one sign are ordered as their bits are.
  const auto bits = std::bit_cast<int32_t>(static_cast<float>(from));
  const int64_t order = bits < 0 ? int64_t{INT32_MIN} - bits : bits;
  constexpr int64_t kInfinite = 0x7f800000;
  const int64_t there = std::clamp(order + static_cast<int64_t>(steps), -kInfinite, kInfinite);
  return std::bit_cast<float>(static_cast<int32_t>(there < 0 ? int64_t{INT32_MIN} - there : there));
}

// As a store to this type rounds it.
double stored(double value, int dtype) {
  Buffer one{dtype, 1, Bytes(8), 0};
  put(one, 0, value);
  return take(one, 0);
}

}  // namespace

Tolerance Tolerance::sum(int64_t terms, int acc_dtype) {
  if (acc_dtype != NPU_F32 && acc_dtype != NPU_F64) return {};
  const double eps = acc_dtype == NPU_F32 ? 0x1p-23 : 0x1p-52;
  return {kSum, eps * static_cast<double>(std::max<int64_t>(terms, 1) + 2), 0};
}

Comparison::Comparison(const View& before, const Tolerance& tolerance, bool same_nans)
    : before_(before), tolerance_(tolerance), same_nans_(same_nans) {
  View copy = before;
  copy.run_apart();
  want_ = std::move(copy.buffers);
}

void Comparison::prepare() {
  if (!wide_.empty()) return;
  View wide = before_;
  wide.widen();
  View scale = wide;
  wide.run_apart();
  wide_ = std::move(wide.buffers);
  if (tolerance_.kind != Tolerance::kSum) return;
  scale.make_absolute();
  scale.run_apart();
  scale_ = std::move(scale.buffers);
}

// What the result may be once it is stored.
Comparison::Interval Comparison::interval(size_t buffer, int64_t element, double got) {
  prepare();
  const int dtype = want_[buffer].dtype;
  const double exact = take(wide_[buffer], element), want = take(want_[buffer], element);
  double low = exact, high = exact, most = tolerance_.absolute;
  if (tolerance_.kind == Tolerance::kUlp) {
    low = moved(exact, -tolerance_.amount, dtype);
    high = moved(exact, tolerance_.amount, dtype);
    most = std::max(most, std::abs(high - low) / 2);
  } else {
    const double size = tolerance_.kind == Tolerance::kSum ? std::abs(take(scale_[buffer], element))
                                                           : std::max(std::abs(exact), std::abs(got));
    most += tolerance_.amount * size;
    // Beyond the sum, a program may round once more.
    if (dtype >= NPU_F32) most = std::max(most, npu::unit_in_last_place(exact, dtype));
  }
  low = std::min(low, exact - most);
  high = std::max(high, exact + most);
  return {std::min(stored(low, dtype), want), std::max(stored(high, dtype), want), most};
}

bool Comparison::right(size_t buffer, const Buffer& got, int64_t element, std::string* allowed) {
  const Buffer& want = want_[buffer];
  if (bits_of(want, element) == bits_of(got, element)) return true;
  *allowed = "bit for bit";
  if (!is_real(want.dtype)) return false;
  const double a = take(want, element), b = take(got, element);
  if (std::isnan(a) && std::isnan(b)) return !same_nans_;
  if (tolerance_.kind == Tolerance::kExact) return false;
  if (a == b) return true;
  const Interval range = interval(buffer, element, b);
  *allowed = say("at most ", range.allowed, " apart before it is stored");
  return b >= range.low && b <= range.high;
}

// Where several values are allowed, truncated ones are all allowed; but not all on one side.
std::optional<Wrong> Comparison::biased(size_t buffer, const Buffer& got) {
  const int dtype = got.dtype;
  if ((dtype != NPU_F16 && dtype != NPU_BF16) || tolerance_.kind == Tolerance::kExact) return std::nullopt;
  constexpr int64_t kLeast = 64;
  int64_t open = 0;
  double short_by = 0, allowed = 0;
  for (int64_t i = 0; i < got.elements; i++) {
    const double value = take(got, i), unit = npu::unit_in_last_place(value, dtype);
    if (!std::isfinite(value) || value == 0) continue;
    const Interval range = interval(buffer, i, value);
    const double exact = take(wide_[buffer], i);
    if (range.low == range.high || !std::isfinite(exact)) continue;
    open++;
    short_by += (std::abs(exact) - std::abs(value)) / unit;
    allowed += range.allowed / unit;
  }
  const auto count = static_cast<double>(open);
  if (open < kLeast || short_by / count < 0.25 + allowed / count) return std::nullopt;
  return Wrong{buffer, 0, open,
               say("less than a quarter of a unit in the last place on average; they are short by ", short_by / count)};
}

std::optional<Wrong> Comparison::judge(const std::vector<Buffer>& got, int skipped_buffer) {
  for (size_t n = 0; n < want_.size(); n++) {
    if (static_cast<int>(n) == skipped_buffer || want_[n].bytes == got[n].bytes) continue;
    std::optional<Wrong> wrong;
    std::string allowed;
    for (int64_t i = 0; i < want_[n].elements; i++) {
      if (right(n, got[n], i, &allowed)) continue;
      if (!wrong) wrong = {n, i, 0, allowed};
      wrong->count++;
    }
    if (!wrong && tolerance_.kind != Tolerance::kExact) wrong = biased(n, got[n]);
    if (wrong) return wrong;
  }
  return std::nullopt;
}

}  // namespace driver_test
