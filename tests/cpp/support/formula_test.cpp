// Formulas: the text form that they stand for, and what is wrong with a broken one.
#include <stdexcept>

#include "support/program/formula.h"
#include "tests/cpp/support/command.h"

namespace {

std::string text_of(const std::string& formula, const char* type = "f32") {
  const std::string text = npu::formula_text(formula, type);
  EQUAL_NOTE(npu::validate(npu::parse(text).desc()), std::string(), text);
  return text;
}

std::string error_of(const std::string& formula) {
  try {
    npu::formula_text(formula, "f32");
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

TEST(a_formula_becomes_loads_instructions_and_stores) {
  EQUAL(text_of("formula axpy(out, x, y; a)\neach:\n  out = a * x + y\n"), std::string(R"(program axpy(out, x, y; a)
each:
  %0 = param a : f32
  %1 = load x : f32
  %2 = mul %0, %1
  %3 = load y : f32
  %4 = add %2, %3
  store out, %4
)"));
}

TEST(operators_bind_as_in_python_and_from_the_left) {
  const auto body = [](const std::string& formula) {
    return npu::formula_text("formula f(out, a, b, c)\neach:\n  out = " + formula + "\n", "f32");
  };
  EQUAL(body("a - b - c"), body("(a - b) - c"));
  EQUAL(body("a + b * c"), body("a + (b * c)"));
  EQUAL(body("-a ** b"), body("-(a ** b)"));
  EQUAL(body("where(not a < b and b < c or a == c, a, b)"),
        body("where(((not (a < b)) and (b < c)) or (a == c), a, b)"));
  CHECK(body("a - (b - c)") != body("a - b - c"));
}

TEST(a_number_takes_the_type_of_what_stands_beside_it) {
  const std::string text = text_of("formula f(out, i: i64)\neach:\n  out = number(i + 1) * 0.5\n");
  CHECK(text.find("const 1 : i64") != text.npos);
  CHECK(text.find("const 0.5 : f32") != text.npos);
}

TEST(loads_come_before_stores_and_equal_ones_are_one) {
  EQUAL(text_of("formula swap(a, b)\neach:\n  a = b + 0\n  b = a + b\n"), std::string(R"(program swap(a, b)
each:
  %0 = load b : f32
  %1 = const 0 : f32
  %2 = add %0, %1
  %3 = load a : f32
  store a, %2
  %4 = add %3, %0
  store b, %4
)"));
}

TEST(folds_masks_flags_and_names_reach_the_text) {
  const std::string text = text_of(R"(
formula f(out, mask: bool, x, i: i64;
          n: i64)
each:
  %sum = fold(sum, load(x, mask mask), mask mask)  # a comment
  %best = fold(argmax, x, index(0))
row:
  %sum = %sum + number(get(%best, 1))
each:
  store_at(out, %sum, check_index(i, n, wrap, check) * 2, add)
)");
  for (const char* line :
       {"load x, mask %0 : f32", "fold sum %1, mask %0", "index 0", "get %", "wrap, check", ", add\n"})
    CHECK(text.find(line) != text.npos);
}

TEST(a_text_that_is_no_formula_comes_back_as_it_is) {
  const std::string text = "program f(x)\neach:\n  %0 = load x : f32\n  store x, %0\n";
  EQUAL(npu::formula_text(text, "f32"), text);
}

TEST(a_broken_formula_names_its_line_and_what_was_expected) {
  EQUAL(error_of("formula f(out, x)\neach:\n  out = y\n"),
        std::string("line 3: expected an operand, a parameter or a value, got y"));
  EQUAL(error_of("formula f(out, x)\neach:\n  out = %y\n"),
        std::string("line 3: expected a value that is already defined, got %y"));
  EQUAL(error_of("formula f(out, x)\neach:\n  out = melt(x)\n"),
        std::string("line 3: expected a function of docs/isa.md, got melt"));
  EQUAL(error_of("formula f(out, x)\neach:\n  out = where(x > 0, y, x)\n"),
        std::string("line 3: expected an operand, a parameter or a value, got y"));
  EQUAL(error_of("formula f(out, x)\neach:\n  out = load_at(y, 1)\n"),
        std::string("line 3: expected an operand, got y"));
  EQUAL(error_of("formula f(out, x)\neach:\n  out = where(x > 0, x)\n"),
        std::string("line 3: expected more arguments of where"));
  EQUAL(error_of("formula f(out, x)\neach:\n  other = x\n"), std::string("line 3: expected an operand, got other"));
  EQUAL(error_of("formula f(out, x)\neach:\n  out = (x\n"),
        std::string("line 3: expected ')', got the end of the line"));
}

}  // namespace
