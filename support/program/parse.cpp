// parse: the reading half of the text form (docs/isa.md, "Text form").
#include <charconv>
#include <cstring>
#include <map>
#include <stdexcept>

#include "support/program/lexer.h"
#include "support/program/op_info.h"
#include "support/program/program.h"

namespace npu {
namespace {

struct Parser : Lexer {
  Program program;
  std::map<std::string, uint32_t, std::less<>> operands, params, values;

  uint32_t name_in(const std::map<std::string, uint32_t, std::less<>>& names, const char* what) {
    auto found = names.find(peek_word());
    if (found == names.end()) expected(what);
    rest.remove_prefix(found->first.size());
    return found->second;
  }
  bool at_value() {
    skip();
    return !rest.empty() && rest[0] == '%';
  }
  uint16_t value() {
    if (!at_value()) expected("a value");
    std::string_view whole = rest;
    rest.remove_prefix(1);
    auto found = values.find(peek_word());
    if (found == values.end()) {
      rest = whole;
      expected("a value that is already defined");
    }
    rest.remove_prefix(found->first.size());
    return static_cast<uint16_t>(found->second);
  }
  void comma() { expect(","); }

  // -- constants --
  uint32_t pooled(uint64_t bits) {
    for (size_t i = 0; i < program.consts.size(); ++i)
      if (program.consts[i] == bits) return static_cast<uint32_t>(i);
    program.consts.push_back(bits);
    return static_cast<uint32_t>(program.consts.size() - 1);
  }
  uint64_t float_bits(std::string_view text) {
    double number = 0;
    if (text == "nan") {
      uint64_t bits = 0x7ff8000000000000u;
      if (accept("(")) {
        bits = unsigned_number("the bits of a NaN", ~uint64_t{0});
        expect(")");
      }
      return bits;
    }
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size())
      fail("expected a number, got '" + std::string(text) + "'");
    uint64_t bits;
    std::memcpy(&bits, &number, sizeof(bits));
    return bits;
  }
  uint64_t integer_bits(std::string_view text) {
    if (text == "true") return 1;
    if (text == "false") return 0;
    const char* last = text.data() + text.size();
    uint64_t bits = 0;
    std::from_chars_result result{};
    if (text.substr(0, 2) == "0x") {
      result = std::from_chars(text.data() + 2, last, bits, 16);
    } else if (text[0] == '-') {
      int64_t number = 0;
      result = std::from_chars(text.data(), last, number);
      bits = static_cast<uint64_t>(number);
    } else {
      result = std::from_chars(text.data(), last, bits);
    }
    if (result.ec != std::errc() || result.ptr != last) fail("expected an integer, got '" + std::string(text) + "'");
    return bits;
  }

  // -- lines --
  void header();
  void constants();
  void segment(npu_segment kind) {
    npu_instr in = blank(NPU_OP_SEGMENT);
    in.imm = kind;
    program.instrs.push_back(in);
  }
  static npu_instr blank(int op) {
    return {static_cast<uint8_t>(op), NPU_DTYPE_NONE, 0, 0, NPU_NO_VALUE, NPU_NO_VALUE, NPU_NO_VALUE, NPU_NO_VALUE, 0};
  }
  void instruction();
  void fold(npu_instr& in);
  void arguments(npu_instr& in);
  void tail(npu_instr& in);
  int inferred(const npu_instr& in) const;
  int type_of(uint16_t id) const {
    return id < program.instrs.size() ? int{program.instrs[id].dtype} : int{NPU_DTYPE_NONE};
  }
};

void Parser::header() {
  if (!accept_word("program")) expected("'program'");
  skip();
  if (accept("\"")) {
    for (;;) {
      if (rest.empty()) expected("'\"'");
      char ch = rest[0];
      rest.remove_prefix(1);
      if (ch == '"') break;
      if (ch == '\\') {
        if (rest.empty()) expected("a character after '\\'");
        ch = rest[0] == 'n' ? '\n' : rest[0];
        rest.remove_prefix(1);
      }
      program.name += ch;
    }
  } else {
    size_t open = rest.find('(');
    if (open == std::string_view::npos) expected("'name('");
    std::string_view name = rest.substr(0, open);
    while (!name.empty() && (name.back() == ' ' || name.back() == '\t')) name.remove_suffix(1);
    if (name.empty()) expected("a program name");
    program.name = name;
    rest.remove_prefix(open);
  }
  expect("(");
  auto list = [&](auto& names, const char* what) {
    if (peek_word().empty()) return;
    do {
      std::string name(word(what));
      if (!names.emplace(name, static_cast<uint32_t>(names.size())).second)
        fail("expected each name once, got '" + name + "' twice");
    } while (accept(","));
  };
  list(operands, "an operand name");
  if (accept(";")) list(params, "a parameter name");
  expect(")");
  program.operand_count = static_cast<uint32_t>(operands.size());
  program.param_count = static_cast<uint32_t>(params.size());
}

void Parser::constants() {
  do {
    program.consts.push_back(unsigned_number("the bits of a constant", ~uint64_t{0}));
  } while (accept(","));
}

// The kind of a fold or scan, and its members.
void Parser::fold(npu_instr& in) {
  std::string_view kind = peek_word();
  int fold = 0;
  while (fold < NPU_FOLD_COUNT && kind != fold_name(fold)) ++fold;
  if (fold == NPU_FOLD_COUNT) expected("a kind of fold");
  rest.remove_prefix(kind.size());
  in.imm = static_cast<uint32_t>(fold);
  if (accept("@")) in.imm |= small_number("the number of a combine segment") << 8;
  in.a = value();
  for (uint16_t* slot : {&in.b, &in.c}) {
    std::string_view before = rest;
    if (!accept(",")) return;
    if (!at_value()) {  // a mask follows
      rest = before;
      return;
    }
    *slot = value();
  }
}

// What stands between the instruction's name and its mask and type.
void Parser::arguments(npu_instr& in) {
  switch (in.op) {
    case NPU_OP_CONST:  // its pool entry depends on the type, which stands behind it: see instruction()
    case NPU_OP_ACC:
      return;
    case NPU_OP_PARAM:
      in.imm = name_in(params, "the name of a parameter");
      return;
    case NPU_OP_INDEX:
    case NPU_OP_SIZE:
      in.imm = small_number("a dimension number");
      return;
    case NPU_OP_ARG:
      in.imm = small_number("an argument number");
      return;
    case NPU_OP_LOAD:
    case NPU_OP_LOAD_AT:
    case NPU_OP_STORE:
    case NPU_OP_STORE_AT:
      in.imm = name_in(operands, "the name of an operand");
      if (in.op == NPU_OP_LOAD) return;
      comma();
      in.a = value();
      if (in.op != NPU_OP_STORE_AT) return;
      comma();
      in.b = value();
      return;
    case NPU_OP_FOLD:
    case NPU_OP_SCAN:
      return fold(in);
    case NPU_OP_GET:
      in.a = value();
      comma();
      in.imm = small_number("a member number");
      return;
    case NPU_OP_YIELD:
      in.imm = small_number("a member number");
      comma();
      in.a = value();
      return;
    case NPU_OP_CAST:
      in.a = value();
      in.imm = accept_word("via") ? static_cast<uint32_t>(dtype()) : static_cast<uint32_t>(NPU_DTYPE_NONE);
      return;
    case NPU_OP_BITCAST:
      in.a = value();
      comma();
      in.imm = static_cast<uint32_t>(dtype());
      expect("->");
      in.imm |= static_cast<uint32_t>(dtype()) << 8;
      return;
    default: {
      uint16_t* slots[] = {&in.a, &in.b, &in.c};
      for (int i = 0; i < op_info(in.op).args; ++i) {
        if (i) comma();
        *slots[i] = value();
      }
      if (in.op == NPU_OP_PHILOX) {
        comma();
        in.imm = small_number("a word number");
      }
    }
  }
}

// Words behind the arguments: flags and the mask.
void Parser::tail(npu_instr& in) {
  static constexpr const char* kStore[] = {"set", "add", "mul", "max", "min"};
  while (accept(",")) {
    std::string_view text = peek_word();
    bool known = true;
    if (text == "mask" && (op_info(in.op).uses & kUsesMask)) {
      rest.remove_prefix(text.size());
      in.mask = value();
      continue;
    }
    if (in.op == NPU_OP_CHECK_INDEX && text == "wrap") {
      in.flags |= NPU_INDEX_WRAP;
    } else if (in.op == NPU_OP_CHECK_INDEX && text == "check") {
      in.flags |= NPU_INDEX_CHECK;
    } else if (in.op == NPU_OP_STORE_AT) {
      uint8_t mode = 0;
      while (mode <= NPU_STORE_MIN && text != kStore[mode]) ++mode;
      known = mode <= NPU_STORE_MIN;
      in.flags = mode;
    } else {
      known = false;
    }
    if (!known) expected("a mask or a flag of this instruction");
    rest.remove_prefix(text.size());
  }
}

// The type of an instruction that does not name one; NPU_DTYPE_NONE where it must.
int Parser::inferred(const npu_instr& in) const {
  switch (op_info(in.op).result) {
    case Result::kSame:
      return type_of(in.a);
    case Result::kBool:
      return NPU_BOOL;
    case Result::kI32:
      return NPU_I32;
    case Result::kI64:
      return NPU_I64;
    default:
      break;
  }
  switch (in.op) {
    case NPU_OP_WHERE:
      return type_of(in.b);
    case NPU_OP_INDEX:
    case NPU_OP_SIZE:
      return NPU_I64;
    case NPU_OP_BITCAST:
      return compute_dtype(static_cast<int>(in.imm >> 8));
    case NPU_OP_GET: {
      const npu_instr& tuple = program.instrs[in.a];
      if (fold_kind(tuple) == NPU_FOLD_WELFORD) return tuple.dtype;
      return type_of(in.imm == 0 ? tuple.a : in.imm == 1 ? tuple.b : tuple.c);
    }
    default:
      return NPU_DTYPE_NONE;
  }
}

void Parser::instruction() {
  std::string name;
  if (accept("%")) {
    name = word("a value name");
    expect("=");
  }
  std::string_view text = word("an instruction");
  int op = 0;
  while (op < NPU_OP_COUNT && text != op_name(op)) ++op;
  if (op == NPU_OP_COUNT || op == NPU_OP_SEGMENT) fail("expected an instruction, got '" + std::string(text) + "'");
  npu_instr in = blank(op);
  arguments(in);
  std::string_view number;
  uint64_t bits = 0;
  if (op == NPU_OP_CONST) {
    if (accept("@")) {
      in.imm = small_number("the number of a constant");
    } else {
      number = word("a number");
      if (number == "nan") bits = float_bits(number);
    }
  }
  tail(in);
  const bool defines = op_info(op).result != Result::kNone;
  if (accept(":")) {
    if (!defines) fail("expected no type: " + std::string(text) + " defines no value");
    in.dtype = static_cast<uint8_t>(dtype());
  } else if (defines) {
    in.dtype = static_cast<uint8_t>(inferred(in));
    if (in.dtype == NPU_DTYPE_NONE) expected("': type'");
  }
  skip();
  if (!rest.empty()) expected("the end of the line");
  if (!number.empty()) {
    if (number != "nan") bits = is_float(in.dtype) ? float_bits(number) : integer_bits(number);
    in.imm = pooled(bits);
  }
  if (!name.empty()) {
    if (!defines) fail("expected no name: " + std::string(text) + " defines no value");
    if (!values.emplace(name, static_cast<uint32_t>(program.instrs.size())).second)
      fail("expected each value once, got '%" + name + "' twice");
  }
  if (program.instrs.size() >= NPU_MAX_INSTRS)
    fail("expected at most " + std::to_string(NPU_MAX_INSTRS) + " instructions");
  program.instrs.push_back(in);
}

// Cuts a comment off; a '#' inside a quoted name is not one.
std::string_view without_comment(std::string_view text) {
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (text[i] == '#' && !quoted) {
      return text.substr(0, i);
    }
  }
  return text;
}

}  // namespace

Program parse(std::string_view text) {
  Parser parser;
  bool header = false;
  while (!text.empty()) {
    size_t end = text.find('\n');
    parser.rest = without_comment(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++parser.line;
    if (parser.rest.find('\0') != std::string_view::npos) parser.fail("expected text, got a zero byte");
    parser.skip();
    if (parser.rest.empty()) continue;
    if (!header) {
      parser.header();
      header = true;
    } else if (parser.program.instrs.empty() && parser.accept_word("constants")) {
      parser.constants();
    } else {
      std::string_view first = parser.peek_word();
      int kind = first == "each" ? 0 : first == "row" ? 1 : first == "combine" ? 2 : -1;
      if (kind < 0) {
        parser.instruction();
        continue;
      }
      parser.rest.remove_prefix(first.size());
      parser.expect(":");
      parser.segment(static_cast<npu_segment>(kind));
    }
    parser.skip();
    if (!parser.rest.empty()) parser.expected("the end of the line");
  }
  if (!header) parser.fail("expected 'program', got the end of the text");
  return std::move(parser.program);
}

}  // namespace npu
