// Instructions and conversions, against values worked out by hand or with independent code.
#include <cmath>
#include <limits>

#include "support/reference/evaluate.h"
#include "support/reference/value.h"
#include "tests/cpp/support/command.h"

namespace {

using harness::Command;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// One instruction on constants: apply<float>("add", "f32", {"1", "2"}) is 3.
template <typename T>
T apply(const std::string& op, const std::string& type, const std::vector<std::string>& arguments,
        const std::string& tail = "") {
  std::string text = "program t(out)\neach:\n", list;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool exponent = op == "ldexp" && i == 1, condition = op == "where" && i == 0;
    text += "%" + std::to_string(i) + " = const " + arguments[i] + " : " +
            (exponent    ? "i32"
             : condition ? "bool"
                         : type) +
            "\n";
    list += (i ? ", %" : " %") + std::to_string(i);
  }
  text += "%r = " + op + list + tail + "\nstore out, %r\n";
  Command command(NPU_MAP, {});
  command.with(text).in(std::vector<T>{T{}}, {});
  return command.result<T>(0)[0];
}

template <typename From, typename To>
To copied(From value, int from = harness::dtype_of<From>(), int to = harness::dtype_of<To>()) {
  Command command(NPU_COPY, {1});
  command.in(std::vector<To>{To{}}, {1}, to);
  command.in(std::vector<From>{value}, {1}, from);
  return command.result<To>(0)[0];
}

template <typename T>
uint64_t bits_of(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

}  // namespace

TEST(integer_arithmetic_wraps_and_division_is_defined) {
  EQUAL(apply<int32_t>("add", "i32", {"2147483647", "1"}), INT32_MIN);
  EQUAL(apply<int64_t>("mul", "i64", {"9223372036854775807", "2"}), -2);
  EQUAL(apply<uint64_t>("sub", "u64", {"0", "1"}), UINT64_MAX);
  EQUAL(apply<int32_t>("neg", "i32", {"-2147483648"}), INT32_MIN);
  EQUAL(apply<int32_t>("abs", "i32", {"-2147483648"}), INT32_MIN);
  EQUAL(apply<int32_t>("fma", "i32", {"65536", "65536", "7"}), 7);
  EQUAL(apply<int32_t>("div", "i32", {"-7", "2"}), -3);
  EQUAL(apply<int32_t>("floordiv", "i32", {"-7", "2"}), -4);
  EQUAL(apply<int32_t>("floordiv", "i32", {"7", "-2"}), -4);
  EQUAL(apply<int32_t>("floordiv", "i32", {"-8", "2"}), -4);
  EQUAL(apply<int32_t>("mod", "i32", {"-7", "3"}), 2);
  EQUAL(apply<int32_t>("mod", "i32", {"7", "-3"}), -2);
  EQUAL(apply<int32_t>("fmod", "i32", {"-7", "3"}), -1);
  for (const char* op : {"div", "floordiv", "mod", "fmod"}) {
    EQUAL_NOTE(apply<int64_t>(op, "i64", {"-5", "0"}), 0, op);
    EQUAL_NOTE(apply<uint64_t>(op, "u64", {"5", "0"}), 0u, op);
  }
  EQUAL(apply<int64_t>("div", "i64", {"-9223372036854775808", "-1"}), INT64_MIN);
  EQUAL(apply<int64_t>("mod", "i64", {"-9223372036854775808", "-1"}), 0);
  EQUAL(apply<int32_t>("div", "i32", {"-2147483648", "-1"}), INT32_MIN);
  EQUAL(apply<uint64_t>("div", "u64", {"18446744073709551615", "2"}), 9223372036854775807u);
  EQUAL(apply<int32_t>("sign", "i32", {"-9"}), -1);
  EQUAL(apply<uint64_t>("sign", "u64", {"18446744073709551615"}), 1u);
  EQUAL(apply<uint64_t>("max", "u64", {"18446744073709551615", "1"}), UINT64_MAX);
  EQUAL(apply<int64_t>("min", "i64", {"-1", "1"}), -1);
}

TEST(integer_powers_follow_pytorch) {
  EQUAL(apply<int64_t>("pow", "i64", {"3", "13"}), 1594323);
  EQUAL(apply<int64_t>("pow", "i64", {"-3", "3"}), -27);
  EQUAL(apply<int64_t>("pow", "i64", {"0", "0"}), 1);
  EQUAL(apply<int64_t>("pow", "i64", {"2", "-1"}), 0);
  EQUAL(apply<int64_t>("pow", "i64", {"0", "-1"}), 0);
  EQUAL(apply<int64_t>("pow", "i64", {"1", "-5"}), 1);
  EQUAL(apply<int64_t>("pow", "i64", {"-1", "-5"}), -1);
  EQUAL(apply<int64_t>("pow", "i64", {"-1", "-4"}), 1);
  EQUAL(apply<int32_t>("pow", "i32", {"2", "31"}), INT32_MIN);
  EQUAL(apply<int32_t>("pow", "i32", {"2", "32"}), 0);
}

TEST(shifts_outside_the_width_are_defined) {
  EQUAL(apply<int32_t>("shl", "i32", {"1", "31"}), INT32_MIN);
  EQUAL(apply<int32_t>("shl", "i32", {"1", "32"}), 0);
  EQUAL(apply<int32_t>("shl", "i32", {"1", "-1"}), 0);
  EQUAL(apply<int32_t>("shr", "i32", {"-8", "1"}), -4);
  EQUAL(apply<int32_t>("shr", "i32", {"-8", "32"}), -1);
  EQUAL(apply<int64_t>("shr", "i64", {"8", "64"}), 0);
  EQUAL(apply<int64_t>("shr", "i64", {"-8", "-1"}), -1);
  EQUAL(apply<uint64_t>("shr", "u64", {"18446744073709551615", "63"}), 1u);
  EQUAL(apply<uint64_t>("shr", "u64", {"18446744073709551615", "64"}), 0u);
  EQUAL(apply<int32_t>("not", "i32", {"5"}), -6);
  EQUAL(apply<bool>("not", "bool", {"true"}), false);
  EQUAL(apply<bool>("xor", "bool", {"true", "true"}), false);
  EQUAL(apply<int64_t>("and", "i64", {"12", "10"}), 8);
  EQUAL(apply<int64_t>("or", "i64", {"12", "10"}), 14);
}

TEST(float_division_and_remainders) {
  EQUAL(apply<float>("div", "f32", {"1", "3"}), 1.0f / 3.0f);
  EQUAL(apply<float>("div", "f32", {"1", "0"}), std::numeric_limits<float>::infinity());
  EQUAL(apply<double>("floordiv", "f64", {"-7", "2"}), -4.0);
  EQUAL(apply<double>("floordiv", "f64", {"1", "0.1"}), 9.0);  // 0.1 is above a tenth
  EQUAL(apply<double>("floordiv", "f64", {"-1", "0"}), -kInf);
  EQUAL(bits_of(apply<double>("floordiv", "f64", {"-0", "2"})), 0x8000000000000000u);
  EQUAL(apply<double>("mod", "f64", {"-7.5", "2"}), 0.5);
  EQUAL(apply<double>("mod", "f64", {"7.5", "-2"}), -0.5);
  EQUAL(apply<double>("mod", "f64", {"-1", "inf"}), kInf);
  EQUAL(apply<double>("fmod", "f64", {"-7.5", "2"}), -1.5);
  CHECK(std::isnan(apply<double>("mod", "f64", {"1", "0"})));
  // 1 + 2^-24 is lost when the product rounds first, kept when fma rounds once.
  EQUAL(apply<double>("fma", "f64", {"134217729", "134217729", "-18014398777917440"}), 1.0);
  EQUAL(apply<double>("pow", "f64", {"2", "0.5"}), std::sqrt(2.0));
}

TEST(minimum_maximum_and_comparison_with_nan) {
  for (const char* op : {"min", "max"}) {
    CHECK(std::isnan(apply<float>(op, "f32", {"nan", "1"})));
    CHECK(std::isnan(apply<float>(op, "f32", {"1", "nan"})));
  }
  for (const char* op : {"fmin", "fmax"}) {
    EQUAL_NOTE(apply<float>(op, "f32", {"nan", "1"}), 1.0f, op);
    EQUAL_NOTE(apply<float>(op, "f32", {"1", "nan"}), 1.0f, op);
    CHECK(std::isnan(apply<float>(op, "f32", {"nan", "nan"})));
  }
  EQUAL(apply<float>("min", "f32", {"-1", "2"}), -1.0f);
  EQUAL(apply<float>("max", "f32", {"-1", "2"}), 2.0f);
  CHECK(std::signbit(apply<float>("max", "f32", {"-0", "0"})));  // of equals the first
  CHECK(!std::signbit(apply<float>("min", "f32", {"0", "-0"})));
  EQUAL(apply<bool>("max", "bool", {"false", "true"}), true);
  for (const char* op : {"eq", "lt", "le", "gt", "ge"}) EQUAL_NOTE(apply<bool>(op, "f32", {"nan", "nan"}), false, op);
  EQUAL(apply<bool>("ne", "f32", {"nan", "nan"}), true);
  EQUAL(apply<bool>("eq", "f32", {"0", "-0"}), true);
  EQUAL(apply<bool>("gt", "u64", {"18446744073709551615", "1"}), true);
  EQUAL(apply<bool>("lt", "i64", {"-1", "1"}), true);
  EQUAL(apply<bool>("isnan", "f32", {"nan"}), true);
  EQUAL(apply<bool>("isinf", "f64", {"-inf"}), true);
  EQUAL(apply<bool>("signbit", "f32", {"-0"}), true);
  EQUAL(apply<bool>("signbit", "i32", {"-4"}), true);
  EQUAL(apply<bool>("signbit", "u64", {"18446744073709551615"}), false);
  EQUAL(bits_of(apply<float>("sign", "f32", {"nan"})), 0u);
  EQUAL(bits_of(apply<float>("sign", "f32", {"-0"})), 0u);
  EQUAL(apply<float>("sign", "f32", {"-3"}), -1.0f);
  EQUAL(apply<float>("where", "f32", {"true", "1", "2"}), 1.0f);
  EQUAL(apply<float>("where", "f32", {"false", "1", "2"}), 2.0f);
}

TEST(functions_have_the_values_of_the_tables) {
  const struct {
    const char* op;
    std::vector<std::string> x;
    double want;
  } table[] = {{"exp", {"1"}, 2.718281828459045},
               {"exp2", {"3"}, 8},
               {"expm1", {"1e-10"}, 1.00000000005e-10},
               {"log", {"10"}, 2.302585092994046},
               {"log2", {"8"}, 3},
               {"log10", {"1000"}, 3},
               {"log1p", {"1e-10"}, 9.9999999995e-11},
               {"sin", {"1"}, 0.8414709848078965},
               {"cos", {"1"}, 0.5403023058681398},
               {"tan", {"1"}, 1.5574077246549023},
               {"asin", {"0.5"}, 0.5235987755982989},
               {"acos", {"0.5"}, 1.0471975511965979},
               {"atan", {"1"}, 0.7853981633974483},
               {"atan2", {"1", "-1"}, 2.356194490192345},
               {"sinh", {"1"}, 1.1752011936438014},
               {"cosh", {"1"}, 1.5430806348152437},
               {"tanh", {"0.5"}, 0.46211715726000973},
               {"asinh", {"1"}, 0.881373587019543},
               {"acosh", {"2"}, 1.3169578969248166},
               {"atanh", {"0.5"}, 0.5493061443340548},
               {"sigmoid", {"2"}, 0.8807970779778823},
               {"erf", {"0.5"}, 0.5204998778130465},
               {"erfc", {"0.5"}, 0.4795001221869535},
               {"erfinv", {"0.5"}, 0.4769362762044699},
               {"lgamma", {"5"}, 3.1780538303479458},
               {"digamma", {"1"}, -0.5772156649015329},
               {"hypot", {"3", "4"}, 5},
               {"rsqrt", {"4"}, 0.5},
               {"sqrt", {"2"}, 1.4142135623730951},
               {"reciprocal", {"8"}, 0.125},
               {"floor", {"-1.5"}, -2},
               {"ceil", {"-1.5"}, -1},
               {"trunc", {"-1.5"}, -1},
               {"round", {"2.5"}, 2},
               {"round", {"3.5"}, 4},
               {"copysign", {"3", "-0"}, -3},
               {"ldexp", {"0.75", "4"}, 12},
               {"frexp_m", {"12"}, 0.75},
               {"pow", {"2", "10"}, 1024},
               {"pow", {"2", "-1"}, 0.5}};
  for (const auto& row : table) {
    const double wide = apply<double>(row.op, "f64", row.x);
    if (!(std::fabs(wide - row.want) <= 4e-15 * std::fabs(row.want))) EQUAL_NOTE(wide, row.want, row.op);
    const float narrow = apply<float>(row.op, "f32", row.x);
    if (!(std::fabs(narrow - row.want) <= 1.2e-7 * std::fabs(row.want))) EQUAL_NOTE(narrow, row.want, row.op);
  }
  EQUAL(apply<int32_t>("frexp_e", "f32", {"12"}), 4);
  EQUAL(apply<int32_t>("frexp_e", "f32", {"inf"}), 0);
  EQUAL(apply<float>("frexp_m", "f32", {"-inf"}), -std::numeric_limits<float>::infinity());
  EQUAL(apply<float>("nextafter", "f32", {"1", "2"}), 1.00000012f);
  EQUAL(apply<double>("nextafter", "f64", {"0", "-1"}), -5e-324);
}

TEST(digamma_and_erfinv) {
  NEAR(npu::digamma(0.5), -1.9635100260214235, 1e-15);
  NEAR(npu::digamma(10), 2.2517525890667211, 1e-15);
  NEAR(npu::digamma(-1.5), 0.70315664064524319, 1e-14);
  NEAR(npu::digamma(1e-3), -1000.5755719318103, 1e-15);
  NEAR(npu::digamma(1e8), 18.420680738952365, 1e-15);
  EQUAL(npu::digamma(0.0), -kInf);
  EQUAL(npu::digamma(-0.0), kInf);
  CHECK(std::isnan(npu::digamma(-3)));
  NEAR(npu::erfinv(1e-10), 8.862269254527581e-11, 1e-25);
  NEAR(npu::erfinv(0.999), 2.3267537655135246, 2e-15);
  NEAR(npu::erfinv(-0.1), -0.08885599049425769, 1e-16);
  EQUAL(npu::erfinv(1), kInf);
  EQUAL(npu::erfinv(-1), -kInf);
  CHECK(std::isnan(npu::erfinv(1.5)));
  for (double x = -0.9999; x < 1; x += 0.00037)
    if (std::fabs(std::erf(npu::erfinv(x)) - x) > 3e-16) EQUAL(std::erf(npu::erfinv(x)), x);
}

TEST(philox_has_the_published_test_vectors) {
  const struct {
    uint64_t seed, offset, subsequence;
    uint32_t want[4];
  } table[] = {
      {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {~0ull, ~0ull, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  for (const auto& row : table)
    for (int word = 0; word < 4; ++word)
      EQUAL(apply<int64_t>(
                "philox", "i64",
                {std::to_string(static_cast<int64_t>(row.seed)), std::to_string(static_cast<int64_t>(row.offset)),
                 std::to_string(static_cast<int64_t>(row.subsequence))},
                ", " + std::to_string(word)),
            int64_t{row.want[word]});
}

TEST(float_to_integer_conversions) {
  EQUAL((copied<float, int32_t>(-1.9f)), -1);
  EQUAL((copied<float, int32_t>(3e9f)), INT32_MIN);
  EQUAL((copied<double, int32_t>(2147483647.9)), INT32_MAX);
  EQUAL((copied<double, int32_t>(-2147483648.9)), INT32_MIN);
  EQUAL((copied<double, int64_t>(kNan)), INT64_MIN);
  EQUAL((copied<float, int64_t>(1e19f)), INT64_MIN);
  EQUAL((copied<float, int64_t>(-1e18f)), -999999984306749440);
  EQUAL((copied<float, uint8_t>(300.7f)), 44);
  EQUAL((copied<float, uint8_t>(-1.0f)), 255);
  EQUAL((copied<float, int8_t>(200.0f)), -56);
  EQUAL((copied<float, uint32_t>(-1.0f)), UINT32_MAX);
  EQUAL((copied<float, uint32_t>(3e9f)), 3000000000u);
  EQUAL((copied<double, uint64_t>(1e19)), 10000000000000000000u);
  EQUAL((copied<double, uint64_t>(-1.0)), UINT64_MAX);
  EQUAL((copied<double, uint64_t>(1e20)), uint64_t{1} << 63);
  EQUAL((copied<double, uint64_t>(kNan)), uint64_t{1} << 63);
  EQUAL((copied<float, bool>(std::nanf(""))), true);
  EQUAL((copied<float, bool>(-0.0f)), false);
  EQUAL((copied<float, bool>(1e-45f)), true);
}

TEST(integer_conversions) {
  EQUAL((copied<int64_t, int8_t>(0x1ff)), -1);
  EQUAL((copied<int64_t, bool>(256)), true);
  EQUAL((copied<uint8_t, bool>(7)), true);
  EQUAL((copied<uint32_t, float>(UINT32_MAX)), 4294967296.0f);
  EQUAL((copied<uint64_t, double>(UINT64_MAX)), 18446744073709551616.0);
  EQUAL((copied<int64_t, float>(16777217)), 16777216.0f);
  EQUAL((copied<int64_t, float>(0x8000004000000001)), -9223371487098961920.0f);
  EQUAL((copied<int8_t, uint64_t>(-1)), UINT64_MAX);
  EQUAL((copied<uint16_t, int16_t>(0xffff)), -1);
  EQUAL((copied<bool, double>(true)), 1.0);
}

TEST(copies_within_one_type_keep_every_bit) {
  EQUAL((copied<uint16_t, uint16_t>(0x7c01, NPU_F16, NPU_F16)), 0x7c01);
  EQUAL((copied<uint16_t, uint16_t>(0xffff, NPU_BF16, NPU_BF16)), 0xffff);
  EQUAL((copied<uint32_t, uint32_t>(0xff800001, NPU_F32, NPU_F32)), 0xff800001);
  EQUAL((copied<uint32_t, uint16_t>(0xff800001, NPU_F32, NPU_F16)), 0x7e00);
  EQUAL((copied<uint32_t, uint16_t>(0xff800001, NPU_F32, NPU_BF16)), 0x7fc0);
  EQUAL((copied<uint16_t, uint32_t>(0xffff, NPU_BF16, NPU_F32)), 0x7fc00000u);
  EQUAL((copied<uint16_t, uint32_t>(0xfc01, NPU_F16, NPU_F32)), 0x7fc00000u);
  EQUAL((copied<uint64_t, uint32_t>(0xfff0000000000001, NPU_F64, NPU_F32)), 0x7fc00000u);
}

// The nearest of all finite values of a 16-bit format, found by search; ties go to the even pattern.
static uint16_t nearest(double x, float (*decode)(uint16_t), uint16_t infinity) {
  uint16_t low = 0, high = infinity;
  const double ax = std::fabs(x);
  while (high - low > 1) {
    const uint16_t middle = static_cast<uint16_t>((low + high) / 2);
    (decode(middle) <= ax ? low : high) = middle;
  }
  const double below = decode(low);
  // Above the largest finite value the next one would have the same spacing.
  const double above = high == infinity ? 2 * below - decode(static_cast<uint16_t>(low - 1)) : decode(high);
  uint16_t best = ax - below < above - ax ? low : ax - below > above - ax ? high : (low & 1 ? high : low);
  if (std::isinf(x)) best = infinity;
  return static_cast<uint16_t>(best | (std::signbit(x) ? 0x8000 : 0));
}

TEST(half_precision_rounds_to_nearest_even) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t h = static_cast<uint16_t>(bits);
    if ((h & 0x7fff) <= 0x7c00) EQUAL(npu::f32_to_f16(npu::f16_to_f32(h)), h);
    if ((h & 0x7fff) <= 0x7f80) EQUAL(npu::f32_to_bf16(npu::bf16_to_f32(h)), h);
  }
  EQUAL(npu::f16_to_f32(0x3c01), 1.0009765625f);
  EQUAL(npu::f16_to_f32(0x0001), 5.9604644775390625e-08f);
  EQUAL(npu::f16_to_f32(0x7bff), 65504.0f);
  EQUAL(npu::bf16_to_f32(0x3f81), 1.0078125f);
  EQUAL(npu::f32_to_f16(65519.996f), 0x7bff);
  EQUAL(npu::f32_to_f16(65520.0f), 0x7c00);
  EQUAL(npu::f32_to_f16(0x1p-25f), 0);
  EQUAL(npu::f32_to_f16(0x1.8p-24f), 2);
  uint64_t state = 1;
  for (int i = 0; i < 300000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    uint32_t bits = static_cast<uint32_t>(state >> 32);
    if (i % 2) bits = (bits & 0x8fffffff) | 0x30000000;  // near the range of f16
    if (i % 3 == 0) bits &= 0xfffff000;                  // exact ties
    float x;
    std::memcpy(&x, &bits, sizeof(x));
    if (std::isnan(x)) continue;
    EQUAL(npu::f32_to_f16(x), nearest(x, npu::f16_to_f32, 0x7c00));
    EQUAL(npu::f32_to_bf16(x), nearest(x, npu::bf16_to_f32, 0x7f80));
  }
}

TEST(casts_through_a_storage_type_and_bitcasts) {
  EQUAL(apply<float>("cast", "f32", {"1.01"}, " via bf16 : f32"), 1.0078125f);
  EQUAL(apply<int32_t>("cast", "f32", {"300.7"}, " via u8 : i32"), 44);
  EQUAL(apply<int64_t>("cast", "i64", {"70000"}, " via i16 : i64"), 4464);
  EQUAL(apply<float>("cast", "f64", {"0.1"}, " : f32"), 0.1f);
  EQUAL(apply<int32_t>("bitcast", "f32", {"1"}, ", f32 -> i32"), 0x3f800000);
  EQUAL(apply<int64_t>("bitcast", "f32", {"-1"}, ", f32 -> u32"), int64_t{0xbf800000});
  EQUAL(apply<double>("bitcast", "i64", {"4607182418800017408"}, ", i64 -> f64"), 1.0);
  EQUAL(apply<int32_t>("bitcast", "i32", {"200"}, ", u8 -> i8"), -56);
  EQUAL(apply<float>("bitcast", "i32", {"15360"}, ", i16 -> f16"), 1.0f);
}
