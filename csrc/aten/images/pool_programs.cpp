#include "csrc/aten/images/pool.h"

namespace torch_npu {
namespace {

// Every program has these parameters for each dimension; lines below use {d}.
const char* const kParameters = "stride, origin, dilation, kernel, in, last, out, step, bits, size";
static_assert(3 * 10 + 1 <= NPU_MAX_PARAMS);

std::string header(const std::string& operands, int64_t n) {
  std::string names;
  for (int64_t d = 0; d < n; ++d) {
    const std::string type = std::to_string(d) + ": i64, ";
    names += replace_all(kParameters, ", ", type) + type;
  }
  return "formula pool(" + operands + "; " + names + "divisor: i64)\n";
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

// %i{d}: the input position of output %o{d} and window position %w{d}; %v{d}: whether it exists.
const char* const kPlace = "  %i{d} = fma(%o{d}, stride{d}, fma(%w{d}, dilation{d}, origin{d}))\n";
const char* const kInside = "  %v{d} = min(%i{d}, last{d} - %i{d}) >= 0\n";
const char* const kPlaceAdaptive = "  %i{d} = %o{d} * in{d} / out{d} + %w{d}\n";
const char* const kInsideAdaptive = "  %v{d} = %i{d} < (%o{d} * in{d} + in{d} + out{d} - 1) / out{d}\n";

// %o{d}: a window that may contain this input position; %v{d}: whether it does.
const char* const kBackward = R"(
  %padded = index({k}) - origin{d}
  %o{d} = %padded / stride{d} - index({w})
  %inside = %padded - %o{d} * stride{d} <= (kernel{d} - 1) * dilation{d}
  %v{d} = %o{d} >= 0 and %o{d} < out{d} and %inside
)";
const char* const kBackwardAdaptive = R"(
  %p = index({k}) * out{d}
  %o{d} = %p / in{d} + index({w})
  %v{d} = %o{d} < (%p + out{d} + in{d} - 1) / in{d}
)";

// %length{d}: how many elements the average over window $r counts.
const char* const kLengthWithPad = R"(
  %begin = fma($r, stride{d}, origin{d})
  %length{d} = min(%begin + kernel{d}, in{d} - origin{d}) - %begin
)";
const char* const kLengthInside = R"(
  %begin = fma($r, stride{d}, origin{d})
  %length{d} = min(%begin + kernel{d}, in{d}) - max(%begin, 0)
)";
const char* const kLengthAdaptive = "  %length{d} = ($r * in{d} + in{d} + out{d} - 1) / out{d} - $r * in{d} / out{d}\n";

// The positions `item` as one number, in row-major order, where dimension d has `extent`d places.
std::string flat(int64_t n, const std::string& item, const std::string& extent) {
  std::string all = item + "0";
  for (int64_t d = 1; d < n; ++d) {
    const std::string e = std::to_string(d);
    all = "fma(" + all + ", " + extent + e + ", " + item + e + ")";
  }
  return all;
}

// The %w{d} of %place, a window position as one number: dimension d has `bits`d bits of it, 2 to which is `size`d.
std::string unpack_lines(int64_t n) {
  std::string lines = "  %rest = %place\n";
  for (int64_t d = n - 1; d > 0; --d) {
    lines +=
        replace_all("  %w{d} = and(%rest, size{d} - 1)\n  %rest = shr(%rest, bits{d})\n", "{d}", std::to_string(d));
  }
  return lines + "  %w0 = %rest\n";
}

// %length: how many elements the average over `window` counts.
std::string length_lines(const Pool& pool, Average kind, const std::string& window) {
  if (kind == Average::kDivisor) {
    return "  %length = divisor\n";
  }
  const char* lines = pool.adaptive ? kLengthAdaptive : kind == Average::kIncludePad ? kLengthWithPad : kLengthInside;
  return per_space(pool.rank(), replace_all(lines, "$r", window)) +
         "  %length = " + per_dimension(pool.rank(), "%length{d}", " * ") + "\n";
}

// %m: whether the point exists; without `masked` it does.
std::string begin(const Pool& pool, bool forward, bool masked) {
  const int64_t n = pool.rank();
  std::string lines = pool.adaptive ? kBackwardAdaptive : kBackward;
  if (forward) {
    lines = "  %w{d} = index({w})\n";
    if (masked) lines += "  %o{d} = index({k})\n";
    if (masked) lines += pool.adaptive ? kPlaceAdaptive : kPlace;
    if (masked) lines += pool.adaptive ? kInsideAdaptive : kInside;
  }
  return "each:\n" + per_space(n, lines) + (masked ? "  %m = " + per_dimension(n, "%v{d}", " and ") + "\n" : "");
}

std::string load_input(const Pool& pool, bool masked) {
  return pool.adaptive ? "  %x = load_at(x, " + per_dimension(pool.rank(), "%i{d} * step{d}", " + ") + ", mask %m)\n"
         : masked      ? "  %x = load(x, mask %m)\n"
                       : "  %x = x\n";
}

}  // namespace

std::string largest_lines(const std::string& place, npu_dtype compute, const char* mask) {
  const char* lines = is_float(compute) ? R"(
  %best = fold(argmax, %x, where(isnan(%x), -1 - $place, $place)$mask)
row:
  %value = get(%best, 0)
  %found = get(%best, 1)
  %place = where(isnan(%value), -1 - %found, %found)
)"
                                        : R"(
  %best = fold(argmax, %x, $place$mask)
row:
  %value = get(%best, 0)
  %place = get(%best, 1)
)";
  return replace_all(replace_all(lines, "$place", place), "$mask", mask);
}

// Where in the window the largest value is, is one number for many windows; where in the plane, only their results ask.
std::string max_program(const Pool& pool, bool masked, npu_dtype compute) {
  const int64_t n = pool.rank();
  const std::string place = pool.adaptive ? kPlaceAdaptive : kPlace;
  return header("x, out, indices", n) + begin(pool, true, masked) + "  %window = " + flat(n, "%w", "size") + "\n" +
         load_input(pool, masked) + largest_lines("%window", compute, masked ? ", mask %m" : "") + unpack_lines(n) +
         per_space(n, "  %o{d} = index({k})\n" + place) + "  out = %value\n  indices = where(%place < 0, %place, " +
         flat(n, "%i", "in") + ")\n";
}

std::string average_program(const Pool& pool, Average kind, bool masked) {
  return header("x, out", pool.rank()) + begin(pool, true, masked) + load_input(pool, masked) +
         "  %sum = fold(sum, %x" + (masked ? ", mask %m" : "") + ")\nrow:\n" + length_lines(pool, kind, "index({k})") +
         "  out = %sum / number(%length)\n";
}

std::string average_backward_program(const Pool& pool, Average kind) {
  const int64_t n = pool.rank();
  return header("grad, out", n) + begin(pool, false, true) + length_lines(pool, kind, "%o{d}") +
         "  %g = load_at(grad, " + per_dimension(n, "%o{d} * step{d}", " + ") + ", mask %m)\n" +
         "  %sum = fold(sum, %g / number(%length), mask %m)\nrow:\n  out = %sum\n";
}

}  // namespace torch_npu
