// The text form: what is printed reads back as the same program, and errors say where and what.
#include <cmath>
#include <set>
#include <stdexcept>

#include "support/program/op_info.h"
#include "tests/cpp/support/command.h"

namespace {

bool same(const npu::Program& a, const npu::Program& b) {
  return a.name == b.name && a.operand_count == b.operand_count && a.param_count == b.param_count &&
         a.consts == b.consts && a.instrs.size() == b.instrs.size() &&
         std::memcmp(a.instrs.data(), b.instrs.data(), a.instrs.size() * sizeof(npu_instr)) == 0;
}

void check_round_trip(const npu::Program& program) {
  const std::string broken = npu::validate(program.desc());
  EQUAL_NOTE(broken, std::string(), program.name);
  const std::string text = npu::to_text(program.desc());
  const npu::Program again = npu::parse(text);
  if (!same(program, again)) harness::report(__FILE__, __LINE__, "expected the same program from:\n" + text);
  EQUAL(npu::to_text(again.desc()), text);
}

std::string parse_error(const std::string& text) {
  try {
    npu::parse(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST(every_example_of_the_isa_page_is_valid_and_round_trips) {
  const std::string page = harness::isa_page(), start = "```npu\n";
  std::set<std::string> names;
  for (size_t at = page.find(start); at != std::string::npos; at = page.find(start, at + 1)) {
    const size_t from = at + start.size();
    const npu::Program program = npu::parse(page.substr(from, page.find("```", from) - from));
    check_round_trip(program);
    names.insert(program.name);
  }
  CHECK(names.size() >= 12);
}

TEST(text_is_printed_as_documented) {
  const npu::Program program = npu::parse(
      "program silu_mul(x, y, out; alpha) # a comment\n"
      "each:\n  %x = load x : f32\n  %y=load y:f32\n\n  %s = sigmoid %x\n  %m = mul %x, %s : f32\n"
      "  %a = param alpha : f32\n  %c = const 0.5 : f32\n  %b = lt %x, %c\n  store out, %m, mask %b\n");
  EQUAL(npu::to_text(program.desc()),
        "program silu_mul(o0, o1, o2; p0)\neach:\n  %1 = load o0 : f32\n  %2 = load o1 : f32\n"
        "  %3 = sigmoid %1 : f32\n  %4 = mul %1, %3 : f32\n  %5 = param p0 : f32\n  %6 = const 0.5 : f32\n"
        "  %7 = lt %1, %6 : bool\n  store o2, %4, mask %7\n");
  EQUAL(program.instrs.size(), 9u);
  EQUAL(int{program.instrs[8].mask}, 7);
  EQUAL(int{program.instrs[7].dtype}, int{NPU_BOOL});
}

TEST(every_kind_of_argument_round_trips) {
  check_round_trip(npu::parse(R"(program all(a, b, c; p, q)
each:
  %i = index 0 : i32
  %j = index 1
  %n = size 1 : i64
  %k = check_index %j, %n, wrap, check
  %k1 = check_index %k, %n, wrap
  %k2 = check_index %k1, %n
  %m = ge %k, %n
  %x = load a, mask %m : f32
  %y = load_at a, %k2, mask %m : f64
  %z = cast %x via bf16 : f32
  %w = cast %x : i64
  %v = bitcast %z, f32 -> i32
  %u = bitcast %w, i64->f64 : f64
  %h = cast %u via u8 : i32
  %r = philox %w, %j, %n, 3
  %q = where %m, %v, %h
  %l = ldexp %x, %q
  %e = frexp_e %l
  %g = check_index %j, %n, check, mask %m
  store_at b, %x, %k
  store_at b, %x, %k, add
  store_at b, %e, %k, mul, mask %m
  store_at b, %x, %k, max
  store_at b, %x, %k, min
  store c, %g, mask %m
  store c, %r
)"));
  check_round_trip(npu::parse(R"(program folds(a, out)
combine:
  %l = arg 0 : f32
  %r = arg 1 : f32
  %s = add %l, %r
  yield 0, %s
each:
  %x = load a : f32
  %i = index 0
  %t = const true : bool
  %f0 = fold custom %x
  %f1 = fold custom@1 %x, %i, %t
  %f2 = fold argmin %x, %i, mask %t
  %f3 = fold welford %x, %x, %x
row:
  %g = get %f1, 2
  %h = get %f1, 1
  %o = get %f3, 2
  store out, %g
combine:
  %a0 = arg 0 : f32
  %a1 = arg 4 : i64
  %a2 = arg 2 : bool
  yield 0, %a0
  yield 2, %a2
  yield 1, %a1
)"));
}

TEST(constants_round_trip_bit_for_bit) {
  npu::Program program = npu::parse(R"(program c(out)
each:
  %0 = const 0.1 : f32
  %1 = const -0 : f32
  %2 = const inf : f64
  %3 = const -inf : f64
  %4 = const nan : f64
  %5 = const nan(0xfff8000000000001) : f64
  %6 = const 5e-324 : f64
  %7 = const 1.7976931348623157e308 : f64
  %8 = const -9223372036854775808 : i64
  %9 = const 18446744073709551615 : u64
  %10 = const true : bool
  %11 = const false : bool
  %12 = const 0 : f32
  %13 = const 0x10 : i32
  store out, %0
)");
  EQUAL(program.consts.size(), 11u);  // -0.0 is the smallest i64, 5e-324 is true, and false is 0.0
  double first;
  std::memcpy(&first, &program.consts[0], sizeof(first));
  EQUAL(first, 0.1);
  EQUAL(program.consts[1], 0x8000000000000000u);
  EQUAL(program.consts[5], 0xfff8000000000001u);
  EQUAL(program.consts[9 - 1], 0xffffffffffffffffu);
  check_round_trip(program);
  // A pool in another order, with a duplicate and with a constant that nothing uses.
  program.consts.push_back(program.consts[0]);
  program.consts.push_back(42);
  program.instrs[1].imm = static_cast<uint32_t>(program.consts.size()) - 2;
  check_round_trip(program);
  program.instrs[1].imm = 0;
  check_round_trip(program);
}

TEST(program_names_round_trip) {
  for (const char* name :
       {"aten::add.Tensor", "a b", "", "quote\"back\\slash", "x(y)", "line\nbreak", "#hash", " pad "}) {
    npu::Program program = npu::parse("program t(o)\neach:\n %0 = index 0\n store o, %0\n");
    program.name = name;
    check_round_trip(program);
  }
}

TEST(every_operation_validates_and_round_trips_in_every_type_it_takes) {
  int programs = 0;
  for (int op = NPU_OP_ADD; op < NPU_OP_COUNT; ++op) {
    const npu::OpInfo& info = npu::op_info(op);
    if (!info.types || op == NPU_OP_WHERE) continue;
    for (const char* type : {"bool", "i32", "i64", "u64", "f32", "f64"}) {
      std::string text = std::string("program t(x, o)\neach:\n %x = load x : ") + type + "\n %r = " + info.text + " %x";
      for (int i = 1; i < info.args; ++i) text += ", %x";
      const npu::Program program = npu::parse(text + "\n store o, %r\n");
      const bool takes = npu::dtype_class(program.instrs[1].dtype) & info.types;
      EQUAL_NOTE(npu::validate(program.desc()).empty(), takes, std::string(info.text) + " " + type);
      if (takes) check_round_trip(program);
      programs += takes;
    }
  }
  CHECK(programs > 150);
}

TEST(parse_errors_name_the_line_and_what_was_expected) {
  const std::string head = "program t(x, out; p)\neach:\n";
  EQUAL(parse_error(""), "line 0: expected 'program', got the end of the text");
  CONTAINS(parse_error("each:\n"), "line 1: expected 'program'");
  EQUAL(parse_error(std::string("program a\0(o)\n", 14)), "line 1: expected text, got a zero byte");
  CONTAINS(parse_error("program t(x, x)\n"), "got 'x' twice");
  CONTAINS(parse_error(head + "%0 = load y : f32\n"), "line 3: expected the name of an operand, got 'y : f32'");
  CONTAINS(parse_error(head + "%0 = param x : f32\n"), "expected the name of a parameter");
  CONTAINS(parse_error(head + "%0 = load x\n"), "expected ': type'");
  CONTAINS(parse_error(head + "%0 = load x : f31\n"), "expected a type, got 'f31'");
  CONTAINS(parse_error(head + "\n%0 = frobnicate x\n"), "line 4: expected an instruction, got 'frobnicate'");
  CONTAINS(parse_error(head + "%0 = neg %7\n"), "expected a value that is already defined, got '%7'");
  CONTAINS(parse_error(head + "%0 = index 0\n%0 = index 1\n"), "got '%0' twice");
  CONTAINS(parse_error(head + "%0 = index 0\n%1 = store x, %0\n"), "defines no value");
  CONTAINS(parse_error(head + "%0 = index 0 : i64 more\n"), "expected the end of the line, got 'more'");
  CONTAINS(parse_error(head + "%0 = const 1.5 : i32\n"), "expected an integer, got '1.5'");
  CONTAINS(parse_error(head + "%0 = const abc : f32\n"), "expected a number, got 'abc'");
  CONTAINS(parse_error(head + "%0 = index 0\n%1 = fold average %0\n"), "expected a kind of fold");
  CONTAINS(parse_error(head + "%0 = index 0\n%1 = neg %0, mask %0\n"), "expected a mask or a flag");
}

TEST(facts_about_types) {
  EQUAL(npu::dtype_size(NPU_BF16), 2);
  EQUAL(npu::dtype_size(NPU_DTYPE_NONE), 0);
  EQUAL(npu::compute_dtype(NPU_U32), int{NPU_I64});
  EQUAL(npu::compute_dtype(NPU_U16), int{NPU_I32});
  EQUAL(npu::compute_dtype(NPU_BF16), int{NPU_F32});
  EQUAL(std::string(npu::dtype_name(NPU_U64)), "u64");
  EQUAL(std::string(npu::dtype_name(77)), "?");
  EQUAL(std::string(npu::op_name(NPU_OP_PHILOX)), "philox");
  EQUAL(std::string(npu::command_name(NPU_CONV)), "CONV");
  EQUAL(std::string(npu::fold_name(NPU_FOLD_CUSTOM)), "custom");
}
