#include "csrc/aten/images/pool.h"

namespace torch_npu {
namespace {

// Every program has these parameters for each dimension; %-names below use {d}.
const char* const kParameters =
    "stride{d}, origin{d}, dilation{d}, kernel{d}, in{d}, last{d}, out{d}, step{d}, bits{d}, size{d}";
static_assert(3 * 10 + 1 <= NPU_MAX_PARAMS);

std::string header(const std::string& operands, int64_t n) {
  std::string names;
  for (int64_t d = 0; d < n; ++d) {
    names += replace_all(kParameters, "{d}", std::to_string(d)) + ", ";
  }
  return "program pool(" + operands + "; " + names + "divisor)\n";
}

// {k}: the kept dimension of {d}; {w}: its inner dimension.
std::string per_space(int64_t n, const std::string& lines) {
  std::string out;
  for (int64_t d = 0; d < n; ++d) {
    std::string text = replace_all(lines, "{d}", std::to_string(d));
    text = replace_all(text, "{k}", std::to_string(2 + d));
    out += replace_all(text, "{w}", std::to_string(2 + n + d));
  }
  return out;
}

const char* const kConstants = R"(
  %zero = const 0 : i64
  %one = const 1 : i64
)";

// Parameters as values, once per segment.
const char* const kLoadParameters = R"(
  %stride{d} = param stride{d} : i64
  %origin{d} = param origin{d} : i64
  %dilation{d} = param dilation{d} : i64
  %kernel{d} = param kernel{d} : i64
  %in{d} = param in{d} : i64
  %last{d} = param last{d} : i64
  %out{d} = param out{d} : i64
  %step{d} = param step{d} : i64
  %bits{d} = param bits{d} : i64
  %size{d} = param size{d} : i64
)";

// %i{d}: the input position of this output and window position; %v{d}: whether it exists.
const char* const kPlace = R"(
  %reach{d} = fma %w{d}, %dilation{d}, %origin{d}
  %i{d} = fma %o{d}, %stride{d}, %reach{d}
)";
const char* const kInside = R"(
  %left{d} = sub %last{d}, %i{d}
  %least{d} = min %i{d}, %left{d}
  %v{d} = ge %least{d}, %zero
)";
const char* const kPlaceAdaptive = R"(
  %p{d} = mul %o{d}, %in{d}
  %start{d} = div %p{d}, %out{d}
  %i{d} = add %start{d}, %w{d}
)";
const char* const kInsideAdaptive = R"(
  %p1{d} = add %p{d}, %in{d}
  %p2{d} = add %p1{d}, %out{d}
  %p3{d} = sub %p2{d}, %one
  %end{d} = div %p3{d}, %out{d}
  %v{d} = lt %i{d}, %end{d}
)";

// %o{d}: a window that may contain this input position; %v{d}: whether it does.
const char* const kBackward = R"(
  %i{d} = index {k}
  %w{d} = index {w}
  %padded{d} = sub %i{d}, %origin{d}
  %newest{d} = div %padded{d}, %stride{d}
  %o{d} = sub %newest{d}, %w{d}
  %start{d} = mul %o{d}, %stride{d}
  %off{d} = sub %padded{d}, %start{d}
  %extent1{d} = sub %kernel{d}, %one
  %extent2{d} = mul %extent1{d}, %dilation{d}
  %inside{d} = le %off{d}, %extent2{d}
  %low{d} = ge %o{d}, %zero
  %high{d} = lt %o{d}, %out{d}
  %v1{d} = and %low{d}, %high{d}
  %v{d} = and %v1{d}, %inside{d}
)";
const char* const kBackwardAdaptive = R"(
  %i{d} = index {k}
  %w{d} = index {w}
  %p{d} = mul %i{d}, %out{d}
  %first{d} = div %p{d}, %in{d}
  %p1{d} = add %p{d}, %out{d}
  %p2{d} = add %p1{d}, %in{d}
  %p3{d} = sub %p2{d}, %one
  %end{d} = div %p3{d}, %in{d}
  %o{d} = add %first{d}, %w{d}
  %v{d} = lt %o{d}, %end{d}
)";

// %len{d}: how many elements the average over window %r{d} counts.
const char* const kLengthWithPad = R"(
  %la{d} = fma %r{d}, %stride{d}, %origin{d}
  %lb{d} = add %la{d}, %kernel{d}
  %lm{d} = sub %in{d}, %origin{d}
  %lc{d} = min %lb{d}, %lm{d}
  %len{d} = sub %lc{d}, %la{d}
)";
const char* const kLengthInside = R"(
  %la{d} = fma %r{d}, %stride{d}, %origin{d}
  %lb{d} = add %la{d}, %kernel{d}
  %lc{d} = min %lb{d}, %in{d}
  %ld{d} = max %la{d}, %zero
  %len{d} = sub %lc{d}, %ld{d}
)";
const char* const kLengthAdaptive = R"(
  %lp{d} = mul %r{d}, %in{d}
  %la{d} = div %lp{d}, %out{d}
  %lq{d} = add %lp{d}, %in{d}
  %lr{d} = add %lq{d}, %out{d}
  %lt{d} = sub %lr{d}, %one
  %lb{d} = div %lt{d}, %out{d}
  %len{d} = sub %lb{d}, %la{d}
)";

// `name` = item0 op item1 op ...
std::string chain(int64_t n, const std::string& op, const std::string& item, const std::string& name) {
  std::string lines, left = item + "0";
  for (int64_t d = 1; d < n; ++d) {
    const std::string next = d == n - 1 ? name : name + "_" + std::to_string(d);
    lines += "  " + next + " = " + op + " " + left + ", " + item + std::to_string(d) + "\n";
    left = next;
  }
  return n == 1 ? "  " + name + " = " + op + " " + item + "0, " +
                      (op == "and"   ? item + "0"
                       : op == "mul" ? "%one"
                                     : "%zero") +
                      "\n"
                : lines;
}

// %flat: the input position in its plane.
std::string flat_lines(int64_t n) {
  std::string lines, left = "%i0";
  for (int64_t d = 1; d < n; ++d) {
    const std::string e = std::to_string(d), next = d == n - 1 ? "%flat" : "%flat" + e;
    lines += "  " + next + " = fma " + left + ", %in" + e + ", %i" + e + "\n";
    left = next;
  }
  return n == 1 ? "  %flat = add %i0, %zero\n" : lines;
}

// %window: a window position as one number, in row-major order; dimension {d} has `bits{d}` bits of it, 2 to which is
// `size{d}`.
std::string pack_lines(int64_t n) {
  std::string lines = n == 1 ? "  %window = add %w0, %zero\n" : "", left = "%w0";
  for (int64_t d = 1; d < n; ++d) {
    const std::string e = std::to_string(d), next = d == n - 1 ? "%window" : "%window" + e;
    lines += "  " + next + " = fma " + left + ", %size" + e + ", %w" + e + "\n";
    left = next;
  }
  return lines;
}

// The %w{d} of `window`.
std::string unpack_lines(int64_t n, const std::string& window) {
  std::string lines, left = window;
  for (int64_t d = n - 1; d > 0; --d) {
    const std::string next = d == 1 ? "%w0" : "%rest{d}";
    lines += replace_all("  %all{d} = sub %size{d}, %one\n  %w{d} = and " + left + ", %all{d}\n  " + next + " = shr " +
                             left + ", %bits{d}\n",
                         "{d}", std::to_string(d));
    left = replace_all(next, "{d}", std::to_string(d));
  }
  return n == 1 ? "  %w0 = add " + window + ", %zero\n" : lines;
}

// %at: the offset of position `item` by the parameters `step`.
std::string offset_lines(int64_t n, const std::string& item) {
  return per_space(n, "  %at{d} = mul " + item + "{d}, %step{d}\n") + chain(n, "add", "%at", "%at");
}

std::string length_lines(const Pool& pool, Average kind, const std::string& window) {
  const int64_t n = pool.rank();
  if (kind == Average::kDivisor) {
    return "  %length = param divisor : i64\n";
  }
  const char* lines = pool.adaptive ? kLengthAdaptive : kind == Average::kIncludePad ? kLengthWithPad : kLengthInside;
  return per_space(n, replace_all(lines, "%r{d}", window)) + chain(n, "mul", "%len", "%length");
}

// %m: whether the point exists; without `masked` it does.
std::string begin(const Pool& pool, bool forward, bool masked) {
  const int64_t n = pool.rank();
  std::string lines = pool.adaptive ? kBackwardAdaptive : kBackward;
  if (forward) {
    lines = "  %w{d} = index {w}\n";
    if (masked) lines += "  %o{d} = index {k}\n";
    if (masked) lines += pool.adaptive ? kPlaceAdaptive : kPlace;
    if (masked) lines += pool.adaptive ? kInsideAdaptive : kInside;
  }
  return std::string("each:\n") + kConstants + per_space(n, kLoadParameters) + per_space(n, lines) +
         (masked ? chain(n, "and", "%v", "%m") : "");
}

std::string load_input(const Pool& pool, bool masked) {
  return pool.adaptive ? offset_lines(pool.rank(), "%i") + "  %x = load_at x, %at, mask %m : $t\n"
         : masked      ? "  %x = load x, mask %m : $t\n"
                       : "  %x = load x : $t\n";
}

}  // namespace

std::string largest_lines(const std::string& place, npu_dtype compute, const char* mask) {
  const bool floats = compute == NPU_F32 || compute == NPU_F64;
  std::string lines = R"(
  %nan = isnan %x
  %minus_one = const -1 : i64
  %mirrored = sub %minus_one, $place
  %key = where %nan, %mirrored, $place
  %best = fold argmax %x, %key$mask
row:
  %value = get %best, 0
  %found = get %best, 1
  %is_nan = isnan %value
  %mirror = const -1 : i64
  %back = sub %mirror, %found
  %place = where %is_nan, %back, %found
)";
  if (!floats)
    lines = "  %best = fold argmax %x, $place$mask\nrow:\n  %value = get %best, 0\n  %place = get %best, 1\n";
  return replace_all(replace_all(lines, "$place", place), "$mask", mask);
}

// Where in the window the largest value is, is one number for many windows; where in the plane, only their results ask.
std::string max_program(const Pool& pool, bool masked, npu_dtype compute) {
  const int64_t n = pool.rank();
  const std::string place = pool.adaptive ? kPlaceAdaptive : kPlace;
  const std::string plane = kConstants + per_space(n, kLoadParameters) + unpack_lines(n, "%place") +
                            per_space(n, "  %o{d} = index {k}\n" + place) + flat_lines(n);
  return header("x, out, indices", n) + begin(pool, true, masked) + pack_lines(n) + load_input(pool, masked) +
         largest_lines("%window", compute, masked ? ", mask %m" : "") +
         replace_all(replace_all(plane, "%", "%row_"), "%row_place", "%place") + R"(
  %none = lt %place, %row_zero
  %at_last = where %none, %place, %row_flat
  store out, %value
  store indices, %at_last
)";
}

std::string average_program(const Pool& pool, Average kind, bool masked) {
  const int64_t n = pool.rank();
  const std::string length = kConstants + per_space(n, kLoadParameters) + per_space(n, "  %r{d} = index {k}\n") +
                             length_lines(pool, kind, "%r{d}");
  return header("x, out", n) + begin(pool, true, masked) + load_input(pool, masked) + "  %sum = fold sum %x" +
         (masked ? ", mask %m" : "") + "\nrow:\n" + replace_all(length, "%", "%row_") + R"(
  %by = cast %row_length : $t
  %mean = div %sum, %by
  store out, %mean
)";
}

std::string average_backward_program(const Pool& pool, Average kind) {
  const int64_t n = pool.rank();
  return header("grad, out", n) + begin(pool, false, true) + offset_lines(n, "%o") + length_lines(pool, kind, "%o{d}") +
         R"(
  %g = load_at grad, %at, mask %m : $t
  %by = cast %length : $t
  %part = div %g, %by
  %sum = fold sum %part, mask %m
row:
  store out, %sum
)";
}

}  // namespace torch_npu
